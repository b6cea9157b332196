//! Everything that leasehold shows to the outside: one function per event, each a metric and a tracing event. The only
//! caller of the `metrics` and `tracing` macros for lease events.
//!
//! The user's subscriber and recorder run inside these calls, and may block. So the watchdog's thread never makes them:
//! it [counts](counts), which is an addition and is never dropped, and hands events to the [`reporter`], the thread
//! that calls the subscriber and the recorder. A full queue drops the event, which is a line of the log or a sample of
//! a histogram, and counts it. Once a second the reporter sets all totals, and the gauges, which it reads from all
//! clients and stores of the process.

mod acquiring;
mod counts;
mod fences;
mod metric;
mod names;
mod reporter;
#[cfg_attr(
    not(any(feature = "postgres", feature = "redis", feature = "zookeeper")),
    expect(
        dead_code,
        reason = "only a store on a server has connections to count"
    )
)]
mod stores;
mod survey;
mod table;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use metrics::histogram;
use tracing::level_filters::LevelFilter;

pub(crate) use self::acquiring::AcquireTimer;
use self::counts::Counts;
pub(crate) use self::fences::{FenceCheck, count as count_refusal};
pub use self::metric::{Metric, MetricKind, MetricLabel};
pub(crate) use self::names::allow_names;
use self::reporter::hand_over;
pub(crate) use self::reporter::{Reporter, update, watch};
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(crate) use self::stores::ConnectionGauge;
pub(crate) use self::stores::StoreCounts;
use self::stores::whole;
#[cfg_attr(
    not(feature = "internals"),
    expect(unreachable_pub, reason = "the feature `internals` re-exports it")
)]
pub use self::survey::Survey;
pub(crate) use self::survey::Surveyed;
pub(crate) use self::table::ALL;
#[cfg(feature = "redis")]
pub(crate) use self::words::AckOutcome;
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(crate) use self::words::LaneUse;
pub(crate) use self::words::{
    AcquireOutcome, CheckOutcome, FenceKind, HoldEnd, NoticeOutcome, Standing, StoreCall, Trigger,
};
use crate::error::Error;
use crate::group::Group;
use crate::name::Name;
use crate::reason::LossReason;
use crate::token::Token;

/// The outcome of a batch of renewals.
#[derive(Debug, Default)]
pub(crate) struct RenewalStats {
    pub(crate) size: usize,
    pub(crate) took: Duration,
    pub(crate) answered: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    pub(crate) least_left: Option<f64>,
    pub(crate) first_error: Option<Error>,
    /// Those that were renewed, if the log wants to [know](tells_each_renewal).
    pub(crate) renewed: Vec<LeaseLabel>,
}

/// The lease that an event is about.
#[derive(Debug)]
pub(crate) struct LeaseLabel {
    name: Name,
    /// None before the grant.
    token: Option<Token>,
}

impl LeaseLabel {
    pub(crate) const fn new(name: Name, token: Option<Token>) -> Self {
        Self { name, token }
    }

    /// The fields of a log line.
    fn fields(&self) -> (&str, Option<u64>) {
        (self.name.as_str(), self.token.map(Token::get))
    }
}

/// Returns whether the log shows each renewal of each lease. Reads one number, and asks no subscriber: so the
/// watchdog's thread may ask.
pub(crate) fn tells_each_renewal() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// The events of threads that must not block: each is counted, and told by the reporter's thread.
impl Reporter {
    /// A batch of renewals came back.
    pub(crate) fn renewed(&self, batch: RenewalStats) {
        for (word, times) in [
            ("renewed", batch.answered),
            ("refused", batch.refused),
            ("unknown", batch.unknown),
        ] {
            self.counts.add(&table::RENEWALS, &[word], times);
        }
        let group = self.group.as_str();
        hand_over(move || tell_renewed(group, &batch));
    }

    /// A lease was lost, `overrun` after its deadline.
    pub(crate) fn lost(&self, lease: LeaseLabel, reason: LossReason, overrun: Duration) {
        let (group, reason) = (self.group.as_str(), reason.as_str());
        self.counts.add(&table::LEASES_LOST, &[reason], 1);
        hand_over(move || {
            histogram!(table::LOSS_OVERRUN.name, "group" => group).record(overrun);
            let (name, token) = lease.fields();
            tracing::warn!(name, token, group, reason, ?overrun, "lease lost");
        });
    }

