//! `leasehold hold`: what it tells the program that started it, and what ends it.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::export::has_value;
use super::fields::Section;
use super::loss::block_store;
use super::{Ended, Process, Sandbox, numbered, sleep, wait_until};

const TTL: Duration = Duration::from_secs(2);
const SHORT: [&str; 2] = ["--ttl", "2s"];

impl Sandbox {
    /// Starts `hold` of the name `x`, which listens to the test.
    fn hold(&self, options: &[&str]) -> Process {
        self.start(self.hold_with(options))
    }

    fn hold_with(&self, options: &[&str]) -> Command {
        let mut command = self.tool(&[&["hold", "x"], options].concat());
        command.stdin(Stdio::piped());
        command
    }

    /// Whether the name is free.
    fn is_free(&self) -> bool {
        let asked = self.start(self.tool(&["status", "--quiet", "x"])).end();
        asked.code == Some(1)
    }
}

/// The lines that it has printed so far.
fn events(hold: &Process) -> Vec<Value> {
    let text = std::fs::read_to_string(&hold.stdout).expect("its output");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    parsed(whole)
}

fn parsed(text: &str) -> Vec<Value> {
    let lines = text.lines();
    let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    lines.collect()
}

fn words(events: &[Value]) -> Vec<&str> {
    let mut words: Vec<_> = events.iter().map(word).collect();
    words.dedup();
    words
}

fn word(event: &Value) -> &str {
    event["event"].as_str().expect("a word")
}

fn wait_for(hold: &Process, event: &str) {
    wait_until(event, || events(hold).iter().any(|one| word(one) == event));
}

fn say(hold: &mut Process, line: &str) {
    let input = hold.child.stdin.as_mut().expect("piped");
    input.write_all(line.as_bytes()).expect("it listens");
}

/// Fails unless it ended with this code after these events.
fn assert_told(ended: &Ended, code: i32, told: &[&str]) -> Vec<Value> {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let events = parsed(&ended.stdout);
    assert_eq!(words(&events), told, "{ended:?}");
    events
}

fn now_ms() -> u64 {
    Boottime.now().as_nanos() / 1_000_000
}

#[test]
fn each_renewal_has_a_later_deadline_and_a_closed_input_releases() {
    let sandbox = Sandbox::new();
    // The end of the thread that started it is not the end of its parent.
    let started = std::thread::scope(|scope| scope.spawn(|| sandbox.hold(&SHORT)).join());
    let mut hold = started.expect("started");
    wait_until("renewals", || events(&hold).len() > 3);
    let told = events(&hold);
    let last = told.last().expect("some")["deadline_ms"].as_u64();
    let left = last.expect("held").saturating_sub(now_ms());
    assert!(u128::from(left) < TTL.as_millis(), "{told:?}");
    assert!(!sandbox.is_free());
    drop(hold.child.stdin.take());
    let ended = hold.end();
    let told = assert_told(&ended, 0, &["held", "released"]);
    assert!(sandbox.is_free());
    let deadlines = told
        .iter()
        .filter_map(|event| event["deadline_ms"].as_u64());
    let deadlines: Vec<_> = deadlines.collect();
    assert!(deadlines.is_sorted_by(|one, next| one < next), "{told:?}");
    assert!(told.iter().all(|event| event["token"] == told[0]["token"]));
    let page = Section::of("`hold`");
    ended.stdout.lines().for_each(|line| page.check(line));
}

