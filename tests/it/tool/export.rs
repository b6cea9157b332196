//! The metrics of a job, in a file and at an address, and those of a whole store.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use leasehold::{Name, store};
use rustix::process::Signal;

use super::{HOLDER, Process, Sandbox, wait_until};
use crate::harness::ports::free_port;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::LIMIT;
use crate::harness::wait::{now, until_so};
use crate::metrics::text::check_text;

/// Sends this request, and returns the whole answer.
fn http_answer(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

/// The first line of the answer for this page, and its body.
pub(super) fn page(address: &str, path: &str) -> (String, String) {
    let answer = http_answer(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let line = head.lines().next().expect("a line");
    (line.into(), body.into())
}

/// Where the tool says that it serves metrics.
pub(super) fn address(process: &Process) -> String {
    process.wait_to_say("/metrics");
    let said = process.said();
    let (_, rest) = said.split_once("http://").expect("an address");
    rest.split('/').next().expect("an address").into()
}

/// The value of the series that begins so.
pub(super) fn value_after(text: &str, start: &str) -> Option<f64> {
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(start))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Fails unless the series has this value.
pub(super) fn has_value(text: &str, start: &str, expected: f64) {
    assert_eq!(
        value_after(text, start),
        Some(expected),
        "{start} in {text}"
    );
}

#[test]
fn the_metrics_file_tells_how_each_run_ended_and_remembers_the_last_success() {
    let sandbox = Sandbox::new();
    let run = |script: &str| {
        let options = ["--metrics-file", "job.prom", "--group", "nightly"];
        let code = sandbox.run(&options, script).end().code;
        let text = std::fs::read_to_string(sandbox.path("job.prom")).expect("written");
        (code, text)
    };
    let (code, text) = run("true");
    assert_eq!(code, Some(0));
    check_text(&text);
    let job = "{group=\"nightly\",name=\"x\"";
    let exits = |reason: &str| format!("leasehold_run_exits_total{job},reason=\"{reason}\"}}");
    let success = format!("leasehold_run_last_success_timestamp_seconds{job}}}");
    has_value(&text, &exits("success"), 1.0);
    has_value(&text, &exits("failure"), 0.0);
    has_value(&text, &format!("leasehold_run_in_progress{job}}}"), 0.0);
    has_value(
        &text,
        &format!("leasehold_run_duration_seconds_count{job}}}"),
        1.0,
    );
    has_value(
        &text,
        "leasehold_acquisitions_total{group=\"nightly\",outcome=\"acquired\"}",
        1.0,
    );
    has_value(
        &text,
        "leasehold_releases_total{group=\"nightly\",outcome=\"released\"}",
        1.0,
    );
    let last = value_after(&text, &success).expect("a success");
    assert!(last > 1.7e9, "{text}");
    // A later run that fails goes on counting, and the last success stays.
    let (code, text) = run("cat job.prom > seen; exit 3");
    assert_eq!(code, Some(3));
    check_text(&text);
    has_value(&text, &exits("success"), 1.0);
    has_value(&text, &exits("failure"), 1.0);
    has_value(&text, &success, last);
    let seen = std::fs::read_to_string(sandbox.path("seen")).expect("written at the start");
    has_value(&seen, &success, last);
}

#[test]
fn a_run_within_a_run_leaves_the_metrics_of_the_outer_one_alone() {
    let sandbox = Sandbox::new();
    let tool = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("{tool} run y true && cp job.prom seen");
    let mut command = sandbox.tool(&["run", "x", "--", "sh", "-c", &script]);
    command
        .env("LEASEHOLD_METRICS", free_port().to_string())
        .env("LEASEHOLD_METRICS_FILE", "job.prom");
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let seen = std::fs::read_to_string(sandbox.path("seen")).expect("copied");
    assert!(
        seen.contains("name=\"x\"") && !seen.contains("name=\"y\""),
        "{seen}"
    );
}

#[test]
fn a_run_that_was_not_acquired_is_counted_as_held() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&[], HOLDER);
    sandbox.mark("first");
    let ended = sandbox
        .run(&["-n", "--metrics-file", "job.prom"], "true")
        .end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let text = std::fs::read_to_string(sandbox.path("job.prom")).expect("written");
    has_value(
        &text,
        "leasehold_run_exits_total{group=\"default\",name=\"x\",reason=\"held\"}",
        1.0,
    );
    assert_eq!(value_after(&text, "leasehold_run_last_success"), None);
}

#[test]
fn a_place_that_cannot_be_used_is_64_and_nothing_runs() {
    let sandbox = Sandbox::new();
    let said = sandbox.fails(&["--metrics-file", "/no/such/folder/a.prom"], 64);
    assert!(said.stderr.contains("/no/such/folder/a.prom"), "{said:?}");
    for address in ["nonsense", "192.0.2.1:9464"] {
        let said = sandbox.fails(&["--metrics", address], 64);
        assert!(said.stderr.contains(address), "{said:?}");
    }
}

