//! What is counted of leases that end, in whatever way they end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::ReleaseOutcome;
use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Eviction;
use leasehold::store::Store;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};

use super::runtime;
use crate::harness::alone::{alone_as, test_of};
use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, renewed_times, take};
use crate::harness::times::PATIENCE;
use crate::harness::wait::{lost, until};

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
        let ends_at = Monotonic.now().after(PATIENCE);
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

/// Runs this closure of a test, which is its whole body, in a process of its own, which has a recorder.
fn recorded<R: Recorder + Clone + Default + Sync + 'static>(body: impl AsyncFnOnce(R)) {
    alone_as(test_of(&body), || {
        let recorder = R::default();
        metrics::set_global_recorder(recorder.clone()).unwrap();
        runtime().block_on(body(recorder));
    });
}

#[test]
fn every_lease_that_ends_is_counted_out_once() {
    recorded(async |gauge: Held| {
        let store = FaultyStore::new();
        let client = client(&store).await;
        let [released, dropped, refused] = [
            take(&client, "released").await,
            take(&client, "dropped").await,
            take(&client, "refused").await,
        ];
        gauge.reaches(3).await;
        assert_eq!(released.release().await, ReleaseOutcome::Released);
        gauge.reaches(2).await;
        drop(dropped);
        gauge.reaches(1).await;
        store
            .evict(refused.name(), Eviction::Now, PATIENCE)
            .await
            .unwrap();
        lost(&refused).await;
        gauge.reaches(0).await;
        drop(refused);

        let kept = take(&client, "kept").await;
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.acquire("kept").await }
        });
        renewed_times(&kept, 1).await;
        assert!(!client.shutdown(Duration::from_millis(50)).await);
        waiting.await.unwrap().unwrap_err();
        gauge.reaches(0).await;
        drop(kept);
        // Nothing is counted twice by what came late.
        assert!(client.shutdown(PATIENCE).await);
        gauge.reaches(0).await;
    });
}

#[test]
fn a_loss_that_the_holder_finds_first_is_told_to_all_and_counted() {
    recorded(async |gauge: Held| {
        let store = FaultyStore::new();
        let client = client(&store).await;
        let [dropped, released] = [take(&client, "a").await, take(&client, "b").await];
        let tokens = [dropped.cancellation_token(), released.cancellation_token()];
        oversleep(&store.faults.clock.is_slow);
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
        assert_eq!(released.release().await, ReleaseOutcome::AlreadyLost);
        assert!(tokens.iter().all(|token| token.is_cancelled()));
        gauge.reaches(0).await;
        store.faults.clock.is_slow.store(false, Ordering::SeqCst);
        assert!(client.shutdown(PATIENCE).await);
        gauge.reaches(0).await;
    });
}

/// From its next sleep on the watchdog does not wake in time.
fn oversleep(is_slow: &AtomicBool) {
    is_slow.store(true, Ordering::SeqCst);
}

/// A counter that keeps what it is told.
#[derive(Debug, Default)]
struct Total(AtomicU64);

impl CounterFn for Total {
    fn increment(&self, by: u64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }
    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::SeqCst);
    }
}

/// Keeps counters and the gauge of held leases. Panics when it is asked for the counter of dropped events, if told so, and
/// stands still for histograms while it is told so.
#[derive(Debug, Clone, Default)]
struct Ledger {
    held: Held,
    totals: Arc<Mutex<BTreeMap<String, Arc<Total>>>>,
    panics: Arc<AtomicBool>,
    stands_still: Arc<AtomicBool>,
}

impl Ledger {
    /// The counter of this name and the value of its last label.
    fn total(&self, key: &str) -> Arc<Total> {
        let mut totals = self.totals.lock().unwrap();
        totals.entry(key.to_owned()).or_default().clone()
    }

    /// Waits until this counter shows so many, and fails if it ever shows more.
    async fn counts(&self, key: &str, count: u64) {
        let total = self.total(key);
        let is_reached = async || (total.0.load(Ordering::SeqCst) >= count).then_some(());
        until(key, is_reached).await;
        assert_eq!(total.0.load(Ordering::SeqCst), count, "{key}");
    }
}

impl Recorder for Ledger {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let is_dropped = key.name() == "leasehold_events_dropped_total";
        assert!(
            !(is_dropped && self.panics.load(Ordering::SeqCst)),
            "the recorder is broken, as it was told"
        );
        let word = key.labels().last().map_or("", |label| label.value());
        Counter::from_arc(self.total(format!("{} {word}", key.name()).trim_end()))
    }
    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.held.register_gauge(key, metadata)
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        let is_reporter = std::thread::current().name() == Some("leasehold-report");
        while is_reporter && self.stands_still.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Histogram::noop()
    }
}

/// More than the events that wait for the reporter.
const MANY: u64 = 3_000;

async fn many(client: &leasehold::Client) -> Vec<leasehold::Lease> {
    let mut leases = Vec::new();
    for index in 0..MANY {
        let request = client.request(format!("n{index}")).ttl(PATIENCE * 60);
        leases.push(request.acquire().await.unwrap());
    }
    leases
}

#[test]
fn gauge_and_counters_tell_the_truth_after_many_ends_at_once() {
    recorded(async |ledger: Ledger| {
        let client = client(&FaultyStore::new()).await;
        let leases = many(&client).await;
        ledger.held.reaches(MANY as i64).await;
        ledger.stands_still.store(true, Ordering::SeqCst);
        drop(leases);
        let lost = many(&client).await;
        assert!(!client.shutdown(Duration::ZERO).await);
        ledger.stands_still.store(false, Ordering::SeqCst);
        ledger.held.reaches(0).await;
        ledger
            .counts("leasehold_releases_total dropped", MANY)
            .await;
        ledger
            .counts("leasehold_leases_lost_total shutdown", MANY)
            .await;
        drop(lost);
    });
}

#[test]
fn a_recorder_that_panics_for_the_events_that_were_dropped_hides_no_others() {
    recorded(async |ledger: Ledger| {
        let client = client(&FaultyStore::new()).await;
        let leases = many(&client).await;
        ledger.stands_still.store(true, Ordering::SeqCst);
        ledger.panics.store(true, Ordering::SeqCst);
        drop(leases);
        ledger.stands_still.store(false, Ordering::SeqCst);
        ledger
            .counts("leasehold_releases_total dropped", MANY)
            .await;
        ledger.panics.store(false, Ordering::SeqCst);
        let refused = take(&client, "a").await;
        assert_eq!(refused.release().await, ReleaseOutcome::Released);
        let dropped = ledger.total("leasehold_events_dropped_total");
        let is_told = async || (dropped.0.load(Ordering::SeqCst) > 0).then_some(());
        until("the number of dropped events", is_told).await;
    });
}
