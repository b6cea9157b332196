//! The limits as they are stated: in the manual's table, in the help, and in what is said where one is exceeded.

use std::time::Duration;

use leasehold::clock::Timing;
use leasehold::store::memory::Memory;
use leasehold::store::redis::Redis;
use leasehold::store::{Info, MAX_KEEP};
use leasehold::{ErrorKind, Name};

use super::Sandbox;
use crate::harness::tree::root;

/// A duration as pages write it: `1 s`, `24 h`, `366 days`.
fn shown(time: Duration) -> String {
    let ms = u64::try_from(time.as_millis()).unwrap();
    match ms {
        _ if ms % 1_000 > 0 => format!("{ms} ms"),
        _ if ms % 3_600_000 > 0 => format!("{} s", ms / 1_000),
        ..=86_400_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

/// The cells of the row of the manual's table of limits that begins so.
fn row(what: &str) -> [String; 3] {
    let page = std::fs::read_to_string(root().join("src/manual/failure.md")).unwrap();
    let (_, table) = page.split_once("\n# Limits\n").expect("the table");
    let table = table.split("\n\n").next().unwrap();
    let mut rows = table.lines().map(|line| line.split('|').map(str::trim));
    let row = rows.find(|row| row.clone().nth(1) == Some(what));
    let row: Vec<_> = row.unwrap_or_else(|| panic!("no row {what}")).collect();
    let ["", _, least, most, otherwise, ""] = row[..] else {
        panic!("no row of four: {row:?}");
    };
    [least, most, otherwise].map(Into::into)
}

/// The help of this option of `run`, in one line.
fn help(option: &str) -> String {
    let sandbox = Sandbox::new();
    let help = sandbox.start(sandbox.tool(&["run", "--help"])).end().stdout;
    let begins = |line: &str| {
        let line = line.trim_start();
        line.starts_with('-') || line.starts_with('[') || line.starts_with('<')
    };
    let mut lines = help
        .lines()
        .skip_while(|line| !(begins(line) && line.contains(option)));
    let first = lines
        .next()
        .unwrap_or_else(|| panic!("no {option} in {help}"));
    let rest = lines.take_while(|line| !begins(line) || line.trim_start().starts_with("[default"));
    let words: Vec<_> = std::iter::once(first)
        .chain(rest)
        .flat_map(str::split_whitespace)
        .collect();
    words.join(" ")
}

#[test]
fn the_tables_limits_of_times_and_sizes_are_those_of_the_code() {
    let [min, min_with_margin, max, default] = [
        Timing::MIN_TTL,
        Timing::MIN_TTL_WITH_MARGIN,
        Timing::MAX_TTL,
        Timing::DEFAULT_TTL,
    ]
    .map(shown);
    let least = format!("{min}; {min_with_margin} with a margin of your own");
    assert_eq!(row("a ttl"), [least, max, default]);
    let bytes = |most: usize, rest: &str| format!("{most} bytes{rest}");
    let [_, most, _] = row("a name, a prefix of keys");
    assert!(most.starts_with(&bytes(Name::MAX_BYTES, ",")), "{most}");
    assert_eq!(row("a label")[1], bytes(Info::MAX_LABEL_BYTES, ""));
    let [_, most, _] = row("`hold_at_least`, and `once` remembers a fire for");
    assert_eq!(most, shown(MAX_KEEP));
}

/// The values at the two ends of a limit, or one that is fine, and those beyond, with what is said of these.
struct Limit {
    /// The option of `run`, or its argument.
    option: &'static str,
    /// Other options that it needs.
    with: &'static [&'static str],
    good: &'static [&'static str],
    bad: &'static [&'static str],
    /// Stands in the help of the option.
    helped: &'static str,
    /// Stands in the message.
    said: &'static str,
}

