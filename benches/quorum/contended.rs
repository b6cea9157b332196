//! Several clients that ask for one free name at once: how long it takes until one of them has it.
//!
//! Of our clients exactly one is granted the name each time, and the others are told who has it; both are checked. A
//! Redlock that gets no majority is tried again until one of them has it, as `LockManager::acquire` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use leasehold::{Attempt, Client};
use rslock::LockManager;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::harness::redis_quorum::RedisQuorum;
use super::yardstick::{case, figure, median, seconds};
use super::{TTL, client, p99, redlock, taken};

const RUNS: usize = 5;
/// How often all of them ask in a run.
const TURNS: usize = 200;
/// The same for the other, whose tries are up to 200 ms apart.
const REDLOCK_TURNS: usize = 20;

pub(crate) async fn measure(contenders: usize) {
    let quorum = RedisQuorum::start(3).await;
    let (mut clients, mut managers) = (Vec::new(), Vec::new());
    for _ in 0..contenders {
        clients.push(client(&quorum).await);
        let manager = redlock(&quorum);
        super::redlock_pair(&manager, "warm").await;
        managers.push(Arc::new(manager));
    }
    let (mut runs, mut others, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let trip = round_trip(&clients[0]).await;
        let mut ours = Vec::new();
        for turn in 0..TURNS {
            ours.push(until_granted(&clients, &format!("ours-{run}-{turn}")).await);
        }
        let mut other = Vec::new();
        for turn in 0..REDLOCK_TURNS {
            other.push(until_locked(&managers, &format!("redlock-{run}-{turn}")).await);
        }
        trips.push(p99(ours.clone()) / trip);
        runs.push((median(ours.clone()), median(other.clone())));
        others.push((p99(ours), p99(other)));
    }
    let name = |what: &str| format!("quorum_{contenders}_contenders_{what}");
    figure(&name("p99_round_trips"), "round trips", &trips);
    case(&name("p50_vs_rslock"), "us", &runs);
    case(&name("p99_vs_rslock"), "us", &others);
}

/// Returns the median microseconds of a claim that no other one meets: one round trip.
async fn round_trip(client: &Client) -> f64 {
    let mut took = Vec::new();
    for _ in 0..TURNS {
        let start = Instant::now();
        let lease = taken(client, "alone").await;
        took.push(seconds(start) * 1e6);
        lease.release().await;
    }
    median(took)
}

/// Returns the microseconds until one of our clients has the name.
async fn until_granted(clients: &[Client], name: &str) -> f64 {
    let (start, held) = (watch::Sender::new(None), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for client in clients {
        let (client, name, held) = (client.clone(), name.to_owned(), held.clone());
        let mut start = start.subscribe();
        tasks.spawn(async move {
            let begun = *start.wait_for(Option::is_some).await.expect("it begins");
            match client.try_acquire(name).await.expect("the store answers") {
                Attempt::Acquired(lease) => {
                    let took = seconds(begun.expect("it has begun")) * 1e6;
                    assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "granted twice");
                    Some((lease, took))
                }
                Attempt::Held(_) => None,
            }
        });
    }
    start.send_replace(Some(Instant::now()));
    let granted: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let [(lease, took)] = <[_; 1]>::try_from(granted).expect("exactly one has it");
    lease.release().await;
    took
}

/// Returns the microseconds until one of the Redlocks has the name. The tries of the others then end.
async fn until_locked(managers: &[Arc<LockManager>], name: &str) -> f64 {
    let start = watch::Sender::new(None);
    let mut tasks = JoinSet::new();
    for manager in managers {
        let (manager, name) = (manager.clone(), name.to_owned());
        let mut start = start.subscribe();
        tasks.spawn(async move {
            let begun = *start.wait_for(Option::is_some).await.expect("it begins");
            let guard = manager
                .acquire(name.as_str(), TTL)
                .await
                .expect("in the end");
            (guard, seconds(begun.expect("it has begun")) * 1e6)
        });
    }
    start.send_replace(Some(Instant::now()));
    let first = tasks.join_next().await.expect("there is one");
    let (guard, took) = first.expect("no panic");
    tasks.shutdown().await;
    guard.release().await;
    took
}