#[test]
fn a_waiting_one_says_so_and_release_ends_either() {
    let sandbox = Sandbox::new();
    let mut permit = sandbox.hold(&["--permits", "1"]);
    wait_for(&permit, "held");
    say(&mut permit, "release\n");
    let told = assert_told(&permit.end(), 0, &["held", "released"]);
    assert_eq!(
        (&told[0]["name"], &told[0]["permit"]),
        (&"x#1".into(), &1.into())
    );
    let mut first = sandbox.hold(&[]);
    wait_for(&first, "held");
    let mut next = sandbox.hold(&[]);
    let mut third = sandbox.hold(&[]);
    wait_for(&next, "waiting");
    wait_for(&third, "waiting");
    say(&mut third, "release\n");
    assert_told(&third.end(), 75, &["waiting", "failed"]);
    // No command, however it is cut.
    say(&mut first, "releas");
    say(&mut first, &"e".repeat(300));
    say(&mut first, "\n\nrel");
    first.wait_to_say("expected progress or release");
    say(&mut first, "ease\n");
    assert_told(&first.end(), 0, &["held", "released"]);
    wait_for(&next, "held");
    drop(next.child.stdin.take());
    let ended = next.end();
    let told = assert_told(&ended, 0, &["waiting", "held", "released"]);
    assert!(told[0]["token"].is_null() && told[1]["token"].is_u64());
    let page = Section::of("`hold`");
    ended.stdout.lines().for_each(|line| page.check(line));
}

#[test]
fn a_name_that_is_held_is_told_by_the_exit_code_and_why() {
    let sandbox = Sandbox::new();
    let hold = sandbox.hold(&[]);
    wait_for(&hold, "held");
    let told = assert_told(&sandbox.hold(&["-n"]).end(), 75, &["failed"]);
    let pid = hold.child.id().to_string();
    assert!(told[0]["why"].as_str().expect("text").contains(&pid));
    assert_told(
        &sandbox.hold(&["-w", "100ms", "-E", "3"]).end(),
        3,
        &["waiting", "failed"],
    );
}

/// Starts a parent of `hold`, and a child of that parent which has the pipe, too.
const PARENT: &str = r#"mkfifo pipe; exec 3<>pipe; sleep 60 & echo $! > child
    "$TOOL" hold x $OPTIONS < pipe > events & echo $! > hold; wait"#;

#[test]
fn the_death_of_its_parent_releases_also_where_another_has_the_pipe() {
    let sandbox = Sandbox::new();
    for is_waiting in [false, true] {
        let mut other = is_waiting.then(|| sandbox.hold(&[]));
        if let Some(other) = &other {
            wait_for(other, "held");
        }
        let mut parent = sandbox.start(sandbox.program("sh", &["-c", PARENT]));
        let event = if is_waiting { "waiting" } else { "held" };
        wait_until(event, || {
            sandbox.has("events") && sandbox.mark("events").contains(event)
        });
        let child = sandbox.numbers("child")[0];
        let hold = sandbox.numbers("hold")[0];
        parent.child.kill().expect("killed");
        parent.end();
        wait_until("its end", || super::is_dead(hold));
        assert!(!super::is_dead(child), "the pipe is at its end");
        let last = if is_waiting { "failed" } else { "released" };
        assert!(sandbox.mark("events").contains(last));
        assert_eq!(sandbox.is_free(), !is_waiting);
        kill_process(numbered(child), Signal::KILL).expect("it lives");
        for file in ["pipe", "child", "hold", "events"] {
            std::fs::remove_file(sandbox.path(file)).expect("removed");
        }
        if let Some(other) = &mut other {
            drop(other.child.stdin.take());
            other.end();
        }
    }
}

/// A pipe that is full, and so does not take a word until it is read.
fn full_pipe() -> (PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("set");
    for chunk in [4096, 1] {
        while rustix::io::write(&writer, &vec![b' '; chunk]) != Err(Errno::AGAIN) {}
    }
    (reader, writer)
}

#[test]
fn without_a_reader_it_renews_and_the_loss_is_told_once_there_is_one() {
    let sandbox = Sandbox::new();
    let (reader, writer) = full_pipe();
    let stderr = tempfile::NamedTempFile::new().expect("a file");
    let mut command = sandbox.hold_with(&SHORT);
    command
        .stdout(writer)
        .stderr(stderr.reopen().expect("opened"));
    let mut hold = Process {
        child: command.spawn().expect("the tool starts"),
        stdout: tempfile::NamedTempFile::new().expect("a file"),
        stderr,
    };
    drop(command);
    wait_until("the lease", || !sandbox.is_free());
    let token = || {
        let status = sandbox
            .start(sandbox.tool(&["status", "--json", "x"]))
            .end();
        let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
        status["leases"][0]["token"].clone()
    };
    let first = token();
    assert!(first.is_u64());
    sleep(2 * TTL + TTL / 2);
    assert_eq!(token(), first);
    sandbox.start(sandbox.tool(&["evict", "x"])).end();
    hold.wait_to_say("lease lost");
    let lines = BufReader::new(reader).lines();
    let lines = lines.map(|line| line.expect("text").trim().to_owned());
    let told = parsed(&lines.collect::<Vec<_>>().join("\n"));
    let ended = hold.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert_eq!(words(&told), ["held", "lost"]);
    assert_eq!(told.last().expect("one")["reason"], "evicted");
    // Of the renewals that nobody read: the one whose line was begun, and the last.
    assert!(told.len() <= 3, "{told:?}");
}

