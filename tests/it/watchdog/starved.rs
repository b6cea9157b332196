//! A user who blocks everything that is theirs: workers, runtime, log, metrics, wakers.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::Lease;
use leasehold::clock::{Clock, Instant, Monotonic};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::runtime;
use crate::harness::alone::alone;
use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::leases::{client, take};
use crate::harness::times::{PATIENCE, TTL};

/// Far more than a cancellation takes on a machine full of other tests, far less than for ever. How late it
/// really is, the benches measure.
const SOON: Duration = Duration::from_millis(500);

/// Blocks every worker of this runtime until it is dropped.
struct Blocked {
    _gates: Vec<SyncSender<()>>,
}

impl Blocked {
    fn all_workers(runtime: &Runtime) -> Self {
        let (begun, has_begun) = sync_channel(0);
        let block = |_| {
            let (sender, gate): (_, Receiver<()>) = sync_channel(0);
            let begun = begun.clone();
            runtime.spawn(async move {
                begun.send(()).unwrap();
                // Ends with an error when the sender is dropped.
                let _ = gate.recv();
            });
            sender
        };
        let _gates = (0..runtime.metrics().num_workers()).map(block).collect();
        for _ in 0..runtime.metrics().num_workers() {
            has_begun.recv().unwrap();
        }
        Self { _gates }
    }
}

/// Lets every renewal hang from now on.
fn hang(store: &FaultyStore) {
    (store.faults).plan_always(Call::Renew, Fault::Hang);
}

/// Waits on this thread, without any runtime, until each of these holders was told, and answers how late after its
/// deadline the latest was.
fn told_late_by(leases: &[Lease]) -> Duration {
    let deadline = |lease: &Lease| lease.term().expect("held").deadline();
    let waited: Vec<_> = leases
        .iter()
        .map(|lease| (deadline(lease), lease.cancellation_token()))
        .collect();
    let lateness = |(deadline, token): &(Instant, CancellationToken)| {
        while !token.is_cancelled() {
            std::thread::park_timeout(Duration::from_micros(100));
            assert!(
                Monotonic.now() < deadline.after(PATIENCE),
                "told within {PATIENCE:?}"
            );
        }
        Monotonic.now().since(*deadline)
    };
    // In the order of their deadlines, so that none waits for its turn to be looked at.
    let mut waited = waited;
    waited.sort_by_key(|(deadline, _)| *deadline);
    waited.iter().map(lateness).max().expect("some leases")
}

fn park_for(time: Duration) {
    let ends_at = Monotonic.now().after(time);
    while Monotonic.now() < ends_at {
        std::thread::park_timeout(ends_at.since(Monotonic.now()));
    }
}

#[test]
fn a_holder_is_told_in_time_while_every_worker_is_blocked() {
    let runtime = runtime();
    let store = FaultyStore::new();
    let lease = runtime.block_on(async { take(&client(&store).await, "a").await });
    let _blocked = Blocked::all_workers(&runtime);
    hang(&store);
    let late = told_late_by(std::slice::from_ref(&lease));
    assert!(late < SOON, "{late:?}");
    lease.check().unwrap_err();
}

#[test]
fn a_lease_is_renewed_while_every_worker_is_blocked() {
    let runtime = runtime();
    let store = FaultyStore::new();
    let lease = runtime.block_on(async { take(&client(&store).await, "a").await });
    let _blocked = Blocked::all_workers(&runtime);
    park_for(TTL * 2);
    lease.check().unwrap();
}

#[test]
fn a_lease_is_renewed_after_the_runtime_that_acquired_it_is_gone() {
    let store = FaultyStore::new();
    let lease = runtime().block_on(async { take(&client(&store).await, "a").await });
    park_for(TTL * 2);
    lease.check().unwrap();
    hang(&store);
    let late = told_late_by(&[lease]);
    assert!(late < SOON, "{late:?}");
}

/// Takes leases, lets the renewals of all hang, and sees each told in time.
fn ten_holders_are_told_in_time() {
    let runtime = runtime();
    let store = FaultyStore::new();
    let leases = runtime.block_on(async {
        let client = client(&store).await;
        let mut leases = Vec::new();
        for index in 0..10 {
            leases.push(take(&client, &format!("n{index}")).await);
            tokio::time::sleep(TTL / 60).await;
        }
        leases
    });
    hang(&store);
    let late = told_late_by(&leases);
    assert!(late < SOON, "{late:?}");
}

/// A subscriber that does this for each warning.
struct Log(fn());

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        (self.0)();
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn block() {
    loop {
        std::thread::park();
    }
}

fn log_to(log: fn()) {
    tracing::subscriber::set_global_default(Log(log)).unwrap();
}

#[test]
fn a_log_that_blocks_delays_no_cancellation() {
    alone(|| {
        log_to(block);
        ten_holders_are_told_in_time();
    });
}

#[test]
fn a_log_that_panics_stops_no_cancellation() {
    alone(|| {
        log_to(|| panic!("the log is full"));
        ten_holders_are_told_in_time();
    });
}

/// A recorder that blocks every thread but the user's.
struct Metrics;

impl Metrics {
    fn block() {
        if std::thread::current().name() == Some("leasehold-report") {
            block();
        }
    }
}

impl Recorder for Metrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Self::block();
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Self::block();
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Self::block();
        Histogram::noop()
    }
}

#[test]
fn a_metrics_recorder_that_blocks_delays_no_cancellation() {
    alone(|| {
        metrics::set_global_recorder(Metrics).unwrap();
        ten_holders_are_told_in_time();
    });
}

/// A waker that panics, and says that it was woken.
struct Bomb(Mutex<Option<SyncSender<()>>>);

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
        panic!("the waker is broken, as it was told");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_holder_from_being_told() {
    let runtime = runtime();
    let store = FaultyStore::new();
    let client = runtime.block_on(client(&store));
    let leases = runtime.block_on(async { [take(&client, "a").await, take(&client, "b").await] });
    let (armed, woken) = sync_channel(0);
    let bomb = Waker::from(Arc::new(Bomb(Mutex::new(Some(armed)))));
    let mut lost = pin!(leases[0].lost());
    assert!(matches!(
        lost.as_mut().poll(&mut Context::from_waker(&bomb)),
        Poll::Pending
    ));
    let others = [
        leases[0].cancellation_token(),
        leases[1].cancellation_token(),
    ];
    hang(&store);
    let late = told_late_by(&leases);
    assert!(late < SOON, "{late:?}");
    assert!(others.iter().all(|token| token.is_cancelled()));
    woken.recv_timeout(PATIENCE).unwrap_err();
    // The watchdog lives on.
    store.faults.heal(Call::Renew);
    runtime.block_on(take(&client, "c")).check().unwrap();
}