#[test]
fn the_pages_of_a_job_are_there_while_it_runs_and_only_for_get() {
    let sandbox = Sandbox::new();
    let mut job = sandbox.run(&["-v", "--metrics", "localhost:0"], HOLDER);
    let address = address(&job);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    sandbox.mark("first");
    let (line, text) = page(&address, "/metrics");
    assert_eq!(line, "HTTP/1.1 200 OK");
    check_text(&text);
    has_value(
        &text,
        "leasehold_run_in_progress{group=\"default\",name=\"x\"}",
        1.0,
    );
    has_value(&text, "leasehold_held_leases{group=\"default\"}", 1.0);
    assert!(
        text.contains("leasehold_acquire_wait_seconds_bucket"),
        "{text}"
    );
    assert_eq!(page(&address, "/healthz").0, "HTTP/1.1 200 OK");
    assert_eq!(page(&address, "/readyz").0, "HTTP/1.1 200 OK");
    let status = page(&address, "/status").1;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(
        (&status["name"], &status["state"]),
        (&"x".into(), &"held".into())
    );
    assert!(http_answer(&address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(page(&address, "/").0.contains(" 404 "));
    sandbox.let_go();
    assert_eq!(job.end().code, Some(0));
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn clients_that_send_nothing_keep_none_from_an_answer() {
    let sandbox = Sandbox::new();
    let job = sandbox.run(&["-v", "--metrics", "localhost:0"], HOLDER);
    let export = sandbox.start(sandbox.tool(&["export", "--listen", ":0"]));
    for process in [&job, &export] {
        let address = address(process);
        let began = now();
        let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(&address)).collect();
        assert!(silent.iter().all(Result::is_ok));
        let connected = now();
        assert_eq!(page(&address, "/healthz").0, "HTTP/1.1 200 OK");
        let took = now().since(connected);
        // Before they are closed, after a second, unless the machine was too slow to open them all in it.
        println!("connected in {:?}", connected.since(began));
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}

#[test]
fn the_second_job_with_one_metrics_address_runs_and_says_so() {
    let sandbox = Sandbox::new();
    let port = free_port().to_string();
    let first = sandbox.run(&["-v", "--metrics", &port], HOLDER);
    sandbox.mark("first");
    let second = sandbox.tool(&["run", "--metrics", &port, "y", "true"]);
    let ended = sandbox.start(second).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("metrics are not served"), "{ended:?}");
    assert!(ended.stderr.contains(&port), "{ended:?}");
    assert_eq!(page(&address(&first), "/healthz").0, "HTTP/1.1 200 OK");
}

/// A store with one holder and one client that waits in its queue.
pub(super) struct Busy {
    sandbox: Sandbox,
    url: String,
    holder: Process,
    waiting: Process,
}

impl Busy {
    pub(super) async fn make(url: &str) -> Self {
        let sandbox = Sandbox::new();
        let holder = sandbox.run(&["--store", url], HOLDER);
        sandbox.mark("first");
        let waiting = sandbox.run(&["--store", url], "true");
        let store = store::open(url).await.expect("a URL in order");
        let name = Name::new("x").expect("a name");
        until_so("the place in the queue", async || {
            let held = store.inspect(&name, LIMIT).await.expect("answered");
            held.and_then(|held| held.waiting) == Some(1)
        })
        .await;
        store.close().await;
        Self {
            sandbox,
            url: url.into(),
            holder,
            waiting,
        }
    }

    /// Exports the store, and checks what is told of it as one of this kind. Returns how far its server's clock is
    /// ahead of ours, in seconds, if that is told.
    pub(super) fn exported(&self, kind: &str) -> Option<f64> {
        let arguments = ["export", "--store", &self.url, "--listen", ":0"];
        let mut export = self.sandbox.start(self.sandbox.tool(&arguments));
        let address = address(&export);
        wait_until("the first scan", || {
            page(&address, "/readyz").0.contains(" 200 ")
        });
        let (_, text) = page(&address, "/metrics");
        check_text(&text);
        let (line, html) = page(&address, "/?filter=x");
        assert_eq!(line, "HTTP/1.1 200 OK");
        assert!(html.contains("<td class=name> x"), "{html}");
        assert!(html.contains("1 waiting"), "{html}");
        let series = |name: &str| format!("{name}{{store=\"{kind}\"}}");
        has_value(&text, &series("leasehold_store_leases"), 1.0);
        has_value(&text, &series("leasehold_store_waiters"), 1.0);
        let value = |name: &str| value_after(&text, &series(name));
        assert!(value("leasehold_store_oldest_lease_timestamp_seconds") > Some(1.7e9));
        assert!(value("leasehold_store_hazards") >= Some(1.0), "{text}");
        export.signal(Signal::TERM);
        assert_eq!(export.end().signal, Some(Signal::TERM.as_raw()));
        value("leasehold_store_clock_offset_seconds")
    }

    /// Lets the holder end, and then the one that waits.
    pub(super) fn end(mut self) {
        self.sandbox.let_go();
        let codes = (self.holder.end().code, self.waiting.end().code);
        assert_eq!(codes, (Some(0), Some(0)));
    }
}

#[tokio::test]
async fn a_store_is_exported_as_a_whole_and_left_as_it_was() {
    let server = RedisServer::start().await;
    let busy = Busy::make(&server.url()).await;
    let keys = server.keys().await;
    let offset = busy.exported("redis").expect("Redis has a clock");
    assert!(offset.abs() < 5.0, "{offset}");
    assert_eq!(server.keys().await, keys);
    busy.end();
}
