//! A server that is silent, busy or away for less time than the help promises costs the job nothing; one that forgot
//! everything is noticed at the next renewal.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use deadpool_redis::redis::{self, Value};
use leasehold::clock::Instant;

use super::super::export::{address, has_value, page};
use super::super::{Ended, Process};
use super::contest::SLACK;
use super::{Site, group_gone_at};
use crate::harness::proxy::{Fault, Request};
use crate::harness::redis_server::Setup;
use crate::harness::wait::{at, now, until};

/// With it a job survives 2/3 ttl - kill-after - margin - ttl/20, which is 1.57 s.
const OPTIONS: [&str; 4] = ["--ttl", "3s", "--kill-after", "200ms"];

/// How long the server is away: what is promised, less what a busy machine may need to carry out the renewal.
const AWAY: Duration = Duration::from_millis(1_200);

/// A job that ends by itself, with a code of its own, when it is let go.
const PATIENT: &str = "echo $LEASEHOLD_TOKEN $$ > first
    for i in $(seq 400); do test -e go && exit 4; sleep 0.05; done";

/// A patient job under a lease on the server.
struct Patient {
    site: Site,
    tool: Process,
    token: u64,
    leader: u64,
}

impl Patient {
    fn begin(site: Site, options: &[&str]) -> Self {
        let url = site.server.url();
        Self::begin_on(site, &url, options)
    }

    fn begin_on(site: Site, url: &str, options: &[&str]) -> Self {
        let tool = site.run_on(url, options, PATIENT);
        let numbers = site.sandbox.numbers("first");
        Self {
            site,
            tool,
            token: numbers[0],
            leader: numbers[1],
        }
    }

    /// Returns shortly before the next renewal is sent: an outage that begins now is the least lucky one.
    async fn least_lucky_moment(&self) {
        self.site.next_renewal().await;
        // Renewals are sent after a third of the ttl, less a tenth of that at most.
        at(now().after(Duration::from_millis(850))).await;
    }

    /// The job has noticed nothing: the same lease is renewed again, and the job ends as it likes.
    async fn assert_unharmed(mut self) {
        self.site.next_renewal().await;
        let status = self
            .site
            .sandbox
            .start(self.site.tool(&["status", "--json"]));
        let held = listed(status);
        assert_eq!(held[0]["token"], self.token, "{held}");
        let ended = self.let_go();
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(!ended.stderr.contains("lost"), "{ended:?}");
        self.site.server.assert_all_keys_run_out().await;
    }

    fn let_go(&mut self) -> Ended {
        self.site.sandbox.let_go();
        self.tool.end()
    }
}

fn listed(mut status: Process) -> serde_json::Value {
    let ended = status.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    answer["leases"].clone()
}

#[tokio::test]
async fn a_server_that_is_stopped_for_a_while_costs_nothing() {
    let patient = Patient::begin(Site::start().await, &OPTIONS);
    patient.least_lucky_moment().await;
    patient.site.server.pause();
    at(now().after(AWAY)).await;
    patient.site.server.resume();
    patient.assert_unharmed().await;
}

#[tokio::test]
async fn a_job_that_ended_does_not_wait_for_a_silent_server() {
    let mut patient = Patient::begin(Site::start().await, &["--ttl", "60s"]);
    patient.site.server.pause();
    let let_go = now();
    let ended = patient.let_go();
    let took = now().since(let_go);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let said = "the name stays taken until 20";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_makes_its_clients_wait_costs_nothing() {
    let patient = Patient::begin(Site::start().await, &OPTIONS);
    patient.least_lucky_moment().await;
    let pause = format!("CLIENT PAUSE {} ALL", AWAY.as_millis());
    let () = patient.site.server.told(&pause).await;
    at(now().after(AWAY)).await;
    patient.assert_unharmed().await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_costs_nothing() {
    let setup = Setup::default().with(["--lua-time-limit", "20"]);
    let patient = Patient::begin(Site::on(setup).await, &OPTIONS);
    let server = &patient.site.server;
    let mut connection = server.connect().await.expect("it is up");
    patient.least_lucky_moment().await;
    let end = now().after(AWAY);
    let endless = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg(0);
        script.query_async::<Value>(&mut connection).await
    });
    until("a busy server", async || {
        let error = server.ask::<String>("PING").await.err()?;
        (error.code() == Some("BUSY")).then_some(())
    })
    .await;
    at(end).await;
    let () = server.told("SCRIPT KILL").await;
    endless.await.expect("no panic").expect_err("killed");
    patient.assert_unharmed().await;
}

