//! What leasehold tells the outside: one function per event, each a metric and a tracing event. The only caller of the
//! `metrics` and `tracing` macros for lease events.
//!
//! The user's subscriber and recorder run inside these calls, and may block. So the watchdog's thread never makes them:
//! it counts, which is an addition and is never dropped, and hands an [`Event`] to a [`Reporter`], whose own thread tells
//! both. A full queue drops the event, which is a line of the log or a sample of a histogram, and counts it.

mod counts;
mod reporter;
mod table;

use std::path::Path;
use std::time::Duration;

use metrics::{counter, histogram};

pub(crate) use self::counts::Count;
use self::counts::Counts;
pub(crate) use self::reporter::Reporter;
use crate::error::Error;
use crate::group::Group;
use crate::reason::LossReason;

/// Something that happened on a thread that must not block.
#[derive(Debug)]
pub(crate) enum Event {
    /// A batch of renewals came back.
    Renewed(RenewalStats),
    /// A lease was lost, `overrun` after its deadline.
    Lost {
        name: String,
        reason: LossReason,
        overrun: Duration,
    },
    /// A guard was dropped without a release, while its lease was held.
    Left { held_for: Duration },
    /// The loop woke so much later than planned.
    Woke { late: Duration },
    /// The server's clock stepped.
    ClockJumped { kind: &'static str, by: Duration },
    /// Code of the user's panicked that was woken by a lease, or by the end of a shutdown.
    WakerPanicked { name: Option<String> },
}

/// How a batch of renewals went.
#[derive(Debug, Default)]
pub(crate) struct RenewalStats {
    pub(crate) size: usize,
    pub(crate) took: Duration,
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
            Self::Left { held_for } => left(group, held_for),
            Self::Woke { late } => histogram!(table::WATCHDOG_LAG.name).record(late),
            Self::ClockJumped { kind, by } => clock_jumped(kind, by),
            Self::WakerPanicked { name } => {
                tracing::error!(lease = name, "code that the watchdog woke panicked");
            }
        }
    }
}

fn renewed(group: Group, batch: &RenewalStats) {
    let group = group.as_str();
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

fn lost(group: Group, name: &str, reason: LossReason, overrun: Duration) {
    let group = group.as_str();
    histogram!(table::LOSS_OVERRUN.name, "group" => group).record(overrun);
    tracing::warn!(
        lease = name,
        group,
        reason = reason.as_str(),
        ?overrun,
        "lease lost"
    );
}

fn clock_jumped(kind: &'static str, by: Duration) {
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
    tracing::debug!(lease = name, group, token, "lease granted");
}

/// A lease ended by its guard while it was held.
pub(crate) fn left(group: Group, held_for: Duration) {
    let group = group.as_str();
    histogram!(table::HOLD_DURATION.name, "group" => group).record(held_for);
}

/// The store refuses us its hints, so waiting clients look again by time only.
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

/// Describes every metric, and tells zeros where the labels are known, so that dashboards see no gaps.
pub(crate) fn describe(group: Group) {
    table::describe();
    Counts::of(group).register();
    for reason in ["stale", "conflict"] {
        counter!(table::FENCE_REFUSALS.name, "reason" => reason).increment(0);
    }
    for name in [table::TOKENS_FALLEN.name, table::LABEL_OVERFLOW.name] {
        counter!(name).increment(0);
    }
}
