//! Everything that leasehold shows to the outside: one function per event, each a metric and a tracing event. The only
//! caller of the recorder of metrics, and of the `tracing` macros for lease events.
//!
//! The user's subscriber and recorder run inside these calls, and may block. So the watchdog's thread never makes them:
//! it counts in a [`Sink`], which is an addition and is never dropped, and hands events to the [`reporter`], the thread
//! that calls the subscriber and the recorder. A full queue drops the event, which is a line of the log or a sample of
//! a histogram, and counts it. Once a second the reporter reads the state of all clients and stores of the process into
//! their sinks, and sets every counter and gauge.

mod acquiring;
mod fences;
mod metric;
mod names;
mod reporter;
mod sink;
#[cfg_attr(
    not(feature = "_connection"),
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

use tracing::level_filters::LevelFilter;

pub(crate) use self::acquiring::AcquireTimer;
pub(crate) use self::fences::{count as count_refusal, fence_checked};
pub use self::metric::{Metric, MetricKind, MetricLabel};
use self::reporter::hand_over;
pub(crate) use self::reporter::{client_ended, update, watch};
pub(crate) use self::sink::Sink;
#[cfg(feature = "_connection")]
pub(crate) use self::stores::ConnectionGauge;
use self::stores::whole;
pub use self::survey::Survey;
pub(crate) use self::survey::Surveyed;
pub(crate) use self::table::ALL;
#[cfg(feature = "redis")]
pub(crate) use self::words::AckOutcome;
#[cfg(feature = "_connection")]
pub(crate) use self::words::ConnectionPurpose;
pub(crate) use self::words::{FenceKind, ServerState, StoreCall, Trigger};
use crate::error::Error;
use crate::name::Name;
use crate::reason::LossReason;
use crate::token::Token;

