//! What leasehold tells the outside: one function per event, each a metric and a tracing event. The only caller of the
//! `metrics` and `tracing` macros for lease events.
//!
//! The user's subscriber and recorder run inside these calls, and may block. So the watchdog's thread never makes them:
//! it hands an [`Event`] to a [`Reporter`], whose own thread does. A full queue drops the event and counts it.

mod table;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::error::{Error, ErrorKind};
use crate::group::Group;

/// Events that wait for the reporter. A hundred batches a second fill it in ten seconds of a blocked log, which is when
/// dropping is right.
const QUEUE: usize = 1_024;

/// Something that happened on a thread that must not block.
#[derive(Debug)]
pub(crate) enum Event {
    /// A batch of renewals came back.
    Renewed(Batch),
    /// A lease was lost, `overrun` after its deadline.
    Lost {
        name: String,
        reason: &'static str,
        overrun: Duration,
    },
    /// A guard was dropped without a release; if the lease was held until then, for so long.
    Dropped { held_for: Option<Duration> },
    /// A release of the watchdog's came back.
    Released { outcome: &'static str },
    /// The loop woke so much later than planned.
    Woke { late: Duration },
    /// The server's clock stepped.
    ClockJumped { kind: &'static str, by: Duration },
    /// Code of the user's panicked that was woken by a lease, or by the end of a shutdown.
    WakerPanicked { name: Option<String> },
}

/// How a batch of renewals went.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) size: usize,
    pub(crate) took: Duration,
    pub(crate) renewed: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    pub(crate) least_left: Option<f64>,
    pub(crate) first_error: Option<Error>,
}

impl Event {
    fn emit(self, group: Group) {
        match self {
            Self::Renewed(batch) => renewed(group, &batch),
            Self::Lost {
                name,
                reason,
                overrun,
            } => lost(group, &name, reason, overrun),
            Self::Dropped { held_for } => {
                held_for.into_iter().for_each(|time| left(group, time));
                released(group, "dropped");
            }
            Self::Released { outcome } => released(group, outcome),
            Self::Woke { late } => histogram!(table::WATCHDOG_LAG.name).record(late),
            Self::ClockJumped { kind, by } => clock_jumped(kind, by),
            Self::WakerPanicked { name } => {
                tracing::error!(lease = name, "code that the watchdog woke panicked");
            }
        }
    }
}

/// Where events go that happen on a thread that must not block.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    queue: SyncSender<Event>,
    dropped: Arc<AtomicU64>,
    group: Group,
}

impl Reporter {
    /// Starts the reporter's thread. It ends when the last handle is gone.
    pub(crate) fn start(group: Group) -> Result<Self, Error> {
        let (queue, events) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let reporter = Self {
            queue,
            dropped: dropped.clone(),
            group,
        };
        let thread = std::thread::Builder::new().name("leasehold-report".into());
        let started = thread.spawn(move || report(&events, &dropped, group));
        started.map_err(|source| {
            Error::new(
                ErrorKind::Unavailable,
                "acquire failed: the reporter's thread did not start",
            )
            .with_source(source)
        })?;
        Ok(reporter)
    }

    /// Under which its events are counted.
    pub(crate) const fn group(&self) -> Group {
        self.group
    }

    /// Hands an event over. Never blocks.
    pub(crate) fn send(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn report(events: &Receiver<Event>, dropped: &AtomicU64, group: Group) {
    for event in events {
        // A subscriber or recorder that panics is the user's; the next event is still reported.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event.emit(group)));
        let missed = dropped.swap(0, Ordering::Relaxed);
        if missed > 0 {
            counter!(table::EVENTS_DROPPED.name).increment(missed);
        }
    }
}

fn renewed(group: Group, batch: &Batch) {
    let group = group.as_str();
    for (outcome, count) in [
        ("renewed", batch.renewed),
        ("refused", batch.refused),
        ("unknown", batch.unknown),
    ] {
        counter!(table::RENEWALS.name, "group" => group, "outcome" => outcome).increment(count);
    }
    histogram!(table::RENEWAL_DURATION.name, "group" => group).record(batch.took);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a batch has a few hundred leases"
    )]
    histogram!(table::WATCHDOG_BATCH_SIZE.name).record(batch.size as f64);
    if let Some(left) = batch.least_left {
        histogram!(table::RENEWAL_MARGIN_RATIO.name, "group" => group).record(left);
    }
    if let Some(error) = &batch.first_error {
        tracing::warn!(
            leases = batch.unknown,
            kind = ?error.kind(),
            error = %format_args!("{error:#}"),
            "renewals got no answer and are tried again"
        );
    }
}

