//! Another process that waits for names on the same server, told line by line what to do.
//!
//! It is this test binary, started again for one test with a variable set, so that it can be stopped and killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold::{Client, Lease, OutagePolicy, WaitOrder};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::child::stop;

/// Names the server; set only for a child.
const URL: &str = "LEASEHOLD_TEST_WAITER_URL";
/// Our lines among those of the test runner.
const MARK: &str = "@ ";

/// A child, as its parent sees it. Ends on drop.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts one that has its leases on this server, for this ttl.
    pub(super) fn start(url: &str, ttl: Duration) -> Self {
        let test = "waiting::child::a_child_process_waits_for_names";
        let mut process = Command::new(std::env::current_exe().expect("the test binary"))
            .args([
                "--exact",
                test,
                "--quiet",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(URL, format!("{} {url}", ttl.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts again");
        Self {
            orders: process.stdin.take().expect("it is piped"),
            answers: BufReader::new(process.stdout.take().expect("it is piped")),
            process,
        }
    }

    /// `acquire NAME`, `fair NAME`, `release NAME` or `exit`.
    pub(super) fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the child listens");
    }

    /// The next answer: the token of a grant, or how a release ended.
    pub(super) fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            let length = self.answers.read_line(&mut line).expect("UTF-8");
            assert_ne!(length, 0, "the child ended");
            if let Some(answer) = line.strip_prefix(MARK) {
                return answer.trim_end().to_owned();
            }
        }
    }

    /// Stops it where it stands.
    pub(super) fn pause(&self) {
        stop(Pid::from_child(&self.process));
    }

    /// Lets it go on.
    pub(super) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.process.wait().expect("it is our child");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it is our child");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_child_process_waits_for_names() {
    let Ok(told) = std::env::var(URL) else {
        // In the suite itself there is no server to wait at, and a child can be started.
        drop(Child::start("memory:", Duration::from_secs(1)));
        return;
    };
    let (ttl, url) = told.split_once(' ').expect("a ttl and a url");
    let ttl = Duration::from_millis(ttl.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::builder().store_url(url).ttl(ttl).build().await;
        serve(client.expect("the store opens")).await;
    });
}

async fn serve(client: Client) {
    let mut held: BTreeMap<String, Lease> = BTreeMap::new();
    for order in std::io::stdin().lines() {
        let order = order.expect("UTF-8");
        match order.split_once(' ') {
            Some((order @ ("acquire" | "fair"), name)) => {
                let order = if order == "fair" {
                    WaitOrder::Fair
                } else {
                    WaitOrder::Any
                };
                // A process that was stopped finds its requests overdue when it wakes.
                let request = client
                    .request(name)
                    .order(order)
                    .on_outage(OutagePolicy::WaitOut);
                let lease = request.acquire().await.expect("granted at last");
                println!("{MARK}{}", lease.token());
                held.insert(name.to_owned(), lease);
            }
            Some(("release", name)) => {
                let lease = held.remove(name).expect("it is held");
                println!("{MARK}{:?}", lease.release().await);
            }
            _ => std::process::exit(0),
        }
    }
}