// The proxy works on while the test blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_network_that_swallows_everything_for_a_while_costs_nothing() {
    let site = Site::start().await;
    let proxy = site.server.proxy().await;
    let patient = Patient::begin_on(site, &proxy.url(), &OPTIONS);
    patient.least_lucky_moment().await;
    proxy.stall();
    at(now().after(AWAY)).await;
    proxy.flow();
    patient.assert_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cut_of_all_connections_costs_nothing() {
    let site = Site::start().await;
    let proxy = site.server.proxy().await;
    let patient = Patient::begin_on(site, &proxy.url(), &OPTIONS);
    for _ in 0..3 {
        patient.site.next_renewal().await;
        proxy.cut();
    }
    patient.assert_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_release_that_failed_at_once_is_sent_again() {
    let site = Site::start().await;
    let proxy = site.server.proxy().await;
    let mut patient = Patient::begin_on(site, &proxy.url(), &["--ttl", "60s"]);
    proxy.once(Request::is_script, Fault::DropRequest);
    let ended = patient.let_go();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let status = patient
        .site
        .sandbox
        .start(patient.site.tool(&["status", "--json"]));
    assert_eq!(listed(status), serde_json::json!([]), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_died_and_came_back_in_time_costs_nothing() {
    let mut patient = Patient::begin(Site::start().await, &OPTIONS);
    patient.least_lucky_moment().await;
    let snapshot = patient.site.server.snapshot().await;
    let end = now().after(AWAY * 3 / 4);
    patient.site.server.kill();
    at(end).await;
    patient.site.server.restart_from(&snapshot).await;
    patient.assert_unharmed().await;
}

#[tokio::test]
async fn a_wait_outlasts_a_server_that_is_gone_for_a_while() {
    let mut patient = Patient::begin(Site::start().await, &OPTIONS);
    let wait = ["-w", "15s"];
    let mut second = patient.site.run(&wait, "echo up > second");
    second.wait_to_say("waiting for");
    patient.site.server.kill();
    assert_eq!(patient.tool.end().code, Some(79));
    assert!(!patient.site.sandbox.has("second"));
    patient.site.server.start_again().await;
    let ended = second.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(patient.site.sandbox.has("second"));
    patient.site.server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_store_that_dies_while_a_run_waits_is_said_and_so_is_its_return() {
    let mut site = Site::start().await;
    let holder = site.run(&[], super::super::HOLDER);
    site.sandbox.mark("first");
    let socket = UnixDatagram::bind(site.sandbox.path("notify")).expect("bound");
    let mut command = site.tool(&["run", "--metrics", ":0", "-v", "x", "true"]);
    command.env("NOTIFY_SOCKET", site.sandbox.path("notify"));
    let mut waiting = site.sandbox.start(command);
    waiting.wait_to_say("waiting for x: ");
    let address = address(&waiting);
    let outage = "leasehold_run_outage{group=\"default\",name=\"x\"}";
    has_value(&page(&address, "/metrics").1, outage, 0.0);
    site.server.kill();
    waiting.wait_to_say("still waiting for x: the store cannot be reached for ");
    has_value(&page(&address, "/metrics").1, outage, 1.0);
    assert!(page(&address, "/status").1.contains("\"outage\""));
    let mut bytes = [0; 4096];
    let mut status = String::new();
    while !status.contains("STATUS=still waiting") {
        let length = socket.recv(&mut bytes).expect("told");
        status += &String::from_utf8_lossy(&bytes[..length]);
    }
    site.server.start_again().await;
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("the store is back"), "{ended:?}");
    drop(holder);
}

/// Keeps the name for longer than any outage here.
const KEPT: [&str; 4] = ["--ttl", "8s", "--hold-at-least", "1h"];

#[tokio::test]
async fn a_name_is_kept_through_an_outage_at_the_end_of_the_job() {
    let mut patient = Patient::begin(Site::start().await, &KEPT);
    patient.site.server.pause();
    patient.site.sandbox.let_go();
    patient.tool.wait_to_say("it is repeated until");
    patient.site.server.resume();
    let ended = patient.tool.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("released, and kept"), "{ended:?}");
    let status = patient.site.tool(&["status"]);
    let status = patient.site.sandbox.start(status).end().stdout;
    assert!(status.contains("state=kept"), "{status}");
}

#[tokio::test]
async fn a_name_that_could_not_be_kept_is_said_to_be_free() {
    let options = ["--ttl", "3s", "--hold-at-least", "1h"];
    let mut patient = Patient::begin(Site::start().await, &options);
    patient.site.server.kill();
    let began = now();
    patient.site.sandbox.let_go();
    let ended = patient.tool.end();
    let took = now().since(began);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("not known to be kept"), "{ended:?}");
    assert!(took < Duration::from_secs(3) + SLACK, "{took:?}");
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_a_release() {
    let mut patient = Patient::begin(Site::start().await, &KEPT);
    patient.site.server.pause();
    patient.site.sandbox.let_go();
    patient.tool.wait_to_say("it is repeated until");
    patient.tool.signal(rustix::process::Signal::TERM);
    let ended = patient.tool.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("not known to be kept"), "{ended:?}");
    patient.site.server.resume();
}

#[tokio::test]
async fn a_wait_says_that_its_store_cannot_be_reached() {
    let mut site = Site::start().await;
    let _holder = site.run(&[], super::super::HOLDER);
    site.sandbox.mark("first");
    let mut waiting = site.sandbox.start(site.tool(&["wait", "x"]));
    waiting.wait_to_say("waiting for x: ");
    site.server.kill();
    waiting.wait_to_say("still waiting for x: the store cannot be reached for ");
    site.server.start_again().await;
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("the store is back"), "{ended:?}");
}

