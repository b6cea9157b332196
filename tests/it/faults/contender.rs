//! A client in a process of its own, on this machine or on a host of the test's own network. It does what it is told, line by
//! line, or takes turns at a few names until it is killed, and says what it holds.

use std::path::Path;
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::{Client, Lease, OutagePolicy};
use tokio::sync::mpsc::Receiver;

use super::turns::take_turn;
use crate::harness::leases::client_at;
use crate::harness::network::Host;
use crate::harness::relay::{Passing, Relay};
use crate::harness::subprocess::{self, Subprocess};
use crate::harness::wait::{at, now};

const TEST: &str = "faults::contender::a_contender_does_what_it_is_told";

/// A contender that is told what to do, as its parent sees it. Ends on drop.
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
        Self(Subprocess::start(TEST, &task_for("orders", 0, ttl, url)))
    }

    /// The same on this host.
    pub(super) fn start_on(host: &Host, url: &str, ttl: Duration) -> Self {
        let command = host.program(subprocess::own());
        let task = task_for("orders", 0, ttl, url);
        Self(Subprocess::start_by(command, TEST, &task))
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

/// Starts one that takes [turns](take_turn) at this store.
pub(super) fn take_turns(url: &str, ttl: Duration, seed: u64) -> Subprocess {
    Subprocess::start(TEST, &task_for("turns", seed, ttl, url))
}

/// The same at the Postgres server behind this socket and a network that breaks.
pub(super) fn take_turns_behind(socket: &Path, ttl: Duration, seed: u64) -> Subprocess {
    let socket = socket.display().to_string();
    Subprocess::start(TEST, &task_for("storm", seed, ttl, &socket))
}

fn task_for(kind: &str, seed: u64, ttl: Duration, location: &str) -> String {
    format!("{kind} {seed} {} {location}", ttl.as_millis())
}

#[test]
fn a_contender_does_what_it_is_told() {
    let Some(task) = subprocess::task() else {
        // In the suite itself there is no server to contend at, and a contender can be started.
        drop(Contender::start("memory:", Duration::from_secs(1)));
        return;
    };
    let words: Vec<_> = task.splitn(4, ' ').collect();
    let [kind, seed, ttl, location] = words[..] else {
        panic!("{task}");
    };
    let dice = fastrand::Rng::with_seed(seed.parse().expect("a number"));
    let ttl = Duration::from_millis(ttl.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut orders = subprocess::orders();
        match kind {
            "orders" => obey(&client_at(location, ttl).await, orders).await,
            "turns" => tokio::select! {
                () = contend(location, ttl, dice) => {}
                _ = orders.recv() => {}
            },
            _ => tokio::select! {
                () = contend_in_a_storm(Path::new(location), ttl, dice) => {}
                _ = orders.recv() => {}
            },
        }
    });
    // A task may still read the orders.
    std::process::exit(0);
}

async fn contend(url: &str, ttl: Duration, mut dice: fastrand::Rng) {
    let client = client_at(url, ttl).await;
    loop {
        take_turn(&client, &mut dice).await;
    }
}

async fn contend_in_a_storm(socket: &Path, ttl: Duration, mut dice: fastrand::Rng) {
    let relay = Relay::before(socket).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", relay.port());
    tokio::join!(fail(&relay, dice.fork()), contend(&url, ttl, dice));
}

/// Breaks the network now and then, and has it work again.
async fn fail(relay: &Relay, mut dice: fastrand::Rng) {
    let mut rest = async |range| at(now().after(Duration::from_millis(dice.u64(range)))).await;
    for failing in [Passing::All, Passing::Requests, Passing::Nothing]
        .into_iter()
        .cycle()
    {
        rest(500..6_000).await;
        relay.pass(failing);
        rest(50..2_000).await;
        relay.cut();
        relay.pass(Passing::All);
    }
}

/// Does what it is told.
async fn obey(client: &Client, mut orders: Receiver<String>) {
    let mut held: Option<Lease> = None;
    loop {
        tokio::select! {
            order = orders.recv() => match order.as_deref() {
                Some("claim") => {
                    let request = client.request("a");
                    let request = request.on_outage(OutagePolicy::WaitOut);
                    let lease = request.acquire().await.expect("granted at last");
                    say_now("granted", lease.token());
                    held = Some(lease);
                }
                Some(_) => {
                    let lease = held.take().expect("it is held");
                    say_now("released", format!("{:?}", lease.release().await));
                }
                None => return,
            },
            reason = loss(held.as_ref()) => {
                held = None;
                say_now("lost", format!("{reason:?}"));
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

fn say_now(kind: &str, what: impl std::fmt::Display) {
    subprocess::say(format_args!("{kind} {what} {}", now().as_nanos()));
}
