//! A server that forgets everything while thousands of leases are held on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Lease, LossReason, ReleaseOutcome};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tokio::task::JoinSet;

use crate::harness::alone::alone;
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::{lost, now, until};

const LEASES: u64 = 10_000;
/// Leases that are taken at the same time.
const AT_ONCE: u64 = 100;
/// A third of it is what the test takes; a busy machine has the rest.
const TTL: Duration = Duration::from_secs(6);

/// A number that the reporter counts up.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl CounterFn for Count {
    fn increment(&self, by: u64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }
    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }
}

/// What is counted of leases.
#[derive(Debug, Clone, Default)]
struct Tally {
    lost: Arc<Count>,
    dropped_guards: Arc<Count>,
}

impl Recorder for Tally {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let is_dropped = key.labels().any(|label| label.value() == "dropped");
        let count = match key.name() {
            "leasehold_leases_lost_total" => &self.lost,
            "leasehold_releases_total" if is_dropped => &self.dropped_guards,
            _ => return Counter::noop(),
        };
        Counter::from_arc(count.clone())
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

async fn take_all(client: &Client) -> Vec<Lease> {
    let mut takers = JoinSet::new();
    for taker in 0..AT_ONCE {
        let client = client.clone();
        takers.spawn(async move {
            let mut leases = Vec::new();
            for index in (taker..LEASES).step_by(AT_ONCE as usize) {
                leases.push(client.acquire(format!("n{index}")).await.unwrap());
            }
            leases
        });
    }
    takers.join_all().await.into_iter().flatten().collect()
}

async fn each_lease_is_lost_once(tally: Tally) {
    let mut server = RedisServer::start().await;
    let builder = Client::builder().store_url(server.url()).ttl(TTL);
    let client = builder.build().await.expect("a URL in order");
    let leases = take_all(&client).await;
    let tokens: Vec<_> = leases.iter().map(Lease::cancellation_token).collect();
    let deadlines: Vec<_> = leases
        .iter()
        .map(|lease| lease.term().expect("held").deadline())
        .collect();
    server.restart_empty().await;
    for (lease, deadline) in leases.iter().zip(deadlines) {
        assert_eq!(lost(lease).await, LossReason::Refused, "{}", lease.name());
        assert!(now() < deadline, "told by the deadline, not by a renewal");
    }
    for token in tokens {
        let told = tokio::time::timeout(TTL, token.cancelled()).await;
        told.expect("the token follows the loss");
    }
    for lease in leases {
        assert_eq!(lease.release().await, ReleaseOutcome::AlreadyLost);
    }
    // Nothing was created anew by a renewal.
    assert_eq!(server.keys().await, [""; 0]);

    // The reporter has come to everything before this.
    drop(client.acquire("last").await.unwrap());
    let count = |count: &Count| count.0.load(Ordering::SeqCst);
    until("the last event", async || {
        (count(&tally.dropped_guards) == 1).then_some(())
    })
    .await;
    assert_eq!(count(&tally.lost), LEASES);
}

#[test]
fn a_server_that_restarts_empty_loses_each_of_10000_leases_once() {
    alone(
        "faults::redis::restart::a_server_that_restarts_empty_loses_each_of_10000_leases_once",
        || {
            let tally = Tally::default();
            metrics::set_global_recorder(tally.clone()).unwrap();
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = builder.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(each_lease_is_lost_once(tally));
        },
    );
}
