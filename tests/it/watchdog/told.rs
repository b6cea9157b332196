//! What is counted of leases that end, in whatever way they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use leasehold::Ending;
use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Eviction;
use leasehold::store::Store;
use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use super::unruly::Unruly;
use super::{LIMIT, alone, client, held, runtime};
use crate::harness::wait::lost;

/// Counts held leases as the gauge is told.
#[derive(Debug, Clone, Default)]
struct Held(Arc<AtomicI64>);

impl GaugeFn for Held {
    fn increment(&self, value: f64) {
        self.0.fetch_add(value as i64, Ordering::SeqCst);
    }
    fn decrement(&self, value: f64) {
        self.0.fetch_sub(value as i64, Ordering::SeqCst);
    }
    fn set(&self, value: f64) {
        self.0.store(value as i64, Ordering::SeqCst);
    }
}

impl Recorder for Held {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match key.name() {
            "leasehold_held_leases" => Gauge::from_arc(Arc::new(self.clone())),
            _ => Gauge::noop(),
        }
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl Held {
    /// Waits until the reporter has come so far.
    async fn reaches(&self, count: i64) {
        let ends_at = Monotonic.now().after(LIMIT);
        while self.0.load(Ordering::SeqCst) != count {
            assert!(
                Monotonic.now() < ends_at,
                "{} are counted as held",
                self.0.load(Ordering::SeqCst)
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[test]
fn every_lease_that_ends_is_counted_out_once() {
    alone(
        "watchdog::told::every_lease_that_ends_is_counted_out_once",
        || {
            let gauge = Held::default();
            metrics::set_global_recorder(gauge.clone()).unwrap();
            runtime().block_on(async {
                let store = Unruly::new();
                let client = client(&store).await;
                let [released, dropped, refused] = [
                    held(&client, "released").await,
                    held(&client, "dropped").await,
                    held(&client, "refused").await,
                ];
                gauge.reaches(3).await;
                assert_eq!(released.release().await, Ending::Released);
                gauge.reaches(2).await;
                drop(dropped);
                gauge.reaches(1).await;
                store
                    .evict(refused.name(), Eviction::Now, LIMIT)
                    .await
                    .unwrap();
                lost(&refused).await;
                gauge.reaches(0).await;
                drop(refused);

                let kept = held(&client, "kept").await;
                let waiting = tokio::spawn({
                    let client = client.clone();
                    async move { client.acquire("kept").await }
                });
                super::renewed(&kept, 1).await;
                assert!(!client.shutdown(Duration::from_millis(50)).await);
                waiting.await.unwrap().unwrap_err();
                gauge.reaches(0).await;
                drop(kept);
                // Nothing is counted twice by what came late.
                assert!(client.shutdown(LIMIT).await);
                gauge.reaches(0).await;
            });
        },
    );
}

#[test]
fn a_loss_that_the_holder_finds_first_is_told_to_all_and_counted() {
    alone(
        "watchdog::told::a_loss_that_the_holder_finds_first_is_told_to_all_and_counted",
        || {
            let gauge = Held::default();
            metrics::set_global_recorder(gauge.clone()).unwrap();
            runtime().block_on(async {
                let store = Unruly::new();
                let client = client(&store).await;
                let [dropped, released] = [held(&client, "a").await, held(&client, "b").await];
                let tokens = [dropped.cancellation_token(), released.cancellation_token()];
                oversleep(&store.manners.clock.is_slow);
                for lease in [&dropped, &released] {
                    // A renewal that was under way may move the deadline once more.
                    while lease.check().is_ok() {
                        let deadline = lease.term().unwrap().deadline();
                        lease.clock().sleep_until(deadline).await;
                    }
                }
                assert!(
                    !tokens.iter().any(|token| token.is_cancelled()),
                    "the watchdog sleeps"
                );
                drop(dropped);
                assert_eq!(released.release().await, Ending::AlreadyLost);
                assert!(tokens.iter().all(|token| token.is_cancelled()));
                gauge.reaches(0).await;
                store.manners.clock.is_slow.store(false, Ordering::SeqCst);
                assert!(client.shutdown(LIMIT).await);
                gauge.reaches(0).await;
            });
        },
    );
}

/// From its next sleep on the watchdog does not wake in time.
fn oversleep(is_slow: &AtomicBool) {
    is_slow.store(true, Ordering::SeqCst);
}
