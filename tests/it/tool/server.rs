//! The tool on a server: the same promises, with outages that one machine does not have.

use std::time::Duration;

use leasehold::clock::{Boottime, Clock};
use rustix::process::Signal;

use super::{LOOK_FOR_RIVALS, Place, Process, STUBBORN_FAMILY, is_alive, until};
use crate::harness::redis_server::RedisServer;

/// Starts `leasehold run` of this script on the server.
fn run(server: &RedisServer, place: &Place, options: &[&str], script: &str) -> Process {
    let url = server.url();
    let mut all = vec!["--store", &url, "--ttl", "2s"];
    all.extend(options);
    place.run(&all, script)
}

#[tokio::test]
async fn runs_exclude_each_other_and_tokens_rise() {
    let place = Place::new();
    let server = RedisServer::start().await;
    let script = "mkdir busy || echo overlap > overlap
        sleep 0.2; echo $LEASEHOLD_TOKEN >> tokens; rmdir busy";
    let mut runs: Vec<_> = (0..3).map(|_| run(&server, &place, &[], script)).collect();
    for run in &mut runs {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let tokens = place.numbers("tokens");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(!place.has("overlap"));
}

#[tokio::test]
async fn a_killed_tool_leaves_nobody_to_the_next() {
    let place = Place::new();
    let server = RedisServer::start().await;
    let first = run(&server, &place, &[], STUBBORN_FAMILY);
    place.mark("pids");
    first.signal(Signal::KILL);
    let ended = run(&server, &place, &[], LOOK_FOR_RIVALS).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!place.mark("rivals").contains("alive"));
}

#[tokio::test]
async fn a_job_is_gone_in_time_when_its_server_hangs() {
    let place = Place::new();
    let server = RedisServer::start().await;
    let mut first = run(&server, &place, &[], STUBBORN_FAMILY);
    let pids = place.numbers("pids");
    let began = Boottime.now();
    server.pause();
    until("the job's end", || pids.iter().all(|pid| !is_alive(*pid)));
    assert!(Boottime.now().since(began) < Duration::from_secs(2));
    assert_eq!(first.end().code, Some(79));
    server.resume();
}

#[tokio::test]
async fn a_short_outage_of_the_server_is_survived() {
    let place = Place::new();
    let server = RedisServer::start().await;
    let mut first = run(&server, &place, &[], "echo up > first; sleep 2.5; exit 4");
    place.mark("first");
    server.pause();
    let end = Boottime.now().after(Duration::from_millis(200));
    until("a moment", || Boottime.now() >= end);
    server.resume();
    let ended = first.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[tokio::test]
async fn a_wait_outlasts_a_server_that_is_gone_for_a_while() {
    let place = Place::new();
    let mut server = RedisServer::start().await;
    let first = run(&server, &place, &[], "echo up > first; exec sleep 20");
    place.mark("first");
    let mut second = run(&server, &place, &["-w", "15s"], "echo up > second");
    second.wait_to_say("waiting for");
    server.kill();
    drop(first);
    server.start_again().await;
    let ended = second.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(place.has("second"));
}

#[tokio::test]
async fn a_wrong_password_is_77() {
    let place = Place::new();
    let server = RedisServer::start().await;
    let url = format!("{}?user=nobody&pass=hush", server.url());
    let ended = place.run(&["--store", &url], "echo up > started").end();
    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert!(!ended.stderr.contains("hush"), "{ended:?}");
    assert!(!place.has("started"));
}
