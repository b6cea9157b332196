//! A client in a process of its own, on this machine or on a host of the test's own network, told line by line what to do.

use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::{Client, Lease, OutagePolicy, WaitOrder};

use crate::harness::leases::client_at;
use crate::harness::network::Host;
use crate::harness::subprocess::{self, Subprocess};
use crate::harness::wait::now;

const TEST: &str = "faults::zookeeper::contender::a_contender_does_what_it_is_told";

/// A contender, as its parent sees it. Ends on drop.
#[derive(Debug)]
pub(super) struct Contender(Subprocess);

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
        Self(Subprocess::start(TEST, &task(url, ttl)))
    }

    /// The same on this host.
    pub(super) fn start_on(host: &Host, url: &str, ttl: Duration) -> Self {
        let command = host.program(subprocess::own());
        Self(Subprocess::start_by(command, TEST, &task(url, ttl)))
    }

    /// Has it claim the name `a` and wait for its turn.
    pub(super) fn claim(&mut self) {
        self.0.order("claim");
    }

    /// Has it release.
    pub(super) fn release(&mut self) {
        self.0.order("release");
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
        let answer = self.0.answer();
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
        self.0.answered().is_none()
    }

    /// Stops it where it stands.
    pub(super) fn pause(&self) {
        self.0.pause();
    }

    /// Lets it go on.
    pub(super) fn resume(&self) {
        self.0.resume();
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        self.0.kill();
    }
}

fn task(url: &str, ttl: Duration) -> String {
    format!("{} {url}", ttl.as_millis())
}

#[test]
fn a_contender_does_what_it_is_told() {
    let Some(task) = subprocess::task() else {
        // In the suite itself there is no server to contend at, and a contender can be started.
        drop(Contender::start("memory:", Duration::from_secs(1)));
        return;
    };
    let (ttl, url) = task.split_once(' ').expect("a ttl and a url");
    let ttl = Duration::from_millis(ttl.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        serve(client_at(url, ttl).await).await;
    });
    // A task may still read the orders.
    std::process::exit(0);
}

async fn serve(client: Client) {
    let mut orders = subprocess::orders();
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

fn say(kind: &str, what: impl std::fmt::Display) {
    subprocess::say(format_args!("{kind} {what} {}", now().as_nanos()));
}
