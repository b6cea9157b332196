//! The tool on a quorum of servers: how it shows them.

use leasehold::ErrorKind;
use leasehold::store::Store as _;
use rustix::process::Signal;
use serde_json::Value;

use super::export::{address, has_value, page, value_after};
use super::terminal::Shell;
use super::{Sandbox, wait_until};
use crate::harness::asking::{claim, granted};
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::times::{LIMIT, LONG};
use crate::metrics::text::check_text;

#[tokio::test]
async fn init_sets_a_quorum_up_and_without_it_a_run_is_78_and_names_it() {
    let quorum = RedisQuorum::start_new_with_ports(3).await;
    let url = format!("{}?max_ttl=2s", quorum.url());
    let sandbox = Sandbox::new();
    let said = sandbox.fails(&["--store", &url, "--ttl", "2s"], 78).stderr;
    assert!(said.contains("leasehold init"), "{said}");
    let print = sandbox.tool(&["init", "--print", "--store", &url]);
    let ended = sandbox.start(print).end();
    assert!(ended.stdout.contains("leasehold:node"), "{ended:?}");
    for _ in 0..2 {
        let ended = sandbox
            .start(sandbox.tool(&["init", "--store", &url]))
            .end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("longest ttl is 2s"), "{ended:?}");
    }
    let run = ["--store", &url, "--ttl", "2s"];
    let ended = sandbox.run(&run, "echo $LEASEHOLD_TOKEN").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let token: u64 = ended.stdout.trim().parse().expect("a token");
    // Other members.
    let others = RedisQuorum::start_new_with_ports(3).await;
    let new = format!("{}?max_ttl=2s", others.url());
    let print = sandbox.tool(&["init", "--print", "--store", &new, "--replace", &url]);
    let printed = sandbox.start(print).end().stdout;
    for part in [
        &ports(&quorum)[0],
        &ports(&others)[2],
        "Closes",
        "Waits 2.022s",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let replace = ["init", "--store", &new, "--replace", &url];
    let ended = sandbox.start(sandbox.tool(&replace)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run = ["--store", &new, "--ttl", "2s"];
    let ended = sandbox.run(&run, "echo $LEASEHOLD_TOKEN").end();
    assert!(
        ended
            .stdout
            .trim()
            .parse::<u64>()
            .is_ok_and(|next| next > token),
        "{ended:?}"
    );
    let said = sandbox.fails(&["--store", &url, "--ttl", "2s"], 78).stderr;
    assert!(said.contains("closed by"), "{said}");
}

#[tokio::test]
async fn init_run_again_says_how_many_servers_are_still_away() {
    let mut quorum = RedisQuorum::start_with_ports(3).await;
    quorum.servers[1].restart_empty().await;
    let sandbox = Sandbox::new();
    let init = sandbox.tool(&["init", "--store", &quorum.url()]);
    let ended = sandbox.start(init).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("1 of 3 members are away"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn the_status_of_a_quorum_that_was_replaced_says_so() {
    let quorum = RedisQuorum::start_with_ports(3).await;
    let store = quorum.open();
    granted(&store, &claim("a", LONG)).await;
    // As `leasehold init --replace` leaves it.
    for server in &quorum.servers {
        let _: i64 = server.told("HSET leasehold:node closed_for 77").await;
    }
    let sandbox = Sandbox::new();
    let url = quorum.url();
    for command in [&["status"][..], &["status", "a"], &["evict", "a"]] {
        let ended = sandbox
            .start(sandbox.tool(&[command, &["--store", &url]].concat()))
            .end();
        assert_eq!(ended.code, Some(78), "{ended:?}");
        assert!(ended.stderr.contains("closed by"), "{ended:?}");
    }
    // A client that knew the quorum before.
    let error = store.list("", LIMIT).await.expect_err("it is closed");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    let error = store.inspect(&claim("a", LONG).name, LIMIT).await;
    assert_eq!(
        error.expect_err("it is closed").kind(),
        ErrorKind::Misconfigured
    );
}

/// Starts a quorum of which one member is up, one has come back empty, and one is dead.
async fn torn() -> RedisQuorum {
    let mut quorum = RedisQuorum::start_with_ports(3).await;
    quorum.servers[1].restart_empty().await;
    quorum.servers[2].kill();
    quorum
}

fn ports(quorum: &RedisQuorum) -> Vec<String> {
    let ports = quorum.servers.iter();
    ports.map(|server| server.port().to_string()).collect()
}

#[tokio::test]
async fn the_status_shows_which_member_is_up_away_and_down() {
    let quorum = torn().await;
    let ports = ports(&quorum);
    let sandbox = Sandbox::new();
    let store = ["--store", &quorum.url()];
    let ended = sandbox
        .start(sandbox.tool(&[&["status"], &store[..]].concat()))
        .end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (word, port) in ["up", "away", "down"].iter().zip(&ports) {
        let lines = ended.stderr.lines();
        let mut lines = lines.filter(|line| line.contains(&format!(" server: {word} ")));
        let line = lines.next().unwrap_or_else(|| panic!("{word}: {ended:?}"));
        assert!(line.contains(port), "{line}");
        assert_eq!(line.contains(", for another "), *word == "away", "{line}");
        assert_eq!(lines.next(), None, "{ended:?}");
    }
    assert!(ended.stderr.contains("nothing is held"), "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");

    let json = [&["status", "--members", "--json"], &store[..]].concat();
    let ended = sandbox.start(sandbox.tool(&json)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let rows = &answer["members"];
    let states: Vec<_> = (0..3)
        .map(|row| rows[row]["state"].as_str().expect("text"))
        .collect();
    assert_eq!(states, ["up", "away", "down"]);
    let remaining = rows[1]["remaining_ms"].as_u64().expect("a number");
    // The longest ttl of this quorum is a minute.
    assert!((1..=60_700).contains(&remaining), "{remaining}");
    assert!(rows[0]["remaining_ms"].is_null(), "{rows}");
    assert!(
        rows[0]["version"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{rows}"
    );
}

#[tokio::test]
async fn without_a_majority_the_status_shows_the_members_before_it_fails() {
    let mut quorum = RedisQuorum::start_with_ports(3).await;
    quorum.servers[0].kill();
    quorum.servers[2].kill();
    let sandbox = Sandbox::new();
    let ended = sandbox
        .start(sandbox.tool(&["status", "--store", &quorum.url()]))
        .end();
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let down = ended.stderr.matches("server: down ").count();
    let up = ended.stderr.matches("server: up ").count();
    assert_eq!((up, down), (1, 2), "{ended:?}");
}

#[tokio::test]
async fn the_exporter_counts_the_members_and_tells_how_long_one_keeps_out() {
    let mut quorum = torn().await;
    let sandbox = Sandbox::new();
    let arguments = ["export", "--store", &quorum.url(), "--listen", ":0"];
    let mut export = sandbox.start(sandbox.tool(&arguments));
    let address = address(&export);
    wait_until("the first scan", || {
        page(&address, "/readyz").0.contains(" 200 ")
    });
    let (_, text) = page(&address, "/metrics");
    check_text(&text);
    for state in ["up", "away", "down"] {
        let series = format!("leasehold_store_members{{store=\"quorum\",state=\"{state}\"}}");
        has_value(&text, &series, 1.0);
    }
    let keep_out = value_after(&text, "leasehold_store_keep_out_seconds{store=\"quorum\"}");
    assert!(
        keep_out.is_some_and(|left| left > 0.0 && left <= 60.7),
        "{text}"
    );
    let status = page(&address, "/status").1;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["members"][1]["state"], "away", "{status}");
    quorum.servers[0].kill();
    export.signal(Signal::TERM);
    assert_eq!(export.end().signal, Some(Signal::TERM.as_raw()));
}

#[tokio::test]
async fn an_examination_of_the_clocks_leaves_tokens_for_jobs() {
    let mut quorum = RedisQuorum::start_with_ports(3).await;
    let sandbox = Sandbox::new();
    let url = quorum.url();
    let arguments = ["export", "--store", &url, "--listen", ":0"];
    let mut export = sandbox.start(sandbox.tool(&arguments));
    let address = address(&export);
    wait_until("the first scan", || {
        page(&address, "/readyz").0.contains(" 200 ")
    });
    export.signal(Signal::TERM);
    assert_eq!(export.end().signal, Some(Signal::TERM.as_raw()));
    // A client asks for the highest token of the members before this one is let in again.
    quorum.servers[1].restart_empty().await;
    let run = sandbox.tool(&["run", "--store", &url, "nightly", "--", "true"]);
    let ended = sandbox.start(run).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn the_live_view_shows_which_member_is_away_and_down() {
    let quorum = torn().await;
    let ports = ports(&quorum);
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    let url = quorum.url();
    shell.press(&format!(
        "stty rows 24 cols 160; $TOOL top --store '{url}'\n"
    ));
    shell.sees("\x1b[?1049h");
    shell.sees("away");
    shell.sees(&ports[1]);
    shell.sees("another");
    shell.sees("down");
    shell.sees(&ports[2]);
    shell.press("q");
    shell.sees("\x1b[?1049l");
}