/// The outcome of a batch of renewals.
#[derive(Debug, Default)]
pub struct RenewalStats {
    pub(crate) size: usize,
    pub(crate) took: Duration,
    pub(crate) renewed: usize,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
    pub(crate) least_left: Option<f64>,
    pub(crate) first_error: Option<Error>,
    /// The renewed leases, if the log [shows](tells_each_renewal) them.
    pub(crate) named: Vec<LeaseLabel>,
    /// The direction of a step of the server's clock, as metrics call it, and its size: `forward` if leases end earlier
    /// than was believed, `backward` if they end later.
    pub step: Option<(&'static str, Duration)>,
}

impl RenewalStats {
    /// A lease with this ttl was renewed with this much time left until its deadline.
    pub(crate) fn note_renewed(&mut self, ttl: Duration, left: Duration) {
        let left = left.as_secs_f64() / ttl.as_secs_f64();
        self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        self.renewed += 1;
    }
}

/// The lease that an event is about.
#[derive(Debug)]
pub(crate) struct LeaseLabel {
    pub(crate) name: Name,
    pub(crate) token: Token,
}

impl LeaseLabel {
    /// The fields of a log line.
    fn fields(&self) -> (&str, u64) {
        (self.name.as_str(), self.token.get())
    }
}

/// Returns whether the log shows each renewal of each lease. Reads one number, and asks no subscriber: so the
/// watchdog's thread may ask.
pub(crate) fn tells_each_renewal() -> bool {
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// The events of threads that must not block: each is counted here, and logged by the reporter's thread.
impl Sink {
    /// A batch of renewals came back.
    pub(crate) fn renewed(&'static self, batch: RenewalStats) {
        for (word, times) in [
            ("renewed", batch.renewed),
            ("refused", batch.refused),
            ("unknown", batch.unknown),
        ] {
            self.add(&table::RENEWALS, &[word], times as u64);
        }
        if let Some((kind, _)) = batch.step {
            Self::of_process().add(&table::CLOCK_JUMPS, &[kind], 1);
        }
        hand_over(move || self.tell_renewed(&batch));
    }

    /// A lease was lost, `overrun` after its deadline.
    pub(crate) fn lost(&'static self, lease: LeaseLabel, reason: LossReason, overrun: Duration) {
        let reason = reason.as_str();
        self.add(&table::LEASES_LOST, &[reason], 1);
        hand_over(move || {
            self.record(&table::LOSS_OVERRUN, &[], overrun);
            let ((name, token), group) = (lease.fields(), self.group());
            tracing::warn!(name, token, group, reason, ?overrun, "lease lost");
        });
    }

    /// A guard was dropped without a release.
    pub(crate) fn dropped(&'static self, lease: LeaseLabel, was_held: bool, held_for: Duration) {
        let (outcome, end) = if was_held {
            ("dropped", "dropped")
        } else {
            ("already_lost", "lost")
        };
        self.add(&table::RELEASES, &[outcome], 1);
        hand_over(move || self.left(&lease, end, held_for));
    }
}

/// The events of the callers' threads.
impl Sink {
    /// A call to acquire asks the store.
    pub(crate) fn attempted(&self, trigger: Trigger) {
        self.add(&table::ACQUIRE_ATTEMPTS, &[trigger.as_str()], 1);
    }

    /// The store answered that another holder has the name.
    pub(crate) fn waits(&self, name: &Name, remaining: Option<Duration>) {
        let (name, group) = (name.as_str(), self.group());
        tracing::debug!(
            name,
            group,
            ?remaining,
            "acquire waits: another holder has the name"
        );
    }

    /// A lease was granted.
    pub(crate) fn granted(&self, name: &Name, token: Token) {
        let (name, token, group) = (name.as_str(), token.get(), self.group());
        tracing::debug!(name, token, group, "lease granted");
    }

    /// The guard of a lease ended.
    pub(crate) fn left(&self, lease: &LeaseLabel, end: &'static str, held_for: Duration) {
        let ((name, token), group) = (lease.fields(), self.group());
        self.record(&table::HOLD_DURATION, &[end], held_for);
        let held_ms = milliseconds(held_for);
        tracing::debug!(name, token, group, end, held_ms, "lease ended");
    }

    /// A release was answered, or given up.
    pub(crate) fn released(&self, lease: &LeaseLabel, outcome: &'static str) {
        self.add(&table::RELEASES, &[outcome], 1);
        let ((name, token), group) = (lease.fields(), self.group());
        tracing::debug!(name, token, group, outcome, "release ended");
    }

    fn tell_renewed(&self, batch: &RenewalStats) {
        let group = self.group();
        if let Some((kind, by)) = batch.step {
            tracing::error!(kind, ?by, "the clock of the store's server stepped");
        }
        self.record(&table::RENEWAL_DURATION, &[], batch.took);
        Self::of_process().record(&table::WATCHDOG_BATCH_SIZE, &[], whole(batch.size));
        if let Some(left) = batch.least_left {
            self.record(&table::RENEWAL_MARGIN_RATIO, &[], left);
        }
        for lease in &batch.named {
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
}

/// The loop of a watchdog woke this much later than planned.
pub(crate) fn woke(late: Duration) {
    hand_over(move || Sink::of_process().record(&table::WATCHDOG_LAG, &[], late));
}

/// User code panicked when a lease, or the end of a shutdown, woke it.
pub(crate) fn waker_panicked(name: Option<String>) {
    hand_over(move || tracing::error!(name, "code that the watchdog woke panicked"));
}

/// The store refuses us its notices, so waiting clients poll by time only.
pub(crate) fn notices_refused(error: &Error) {
    tracing::warn!(
        kind = ?error.kind(),
        error = %format_args!("{error:#}"),
        "no notices of freed names: waiters poll by time only"
    );
}

/// A grant was refused because its token was not above one seen before.
pub(crate) fn token_fell(name: &str, token: u64, floor: u64) {
    Sink::of_process().add(&table::TOKENS_FALLEN, &[], 1);
    tracing::error!(name, token, floor, "a grant was refused: its token fell");
}

/// A client read a name that two nodes of its store give to different holders.
#[cfg(feature = "zookeeper")]
pub(crate) fn two_holders(name: &str, first: &str, second: &str) {
    Sink::of_process().add(&table::TWO_HOLDERS, &[], 1);
    tracing::error!(name, first, second, "a name has two holders");
}

/// A fence refused a write.
pub(crate) fn write_refused(group: Option<&str>, name: &str, token: u64, reason: &'static str) {
    tracing::warn!(name, token, group, reason, "a fence refused a write");
}

/// A new group exceeded the limit.
pub(crate) fn group_folded(word: &str) {
    Sink::of_process().add(&table::LABEL_OVERFLOW, &[], 1);
    tracing::warn!(
        group = word,
        "too many groups: this one is counted as `other`"
    );
}

/// Describes every metric, and sets zeros where the labels are known, so that dashboards see no gaps.
pub(crate) fn describe(sink: &Sink) {
    table::describe();
    reporter::tell_build();
    Sink::of_process().tell();
    sink.tell();
}

/// A duration in a log line, as a number that log stores can sort and add up.
fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Runs user code, and catches its panic.
fn quietly(tell: impl FnOnce()) {
    // The recorder or subscriber belongs to the user; the panic hook has reported the panic.
    let _ = catch_unwind(AssertUnwindSafe(tell));
}