#[test]
fn a_lost_store_is_at_risk_first_and_then_lost_at_the_deadline() {
    let sandbox = Sandbox::new();
    let mut hold = sandbox.hold(&SHORT);
    wait_for(&hold, "held");
    let ended = block_store(&sandbox, || hold.end());
    let told = assert_told(&ended, 79, &["held", "at_risk", "lost"]);
    let [.., held, at_risk, lost] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(at_risk["deadline_ms"], held["deadline_ms"]);
    assert_eq!(lost["reason"], "deadline");
    let page = Section::of("`hold`");
    ended.stdout.lines().for_each(|line| page.check(line));
}

#[test]
fn without_progress_the_lease_is_lost() {
    let sandbox = Sandbox::new();
    let mut hold = sandbox.hold(&["--ttl", "2s", "--progress-within", "2s"]);
    wait_for(&hold, "held");
    for _ in 0..15 {
        say(&mut hold, "progress\n");
        sleep(TTL / 10);
    }
    assert_eq!(words(&events(&hold)), ["held"]);
    let told = assert_told(&hold.end(), 79, &["held", "lost"]);
    assert_eq!(told.last().expect("one")["reason"], "no_progress");
    assert!(sandbox.is_free());
}

#[test]
fn a_signal_releases_and_is_what_it_ends_by() {
    let sandbox = Sandbox::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut hold = sandbox.hold(&[]);
        wait_for(&hold, "held");
        let mut waiting = sandbox.hold(&[]);
        wait_for(&waiting, "waiting");
        for (process, last) in [(&mut waiting, "failed"), (&mut hold, "released")] {
            process.signal(signal);
            let ended = process.end();
            assert_eq!(ended.signal, Some(signal.as_raw()), "{ended:?}");
            let told = parsed(&ended.stdout);
            assert_eq!(told.last().map(word), Some(last), "{ended:?}");
        }
        assert!(sandbox.is_free());
    }
}

#[test]
fn its_metrics_tell_how_it_ended() {
    let sandbox = Sandbox::new();
    let file = ["--metrics-file", "hold.prom", "--group", "nightly"];
    let mut hold = sandbox.hold(&file);
    wait_for(&hold, "held");
    say(&mut hold, "release\n");
    assert_told(&hold.end(), 0, &["held", "released"]);
    let text = std::fs::read_to_string(sandbox.path("hold.prom")).expect("written");
    let job = "{group=\"nightly\",name=\"x\"";
    for (series, expected) in [
        ("leasehold_run_exits_total{job},reason=\"success\"}", 1.0),
        ("leasehold_run_exits_total{job},reason=\"lost\"}", 0.0),
        ("leasehold_run_in_progress{job}}", 0.0),
        ("leasehold_run_duration_seconds_count{job}}", 1.0),
    ] {
        has_value(&text, &series.replace("{job}", job), expected);
    }
    let lost = [&file[..], &["--max-hold", "300ms"]].concat();
    assert_told(&sandbox.hold(&lost).end(), 79, &["held", "lost"]);
    let text = std::fs::read_to_string(sandbox.path("hold.prom")).expect("written");
    for reason in ["success", "lost"] {
        let series = format!("leasehold_run_exits_total{job},reason=\"{reason}\"}}");
        has_value(&text, &series, 1.0);
    }
    let refused = sandbox
        .start(sandbox.hold_with(&["--metrics", "nowhere"]))
        .end();
    assert_eq!(refused.code, Some(64), "{refused:?}");
}