const LIMITS: [Limit; 12] = [
    Limit {
        option: "--ttl",
        with: &[],
        good: &["1s", "24h"],
        bad: &["999ms", "86401s"],
        helped: "1s to 24h, from 100ms with --margin",
        said: "1s to 24h",
    },
    Limit {
        option: "--ttl",
        with: &["--margin", "10ms", "--kill-after", "10ms"],
        good: &["100ms"],
        bad: &["99ms"],
        helped: "from 100ms with --margin",
        said: "100ms to 24h",
    },
    Limit {
        option: "--margin",
        with: &["--ttl", "30s", "--kill-after", "1s"],
        good: &["1ms", "9999ms"],
        bad: &["0s", "10s"],
        helped: "More than 0, and less than a third of the ttl",
        said: "more than 0 and less than a third of the ttl",
    },
    Limit {
        option: "--kill-after",
        with: &["--ttl", "30s", "--margin", "750ms"],
        // 30 s / 2 - 750 ms - 250 ms
        good: &["0s", "14s"],
        bad: &["14001ms"],
        helped: "At most ttl/2 - margin - min(250ms, ttl/20)",
        said: "expected at most 14s",
    },
    Limit {
        option: "--kill-after",
        with: &["--ttl", "4s", "--margin", "800ms"],
        // 4 s / 2 - 800 ms - 200 ms
        good: &["1s"],
        bad: &["1001ms"],
        helped: "At most ttl/2 - margin - min(250ms, ttl/20)",
        said: "expected at most 1s",
    },
    Limit {
        option: "--max-runtime",
        with: &[],
        good: &["10s"],
        bad: &["0s"],
        helped: "More than 0",
        said: "more than 0s",
    },
    Limit {
        option: "--max-hold",
        with: &[],
        good: &["10s"],
        bad: &["0s"],
        helped: "More than 0",
        said: "more than 0s",
    },
    Limit {
        option: "--progress-within",
        with: &[],
        good: &["10s"],
        bad: &["0s"],
        helped: "More than 0",
        said: "more than 0s",
    },
    Limit {
        option: "--hold-at-least",
        with: &["--ttl", "1s"],
        good: &["1ms"],
        bad: &["0s", "367days"],
        helped: "at most 366 days",
        said: "at most 366 days",
    },
    Limit {
        option: "--permits",
        with: &[],
        good: &["1", "256"],
        bad: &["0", "257"],
        helped: "N is 1 to 256",
        said: "1..=256",
    },
    Limit {
        option: "--connect-timeout",
        with: &[],
        good: &["10s"],
        bad: &["0s"],
        helped: "More than 0",
        said: "more than 0s",
    },
    Limit {
        option: "--group",
        with: &[],
        good: &["g"],
        bad: &["", "a\tb"],
        helped: "1 to 64 bytes without control characters",
        said: "1 to 64 bytes without control characters",
    },
];

/// Runs a job with these options.
fn ran(options: &[&str]) -> super::Ended {
    Sandbox::new().run(options, "true").end()
}

fn check_limit(option: &str, with: &[&str], good: &[&str], bad: &[&str], said: &str) {
    let of = |value: &str| [with, &[&format!("{option}={value}")]].concat().join("\n");
    for value in good {
        let ended = ran(&of(value).split('\n').collect::<Vec<_>>());
        // A lease of 100 ms may be lost on a loaded machine.
        assert_ne!(ended.code, Some(64), "{option} {value}: {ended:?}");
    }
    for value in bad {
        let ended = ran(&of(value).split('\n').collect::<Vec<_>>());
        assert_eq!(ended.code, Some(64), "{option} {value}: {ended:?}");
        assert!(ended.stderr.contains(said), "{option} {value}: {ended:?}");
    }
}

#[test]
fn each_limit_of_an_option_is_in_its_help_and_in_the_message_beyond_it() {
    for limit in &LIMITS {
        let help = help(limit.option);
        assert!(help.contains(limit.helped), "{}: {help}", limit.option);
        check_limit(limit.option, limit.with, limit.good, limit.bad, limit.said);
    }
}

#[test]
fn each_limit_of_a_text_is_in_its_help_and_in_the_message_beyond_it() {
    let of = |length: usize| "x".repeat(length);
    for (option, most, least) in [
        ("--label", Info::MAX_LABEL_BYTES, "at most"),
        ("--group", 64, "1 to"),
    ] {
        let stated = format!("{least} {most} bytes without control characters");
        assert!(help(option).to_lowercase().contains(&stated), "{option}");
        check_limit(option, &[], &[&of(most)], &[&of(most + 1)], &stated);
    }
    let stated = format!(
        "1 to {} bytes of UTF-8 without control characters",
        Name::MAX_BYTES
    );
    assert!(help("<NAME>").contains(&stated), "{}", help("<NAME>"));
    let sandbox = Sandbox::new();
    for (name, code) in [
        (of(Name::MAX_BYTES), 0),
        (of(Name::MAX_BYTES + 1), 64),
        (" x".into(), 64),
    ] {
        let ended = sandbox
            .start(sandbox.tool(&["run", "--", &name, "true"]))
            .end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(code == 0 || ended.stderr.contains(&stated), "{ended:?}");
    }
}

#[tokio::test]
async fn the_tables_limits_of_calls_are_those_of_the_library() {
    let client = leasehold::Client::builder()
        .store(Memory::new())
        .build()
        .await
        .unwrap();
    let [least, most, _] = row("permits of one name").map(|cell| cell.parse().unwrap_or(0_u16));
    for count in [least - 1, most + 1] {
        let refused = client.permits("x", count).try_acquire().await.unwrap_err();
        let message = refused.to_string();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{message}");
        assert!(message.contains(&format!("{least} to {most}")), "{message}");
    }
    for count in [least, most] {
        client
            .permits("x", count)
            .try_acquire()
            .await
            .expect("within the limits");
    }
    let [least, most, _] = row("the time to connect to a server (`connect_timeout`)");
    for refused in [Duration::ZERO, Duration::from_millis(20_001)] {
        let store = Redis::builder("redis://127.0.0.1:1").connect_timeout(refused);
        let message = store.build().unwrap_err().to_string();
        let stated = format!("expected {least} to {most}")
            .replace(" ms", "ms")
            .replace(" s", "s");
        assert!(message.contains(&stated), "{message}");
    }
    let [_, most, otherwise] = row("a group");
    assert!(
        most.starts_with("64 bytes, no control character; 50 groups"),
        "{most}"
    );
    assert_eq!(otherwise, "`default`");
}