    /// A guard was dropped without a release.
    pub(crate) fn dropped(&self, lease: LeaseLabel, was_held: bool, held_for: Duration) {
        let (outcome, end) = if was_held {
            ("dropped", HoldEnd::Dropped)
        } else {
            ("already_lost", HoldEnd::Lost)
        };
        self.counts.add(&table::RELEASES, &[outcome], 1);
        let group = self.group;
        hand_over(move || left(group, &lease, end, held_for));
    }

    /// The loop woke this much later than planned.
    pub(crate) fn woke(&self, late: Duration) {
        hand_over(move || histogram!(table::WATCHDOG_LAG.name).record(late));
    }

    /// The server's clock stepped, `forward` or `backward`.
    pub(crate) fn clock_jumped(&self, kind: &'static str, by: Duration) {
        Counts::of_process().add(&table::CLOCK_JUMPS, &[kind], 1);
        hand_over(move || {
            tracing::error!(kind, ?by, "the clock of the store's server stepped");
        });
    }

    /// Code of the user's panicked that was woken by a lease, or by the end of a shutdown.
    pub(crate) fn waker_panicked(&self, name: Option<String>) {
        hand_over(move || tracing::error!(name, "code that the watchdog woke panicked"));
    }

    /// A release was answered, or given up.
    pub(crate) fn released(&self, lease: &LeaseLabel, outcome: &'static str) {
        self.counts.add(&table::RELEASES, &[outcome], 1);
        let ((name, token), group) = (lease.fields(), self.group.as_str());
        tracing::debug!(name, token, group, outcome, "release ended");
    }
}

fn tell_renewed(group: &'static str, batch: &RenewalStats) {
    histogram!(table::RENEWAL_DURATION.name, "group" => group).record(batch.took);
    histogram!(table::WATCHDOG_BATCH_SIZE.name).record(whole(batch.size));
    if let Some(left) = batch.least_left {
        histogram!(table::RENEWAL_MARGIN_RATIO.name, "group" => group).record(left);
    }
    for lease in &batch.renewed {
        let (name, token) = lease.fields();
        tracing::debug!(name, token, group, "lease renewed");
    }
    tracing::debug!(
        group,
        leases = batch.size,
        unknown = batch.unknown,
        took = ?batch.took,
        "batch of renewals answered"
    );
    if let Some(error) = &batch.first_error {
        tracing::warn!(
            group,
            leases = batch.unknown,
            kind = ?error.kind(),
            error = %format_args!("{error:#}"),
            "renewals got no answer and are tried again"
        );
    }
}

/// A lease was granted.
pub(crate) fn granted(group: Group, name: &str, token: u64) {
    let group = group.as_str();
    tracing::debug!(name, token, group, "lease granted");
}

/// The guard of a lease ended.
pub(crate) fn left(group: Group, lease: &LeaseLabel, end: HoldEnd, held_for: Duration) {
    let (group, end) = (group.as_str(), end.as_str());
    histogram!(table::HOLD_DURATION.name, "group" => group, "end" => end).record(held_for);
    let (name, token) = lease.fields();
    tracing::debug!(name, token, group, end, ?held_for, "lease ended");
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
    Counts::of_process().add(&table::TOKENS_FALLEN, &[], 1);
    tracing::error!(name, token, floor, "a grant was refused: its token fell");
}

/// A name was looked at that two nodes of its store give to different holders.
#[cfg(feature = "zookeeper")]
pub(crate) fn two_holders(name: &str, first: &str, second: &str) {
    Counts::of_process().add(&table::TWO_HOLDERS, &[], 1);
    tracing::error!(name, first, second, "a name has two holders");
}

/// A fence refused a write.
pub(crate) fn write_refused(group: Option<&str>, name: &str, token: u64, reason: &'static str) {
    tracing::warn!(name, token, group, reason, "a fence refused a write");
}

/// A group was named that is one too many.
pub(crate) fn group_folded(word: &str) {
    Counts::of_process().add(&table::LABEL_OVERFLOW, &[], 1);
    tracing::warn!(
        group = word,
        "too many groups: this one is counted as `other`"
    );
}

/// Describes every metric, and sets zeros where the labels are known, so that dashboards see no gaps.
pub(crate) fn describe(group: Group) {
    table::describe();
    reporter::tell_build();
    Counts::of_process().tell();
    Counts::of_group(group).tell();
    survey::register(group);
}

/// Runs code of the user's, whatever that code does.
fn quietly(tell: impl FnOnce()) {
    // A recorder or subscriber that panics is the user's, and has told of it.
    let _ = catch_unwind(AssertUnwindSafe(tell));
}
