//! How late a holder is told: from the instant for which the loop is armed, 5 ms before the deadline, to when the waker
//! of a task that waits for the loss runs.

use std::future::Future;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::internals::schedule::EARLY;
use leasehold::store::memory::Memory;
use leasehold::{Client, Lease};
use tokio::runtime::Runtime;

use super::held;
use super::stores::Gated;
use super::yardstick::figure;

const LEASES: usize = 500;
const RUNS: usize = 3;
const TTL: Duration = Duration::from_secs(2);

/// Notes when it was woken.
#[derive(Debug, Default)]
struct Woken(OnceLock<Instant>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Only the first wake-up counts.
        let _ = self.0.set(Monotonic.now());
    }
}

pub(crate) fn measure() {
    let (mut half, mut most) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let late = lateness(Blocking::Asleep);
        half.push(percentile(&late, 50));
        most.push(percentile(&late, 99));
    }
    figure("cancel_late_p50_ms", "ms", &half);
    figure("cancel_late_p99_ms", "ms", &most);
    let busy = (0..RUNS).map(|_| percentile(&lateness(Blocking::Spinning), 99));
    figure(
        "cancel_late_p99_ms_while_workers_spin",
        "ms",
        &busy.collect::<Vec<_>>(),
    );
}

/// How the workers of the user's runtime are blocked.
#[derive(Clone, Copy)]
enum Blocking {
    Asleep,
    Spinning,
}

/// Measures milliseconds for each of some leases whose renewals hang while every worker of the user's runtime is
/// blocked.
fn lateness(blocking: Blocking) -> Vec<f64> {
    let runtime = Runtime::new().expect("a runtime");
    let (store, gate) = Gated::new(Arc::new(Memory::new()));
    let leases = runtime.block_on(async {
        let builder = Client::builder().store(store).ttl(TTL);
        let client = builder.build().await.expect("valid");
        let mut leases = Vec::new();
        for index in 0..LEASES {
            leases.push(held(&client, &format!("n{index}")).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        leases
    });
    gate.send(false).expect("the store listens");
    let _released_on_drop = block(&runtime, blocking);
    let late = leases.iter().map(wait).collect::<Vec<_>>();
    let ends_at = Monotonic.now().after(TTL * 2);
    while late.iter().any(|(woken, _)| woken.0.get().is_none()) {
        assert!(Monotonic.now() < ends_at, "every holder is told");
        std::thread::sleep(Duration::from_millis(20));
    }
    late.iter()
        .map(|(woken, armed)| woken.0.get().expect("woken").since(*armed).as_secs_f64() * 1e3)
        .collect()
}

/// Waits for the loss of this lease without a thread.
fn wait(lease: &Lease) -> (Arc<Woken>, Instant) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut lost = Box::pin(lease.cancellation_token().cancelled_owned());
    assert!(matches!(
        lost.as_mut().poll(&mut Context::from_waker(&waker)),
        Poll::Pending
    ));
    std::mem::forget(lost);
    (woken, lease.term().expect("held").deadline().before(EARLY))
}

/// Blocks every worker until the answer is dropped.
fn block(runtime: &Runtime, blocking: Blocking) -> Vec<std::sync::mpsc::SyncSender<()>> {
    let block = |_| {
        let (sender, gate) = sync_channel(0);
        runtime.spawn(async move {
            match blocking {
                // Ends with an error when the sender is dropped.
                Blocking::Asleep => drop(gate.recv()),
                Blocking::Spinning => {
                    while gate.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                        std::hint::spin_loop();
                    }
                }
            }
        });
        sender
    };
    (0..runtime.metrics().num_workers()).map(block).collect()
}

fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}
