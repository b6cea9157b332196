//! The watchdog's thread: asks the schedule what to do, tells the lost, and lets other tasks do the I/O.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Shared;
use super::leaving::Leaving;
use super::schedule::{BATCHES_IN_FLIGHT, Batch, Departure, Jump, RELEASES_IN_FLIGHT};
use crate::error::{Error, ErrorKind};
use crate::reason::LossReason;
use crate::store::{Lane, Renewed, Store, limit};
use crate::telemetry::{self, Count, Event};
use crate::term::Instant;

/// What the loop tells whoever started it: whether it has a connection.
type Ready = oneshot::Sender<Result<(), Error>>;

/// The thread's whole life.
pub(super) fn run(shared: &Arc<Shared>, store: &Arc<dyn Store>, ready: Ready) {
    // Runs also when the loop panics: then nobody renews, and the holders must know.
    let _obituary = Obituary(shared);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(live(shared, store, ready)),
        Err(source) => {
            let error = Error::new(
                ErrorKind::Unavailable,
                "acquire failed: the watchdog's runtime did not start",
            );
            // If nobody waits any more, nobody needs to know.
            let _ = ready.send(Err(error.with_source(source)));
        }
    }
}

struct Obituary<'a>(&'a Arc<Shared>);

impl Drop for Obituary<'_> {
    fn drop(&mut self) {
        self.0.is_dead.store(true, Ordering::Release);
        let losses = self.0.schedule().close(LossReason::WatchdogDied);
        self.0.tell(losses);
        self.0.tell_if_emptied();
    }
}

async fn live(shared: &Arc<Shared>, store: &Arc<dyn Store>, ready: Ready) {
    match store.on_own_connection(Lane::Watchdog).await {
        Err(error) => {
            let _ = ready.send(Err(error));
        }
        Ok(store) => {
            if ready.send(Ok(())).is_ok() {
                Keeper::new(shared.clone(), store.clone()).keep().await;
            }
            store.close().await;
        }
    }
}

/// The loop and what it has in flight.
struct Keeper {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    batches: JoinSet<()>,
    releases: JoinSet<()>,
}

impl Keeper {
    fn new(shared: Arc<Shared>, store: Arc<dyn Store>) -> Self {
        Self {
            shared,
            store,
            batches: JoinSet::new(),
            releases: JoinSet::new(),
        }
    }

    /// Turns until the client is gone and nothing is left to do for it.
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
                self.shared.reporter.send(Event::Woke { late });
            }
        }
    }

    /// Does what is due. Answers when the next turn is.
    fn turn(&mut self) -> Instant {
        let batch_room = BATCHES_IN_FLIGHT.saturating_sub(self.batches.len());
        let release_room = RELEASES_IN_FLIGHT.saturating_sub(self.releases.len());
        let now = self.shared.clock.now();
        let turn = self.shared.schedule().turn(now, batch_room, release_room);
        self.shared.tell(turn.losses);
        for batch in turn.batches {
            let (shared, store) = (self.shared.clone(), self.store.clone());
            self.batches.spawn(renew(shared, store, batch));
        }
        for departure in turn.releases {
            let (shared, store) = (self.shared.clone(), self.store.clone());
            self.releases.spawn(release(shared, store, departure));
        }
        let batch_room = BATCHES_IN_FLIGHT.saturating_sub(self.batches.len());
        let release_room = RELEASES_IN_FLIGHT.saturating_sub(self.releases.len());
        self.shared.schedule().sleep(batch_room, release_room)
    }

    fn is_done(&self) -> bool {
        self.shared.schedule().is_done() && self.batches.is_empty()
    }
}

/// Sends one batch and takes its outcomes in.
async fn renew(shared: Arc<Shared>, store: Arc<dyn Store>, batch: Batch) {
    let renewing = async { store.renew(&batch.renewals, batch.limit).await };
    let renewed = within(&shared, batch.sent_at, batch.limit, renewing)
        .await
        .unwrap_or_else(|| Renewed::new(Vec::new()));
    let now = shared.clock.now();
    let settled = shared.schedule().settle(&batch, renewed, now);
    let reporter = &shared.reporter;
    if let Some((jump, by)) = settled.step {
        let (count, kind) = match jump {
            Jump::Forward => (Count::JumpForward, "forward"),
            Jump::Backward => (Count::JumpBackward, "backward"),
        };
        reporter.count(count, 1);
        reporter.send(Event::ClockJumped { kind, by });
    }
    let refused = u64::try_from(settled.losses.len()).expect("a batch is short");
    reporter.count(Count::Renewed, settled.renewed);
    reporter.count(Count::RenewalRefused, refused);
    reporter.count(Count::RenewalUnknown, settled.unknown);
    let event = telemetry::RenewalStats {
        size: batch.renewals.len(),
        took: now.since(batch.sent_at),
        unknown: settled.unknown,
        least_left: settled.least_left,
        first_error: settled.first_error,
    };
    shared.tell(settled.losses);
    shared.reporter.send(Event::Renewed(event));
    shared.tell_renewed(settled.wakes);
}

async fn release(shared: Arc<Shared>, store: Arc<dyn Store>, departure: Departure) {
    let leaving = Leaving::of_the_loop(departure);
    let answer = {
        let Departure {
            name,
            holder,
            keep_for,
            limit,
            ..
        } = leaving.departure();
        let sent_at = shared.clock.now();
        let releasing = async { store.release(name, *holder, *keep_for, *limit).await };
        within(&shared, sent_at, *limit, releasing).await
    };
    let now = shared.clock.now();
    // The loop turns after each release that has ended.
    let (ending, _) = leaving.answered(&mut shared.schedule(), answer, now);
    shared.reporter.count(ending.count(), 1);
    shared.tell_if_emptied();
}

/// The answer, unless it takes longer than the store promised, or the store panics: then what was asked is as open as
/// after a lost reply.
async fn within<T>(
    shared: &Shared,
    sent_at: Instant,
    limit: Duration,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    let answer = std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    });
    let given_up_at = sent_at.after(limit::at_most(limit));
    let given_up = shared.clock.sleep_until(given_up_at);
    limit::within(given_up, answer).await.flatten()
}