fn lost(group: Group, name: &str, reason: &'static str, overrun: Duration) {
    let group = group.as_str();
    counter!(table::LEASES_LOST.name, "group" => group, "reason" => reason).increment(1);
    histogram!(table::LOSS_OVERRUN.name, "group" => group).record(overrun);
    gauge!(table::HELD_LEASES.name, "group" => group).decrement(1);
    tracing::warn!(lease = name, group, reason, ?overrun, "lease lost");
}

fn clock_jumped(kind: &'static str, by: Duration) {
    counter!(table::CLOCK_JUMPS.name, "kind" => kind).increment(1);
    tracing::error!(kind, ?by, "the clock of the store's server stepped");
}

/// A call to acquire ended.
pub(crate) fn acquire_ended(group: Group, outcome: &'static str, waited: Duration) {
    let group = group.as_str();
    counter!(table::ACQUISITIONS.name, "group" => group, "outcome" => outcome).increment(1);
    histogram!(table::ACQUIRE_WAIT.name, "group" => group, "outcome" => outcome).record(waited);
}

/// A lease was granted.
pub(crate) fn granted(group: Group, name: &str, token: u64) {
    let group = group.as_str();
    gauge!(table::HELD_LEASES.name, "group" => group).increment(1);
    tracing::debug!(lease = name, group, token, "lease granted");
}

/// A guard's release ended.
pub(crate) fn released(group: Group, outcome: &'static str) {
    let group = group.as_str();
    counter!(table::RELEASES.name, "group" => group, "outcome" => outcome).increment(1);
}

/// A lease ended by its guard while it was held.
pub(crate) fn left(group: Group, held_for: Duration) {
    let group = group.as_str();
    gauge!(table::HELD_LEASES.name, "group" => group).decrement(1);
    histogram!(table::HOLD_DURATION.name, "group" => group).record(held_for);
}

/// The store refuses us its hints, so that whoever waits looks again by time only.
pub(crate) fn notices_refused(error: &Error) {
    tracing::warn!(
        kind = ?error.kind(),
        error = %format_args!("{error:#}"),
        "no notices of freed names: waiters look again by time only"
    );
}

/// A grant was refused because its token was not above one seen before.
pub(crate) fn token_fell(name: &str, token: u64, floor: u64) {
    counter!(table::TOKENS_FALLEN.name).increment(1);
    tracing::error!(
        lease = name,
        token,
        floor,
        "a grant was refused: its token fell"
    );
}

/// A fence refused a write.
pub(crate) fn write_refused(name: &str, token: u64, reason: &'static str) {
    counter!(table::FENCE_REFUSALS.name, "reason" => reason).increment(1);
    tracing::warn!(lease = name, token, reason, "a fence refused a write");
}

/// The file of a gate grows on; what it keeps is safe.
pub(crate) fn gate_not_shortened(path: &Path, error: &std::io::Error) {
    tracing::warn!(?path, %error, "the file of a gate could not be shortened");
}

/// A group was named that is one too many.
pub(crate) fn group_folded(word: &str) {
    counter!(table::LABEL_OVERFLOW.name).increment(1);
    tracing::warn!(
        group = word,
        "too many groups: this one is counted as `other`"
    );
}

/// Describes every metric and registers those whose labels are known.
pub(crate) fn describe(group: Group) {
    table::describe();
    register(group.as_str());
}

/// So that dashboards see zeros, not gaps.
fn register(group: &'static str) {
    for outcome in ["renewed", "refused", "unknown"] {
        counter!(table::RENEWALS.name, "group" => group, "outcome" => outcome).increment(0);
    }
    for reason in ["stale", "conflict"] {
        counter!(table::FENCE_REFUSALS.name, "reason" => reason).increment(0);
    }
    for name in [
        table::CLOCK_JUMPS.name,
        table::TOKENS_FALLEN.name,
        table::EVENTS_DROPPED.name,
        table::LABEL_OVERFLOW.name,
    ] {
        counter!(name).increment(0);
    }
    gauge!(table::HELD_LEASES.name, "group" => group).increment(0);
}