#[tokio::test]
async fn a_run_that_is_told_to_fail_in_an_outage_ends_with_69() {
    let mut site = Site::start().await;
    let _holder = site.run(&[], super::super::HOLDER);
    site.sandbox.mark("first");
    let mut waiting = site.run(&["--on-outage", "fail"], "true");
    waiting.wait_to_say("waiting for");
    site.server.kill();
    let ended = waiting.end();
    assert_eq!(ended.code, Some(69), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_forgot_everything_is_noticed_at_the_next_renewal() {
    let options = ["--ttl", "5s", "--kill-after", "300ms"];
    let mut patient = Patient::begin(Site::start().await, &options);
    let deadline = patient.site.next_renewal().await;
    patient.site.server.restart_empty().await;
    let gone = group_gone_at(patient.leader);
    let ended = patient.tool.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=refused"), "{ended:?}");
    assert_told_in_time(gone, deadline);
    patient.site.server.assert_all_keys_run_out().await;

    let next = patient
        .site
        .run(&["-n"], "echo $LEASEHOLD_TOKEN > next")
        .end();
    assert_eq!(next.code, Some(0), "{next:?}");
    let token = patient.site.sandbox.numbers("next")[0];
    assert!(token > patient.token, "{token} after {}", patient.token);
    patient.site.server.assert_all_keys_run_out().await;
}

/// The next renewal is sent after a third of the ttl of 5 s, and the job is killed 300 ms after its answer.
fn assert_told_in_time(gone: Instant, deadline: Instant) {
    let renewed = deadline.before(Duration::from_secs(5));
    let told = renewed.after(Duration::from_secs(5) / 3);
    let latest = told.after(Duration::from_millis(300) + SLACK);
    let took = gone.since(renewed);
    assert!(gone < latest, "gone {took:?} after the last renewal");
}
