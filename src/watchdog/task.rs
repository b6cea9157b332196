//! The watchdog's thread: asks the schedule what to do, cancels the holders of lost leases, and lets other
//! tasks do the I/O.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Shared;
use super::schedule::{Batch, ReleaseOutcome};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::{Purpose, Store};
use crate::telemetry;
use crate::term::Instant;

/// Reports to the task that started the loop whether it has a connection.
type Ready = oneshot::Sender<Result<(), Error>>;

/// Runs the thread, from its start to its end.
pub(super) fn run(shared: &Arc<Shared>, ready: Ready) {
    // Runs also when the loop panics: then nothing is renewed, and the holders must be told.
    let _obituary = Obituary(shared);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(live(shared, ready)),
        Err(source) => {
            let what = "acquire failed: the watchdog's runtime did not start";
            let error = Error::new(ErrorKind::Unavailable, what).with_source(source);
            // The receiver was dropped if the start was given up.
            let _ = ready.send(Err(error));
        }
    }
}

struct Obituary<'a>(&'a Arc<Shared>);

impl Drop for Obituary<'_> {
    fn drop(&mut self) {
        self.0.is_dead.store(true, Ordering::Release);
        (self.0).change(|schedule| schedule.close(LossReason::WatchdogDied));
    }
}

async fn live(shared: &Arc<Shared>, ready: Ready) {
    match shared.store.on_own_connection(Purpose::Watchdog).await {
        Err(error) => {
            let _ = ready.send(Err(error));
        }
        Ok(store) => {
            if ready.send(Ok(())).is_ok() {
                let mut keeper = Keeper {
                    shared: shared.clone(),
                    store: store.clone(),
                    batches: JoinSet::new(),
                    releases: JoinSet::new(),
                };
                keeper.keep().await;
            }
            store.close().await;
        }
    }
}

/// The loop, and the requests that it has in flight.
struct Keeper {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    batches: JoinSet<()>,
    releases: JoinSet<ReleaseOutcome>,
}

impl Keeper {
    /// Runs turns until the client was dropped and nothing is left to do.
    async fn keep(&mut self) {
        loop {
            let next = self.turn();
            if self.is_done() {
                return;
            }
            let is_ahead = self.shared.clock.now() < next;
            let slept = tokio::select! {
                biased;
                () = self.shared.clock.sleep_until(next) => true,
                () = self.shared.wake.notified() => false,
                Some(_) = self.releases.join_next() => false,
                Some(_) = self.batches.join_next() => false,
            };
            let late = self.shared.clock.now().since(next);
            if slept && is_ahead && late > Duration::from_millis(1) {
                telemetry::woke(late);
            }
        }
    }

    /// Carries out the work that is due. Returns when the next turn is.
    fn turn(&mut self) -> Instant {
        let now = self.shared.clock.now();
        let shard_of = |name: &Name| self.store.shard(name);
        let work = (self.shared).change(|schedule| schedule.turn(now, shard_of));
        for batch in work.batches {
            let (shared, store) = (self.shared.clone(), self.store.clone());
            self.batches.spawn(renew(shared, store, batch));
        }
        for leaving in work.releases {
            let (shared, store) = (self.shared.clone(), self.store.clone());
            self.releases
                .spawn(async move { shared.release_by(&*store, leaving).await });
        }
        self.shared.schedule.lock().next_wake()
    }

    fn is_done(&self) -> bool {
        let schedule = self.shared.schedule.lock();
        schedule.is_done() && schedule.awaits_no_batch()
    }
}

/// Sends one batch and applies its outcomes, in time or late.
async fn renew(shared: Arc<Shared>, store: Arc<dyn Store>, batch: Batch) {
    let mut renewing = store.renew(&batch.renewals, batch.awaited);
    let limit = batch.sent_at.after(batch.limit);
    let in_time = tokio::select! {
        biased;
        renewed = &mut renewing => Some(renewed),
        () = shared.clock.nap_until(limit) => None,
    };
    let now = shared.clock.now();
    let is_overdue = in_time.is_none();
    let stats = shared.change(|schedule| match in_time {
        Some(renewed) => schedule.settle(&batch, renewed, now),
        None => schedule.overdue(&batch, now),
    });
    shared.sink.renewed(stats);
    if is_overdue {
        let renewed = renewing.await;
        let now = shared.clock.now();
        let stats = shared.change(|schedule| schedule.settle_late(&batch, renewed, now));
        shared.sink.renewed(stats);
    }
}
