//! A client in a process of its own, on this machine or on a host of the test's own network, told line by line what to do.
//!
//! It is this test binary, started again for one test with a variable set, so that it can be stopped, killed and cut off.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::{Client, Lease, OutagePolicy, WaitOrder};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::child::stop;
use crate::harness::network::Host;
use crate::harness::wait::now;

/// Has the ttl and the URL; set only for a contender.
const URL: &str = "LEASEHOLD_TEST_CONTENDER_URL";
/// Our lines among those of the test runner.
const MARK: &str = "@ ";
/// How long an answer may take: an election and a ttl on a busy machine.
const ANSWER: Duration = Duration::from_secs(60);

/// A contender, as its parent sees it. Ends on drop.
#[derive(Debug)]
pub(super) struct Contender {
    process: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// What a contender said, and when it came to know it.
#[derive(Debug)]
pub(super) struct Told {
    /// The token of a grant, the reason of a loss, or how a release ended.
    pub(super) what: String,
    pub(super) at: Instant,
}

impl Contender {
    /// Starts one with leases of this ttl.
    pub(super) fn start(url: &str, ttl: Duration) -> Self {
        Self::spawn(Command::new(own()), url, ttl)
    }

    /// The same on this host.
    pub(super) fn start_on(host: &Host, url: &str, ttl: Duration) -> Self {
        Self::spawn(host.program(own()), url, ttl)
    }

    fn spawn(mut command: Command, url: &str, ttl: Duration) -> Self {
        let test = "faults::zookeeper::contender::a_contender_does_what_it_is_told";
        let arguments = [
            "--exact",
            test,
            "--quiet",
            "--nocapture",
            "--test-threads=1",
        ];
        let mut process = command
            .args(arguments)
            .env(URL, format!("{} {url}", ttl.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts again");
        // More than a contender ever says between two looks.
        let (sender, answers) = sync_channel(256);
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix(MARK) {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        Self {
            orders: process.stdin.take().expect("it is piped"),
            answers,
            process,
        }
    }

    /// Has it claim the name `a` and wait for its turn.
    pub(super) fn claim(&mut self) {
        self.order("claim");
    }

    /// Has it release.
    pub(super) fn release(&mut self) {
        self.order("release");
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("it listens");
    }

    /// Its next grant, with the token.
    pub(super) fn granted(&self) -> (u64, Instant) {
        let told = self.answer("granted");
        (told.what.parse().expect("a token"), told.at)
    }

    /// The loss of its lease.
    pub(super) fn lost(&self) -> Told {
        self.answer("lost")
    }

    pub(super) fn released(&self) -> Told {
        self.answer("released")
    }

    fn answer(&self, kind: &str) -> Told {
        let answer = self.answers.recv_timeout(ANSWER);
        let answer = answer.unwrap_or_else(|_| panic!("waited {ANSWER:?} in vain for {kind}"));
        let words: Vec<_> = answer.split(' ').collect();
        let [said, what, at] = words[..] else {
            panic!("{answer}");
        };
        assert_eq!(said, kind, "{answer}");
        Told {
            what: what.to_owned(),
            at: Instant::from_nanos(at.parse().expect("a number")),
        }
    }

    /// Returns whether it has said nothing more.
    pub(super) fn is_silent(&self) -> bool {
        self.answers.try_recv().is_err()
    }

    /// Stops it where it stands.
    pub(super) fn pause(&self) {
        stop(Pid::from_child(&self.process));
    }

    /// Lets it go on.
    pub(super) fn resume(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).expect("it is our child");
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn own() -> std::path::PathBuf {
    std::env::current_exe().expect("the test binary")
}

#[test]
fn a_contender_does_what_it_is_told() {
    let Ok(told) = std::env::var(URL) else {
        // In the suite itself there is no server to contend at, and a contender can be started.
        drop(Contender::start("memory:", Duration::from_secs(1)));
        return;
    };
    let (ttl, url) = told.split_once(' ').expect("a ttl and a url");
    let ttl = Duration::from_millis(ttl.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::builder().store_url(url).ttl(ttl).build().await;
        serve(client.expect("the store opens")).await;
    });
    // A task may still read the orders.
    std::process::exit(0);
}

async fn serve(client: Client) {
    let mut orders = orders();
    let mut held: Option<Lease> = None;
    loop {
        tokio::select! {
            order = orders.recv() => match order.as_deref() {
                Some("claim") => {
                    let request = client.request("a").order(WaitOrder::Fair);
                    let request = request.on_outage(OutagePolicy::WaitOut);
                    let lease = request.acquire().await.expect("granted at last");
                    say("granted", lease.token());
                    held = Some(lease);
                }
                Some(_) => {
                    let lease = held.take().expect("it is held");
                    say("released", format!("{:?}", lease.release().await));
                }
                None => return,
            },
            reason = loss(held.as_ref()) => {
                held = None;
                say("lost", format!("{reason:?}"));
            }
        }
    }
}

async fn loss(held: Option<&Lease>) -> leasehold::LossReason {
    match held {
        Some(lease) => lease.lost().await,
        None => std::future::pending().await,
    }
}

fn orders() -> tokio::sync::mpsc::Receiver<String> {
    let (sender, orders) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        for order in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(order).is_err() {
                return;
            }
        }
    });
    orders
}

fn say(kind: &str, what: impl std::fmt::Display) {
    println!("{MARK}{kind} {what} {}", now().as_nanos());
}
