//! `status`, `check`, `evict` and `wait` on a server.

use std::time::Duration;

use serde_json::Value;

use super::super::{Ended, HOLDER, LOOK_FOR_RIVALS, STUBBORN_FAMILY};
use super::contest::SLACK;
use super::{Site, group_gone_at};
use crate::harness::proxy::Fault;
use crate::harness::times::STORED_TTL;
use crate::harness::wait::now;

const OPTIONS: [&str; 4] = ["--ttl", "2s", "--kill-after", "300ms"];

impl Site {
    /// What a command that ends by itself answers.
    fn ask(&self, arguments: &[&str]) -> Ended {
        self.sandbox.start(self.tool(arguments)).end()
    }

    /// What a command that must succeed answers.
    fn told(&self, arguments: &[&str]) -> Ended {
        let ended = self.ask(arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    }

    fn status(&self, arguments: &[&str]) -> Value {
        let arguments = [&["status", "--json"], arguments].concat();
        let answer: Value = serde_json::from_str(&self.told(&arguments).stdout).expect("JSON");
        answer["leases"].clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_a_holder_although_hazards_cannot_be_read() {
    let site = Site::start().await;
    let _run = site.run(&OPTIONS, HOLDER);
    site.sandbox.mark("first");
    let proxy = site.server.proxy().await;
    proxy.set(|request| (request.words[0] == "CONFIG").then_some(Fault::DropReply));
    let asking = site.tool_on(&proxy.url(), &["status", "x"]);
    let ended = site.sandbox.start(asking).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("x host="), "{ended:?}");
    assert!(
        ended.stderr.contains("the hazards could not be read"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn status_shows_a_holder_with_all_that_is_known() {
    let site = Site::start().await;
    let options = [&OPTIONS[..], &["--label", "a label"]].concat();
    let script = "echo $LEASEHOLD_TOKEN $LEASEHOLD_HOLDER > told; sleep 20";
    let run = site.run(&options, script);
    let told = site.sandbox.mark("told");
    let list = site.status(&[]);
    let row = &list[0];
    assert_eq!(row["name"], "x");
    assert_eq!(row["label"], "a label");
    assert_eq!(row["pid"], run.child.id());
    let holder = row["holder"].as_str().expect("text");
    assert_eq!(format!("{} {holder}", row["token"]), told);
    let remaining = row["remaining_ms"].as_u64().expect("a number");
    assert!((1..=2_000).contains(&remaining), "{remaining}");
    assert_eq!(site.status(&["x"])[0]["holder"], row["holder"]);
    assert_eq!(site.status(&["y"]), Value::Array(Vec::new()));

    let status = site.told(&["status"]);
    // In a pipe each line is a lease; where they are is told aside.
    assert!(status.stdout.starts_with("x host="), "{status:?}");
    assert_eq!(status.stdout.lines().count(), 1, "{status:?}");
    let socket = site.server.socket();
    assert!(
        status.stderr.contains(&*socket.to_string_lossy()),
        "{status:?}"
    );
}

#[tokio::test]
async fn status_names_what_the_server_can_do_to_leases() {
    let site = Site::start().await;
    let () = site.server.told("CONFIG SET maxmemory 100mb").await;
    let () = site
        .server
        .told("CONFIG SET maxmemory-policy allkeys-lru")
        .await;
    let status = site.told(&["status"]);
    assert_eq!(status.stdout, "", "{status:?}");
    let text = status.stderr;
    assert!(text.contains("hazard: "), "{text}");
    assert!(text.contains("allkeys-lru"), "{text}");
    assert!(text.contains("nothing is held"), "{text}");
}

#[tokio::test]
async fn an_evicted_job_is_gone_before_its_name_can_be_granted() {
    let site = Site::start().await;
    let mut first = site.run(&OPTIONS, STUBBORN_FAMILY);
    let leader = site.sandbox.numbers("pids")[0];
    site.told(&["evict", "x"]);
    let mut second = site.run(&OPTIONS, LOOK_FOR_RIVALS);
    let gone = group_gone_at(leader);
    assert_eq!(second.end().code, Some(0));
    assert!(!site.sandbox.mark("rivals").contains("alive"));
    let granted = site.granted_at(site.sandbox.numbers("second")[0]).await;
    assert!(gone < granted, "alive {:?} after", gone.since(granted));
    let ended = first.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=evicted"), "{ended:?}");
    site.server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn evict_now_frees_the_name_and_the_job_is_told_at_its_next_renewal() {
    let site = Site::start().await;
    let mut first = site.run(&OPTIONS, STUBBORN_FAMILY);
    let leader = site.sandbox.numbers("pids")[0];
    let evicted = now();
    site.told(&["evict", "--now", "x"]);
    assert_eq!(site.run(&["-n"], "true").end().code, Some(0));
    let told = STORED_TTL / 3 + Duration::from_millis(300);
    let took = group_gone_at(leader).since(evicted);
    assert!(took < told + SLACK, "gone after {took:?}");
    let ended = first.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=refused"), "{ended:?}");
    site.server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_free_name_cannot_be_evicted_and_it_is_said() {
    let site = Site::start().await;
    for arguments in [&["evict", "x"][..], &["evict", "--now", "x"]] {
        let ended = site.ask(arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("no holder to evict"), "{ended:?}");
    }
    assert_eq!(site.server.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_job_can_ask_whether_its_lease_holds() {
    let site = Site::start().await;
    let script = check_until_lost(env!("CARGO_BIN_EXE_leasehold"));
    let mut run = site.run(&OPTIONS, &script);
    assert_eq!(site.sandbox.mark("held"), "0");
    site.told(&["evict", "x"]);
    assert_eq!(site.sandbox.mark("lost"), "79");
    assert_eq!(run.end().code, Some(79));
}

/// A job that ignores TERM and leaves what `check` answers, at first and when that changes.
fn check_until_lost(tool: &str) -> String {
    format!(
        "trap '' TERM; {tool} check; echo $? > held
        while {tool} check 2>/dev/null; do sleep 0.02; done
        {tool} check; echo $? > lost; sleep 20"
    )
}

#[tokio::test]
async fn wait_ends_when_the_name_is_free_and_does_not_take_it() {
    let site = Site::start().await;
    let mut first = site.run(&["--ttl", "5s"], HOLDER);
    site.sandbox.mark("first");
    let ended = site.ask(&["wait", "-w", "200ms", "x"]);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let mut waiting = site.sandbox.start(site.tool(&["wait", "x"]));
    waiting.wait_to_say("waiting for");
    site.sandbox.let_go();
    assert_eq!(first.end().code, Some(0));
    assert_eq!(waiting.end().code, Some(0));
    assert_eq!(site.status(&[]), Value::Array(Vec::new()));
    site.server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn wait_outlasts_a_server_that_is_gone_for_a_while() {
    let mut site = Site::start().await;
    let mut first = site.run(&OPTIONS, "echo up > first; exec sleep 20");
    site.sandbox.mark("first");
    let mut waiting = site.sandbox.start(site.tool(&["wait", "x"]));
    let mut limited = site.sandbox.start(site.tool(&["wait", "-w", "1s", "x"]));
    for wait in [&waiting, &limited] {
        wait.wait_to_say("waiting for");
    }
    site.server.kill();
    assert_eq!(limited.end().code, Some(75));
    assert_eq!(first.end().code, Some(79));
    assert_eq!(waiting.child.try_wait().expect("our child"), None);
    site.server.start_again().await;
    assert_eq!(waiting.end().code, Some(0));
}
