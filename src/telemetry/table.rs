//! Every metric: its kind, name, unit and help, in one place, which the descriptions and all who count share.

use metrics::Unit;

/// One metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    kind: Kind,
    unit: Option<Unit>,
    help: &'static str,
}

#[derive(Debug)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Metric {
    const fn new(kind: Kind, name: &'static str, unit: Option<Unit>, help: &'static str) -> Self {
        Self {
            name,
            kind,
            unit,
            help,
        }
    }

    fn describe(&self) {
        let (name, unit, help) = (self.name.into(), self.unit, self.help.into());
        metrics::with_recorder(|recorder| match self.kind {
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }
}

pub(super) const ACQUISITIONS: Metric = Metric::new(
    Kind::Counter,
    "leasehold_acquisitions_total",
    None,
    "Calls to acquire that ended, by outcome",
);
pub(super) const ACQUIRE_WAIT: Metric = Metric::new(
    Kind::Histogram,
    "leasehold_acquire_wait_seconds",
    Some(Unit::Seconds),
    "From the call to acquire to its end",
);
pub(super) const HELD_LEASES: Metric = Metric::new(
    Kind::Gauge,
    "leasehold_held_leases",
    None,
    "Leases held by this process",
);
pub(super) const HOLD_DURATION: Metric = Metric::new(
    Kind::Histogram,
    "leasehold_hold_duration_seconds",
    Some(Unit::Seconds),
    "How long leases were held",
);
pub(super) const RENEWALS: Metric = Metric::new(
    Kind::Counter,
    "leasehold_renewals_total",
    None,
    "Renewals of leases, by outcome",
);
pub(super) const RENEWAL_DURATION: Metric = Metric::new(
    Kind::Histogram,
    "leasehold_renewal_duration_seconds",
    Some(Unit::Seconds),
    "From the send of a batch to its answer",
);
pub(super) const RENEWAL_MARGIN_RATIO: Metric = Metric::new(
    Kind::Histogram,
    "leasehold_renewal_margin_ratio",
    None,
    "Least share of the ttl that was left when a batch was renewed",
);
pub(super) const LEASES_LOST: Metric = Metric::new(
    Kind::Counter,
    "leasehold_leases_lost_total",
    None,
    "Leases lost while held, by reason",
);
pub(super) const LOSS_OVERRUN: Metric = Metric::new(
    Kind::Histogram,
    "leasehold_loss_overrun_seconds",
    Some(Unit::Seconds),
    "How late after its deadline a holder was told",
);
pub(super) const RELEASES: Metric = Metric::new(
    Kind::Counter,
    "leasehold_releases_total",
    None,
    "Ends of holding, by outcome",
);
pub(super) const WATCHDOG_LAG: Metric = Metric::new(
    Kind::Histogram,
    "leasehold_watchdog_lag_seconds",
    Some(Unit::Seconds),
    "How much later than planned the watchdog woke",
);
pub(super) const WATCHDOG_BATCH_SIZE: Metric = Metric::new(
    Kind::Histogram,
    "leasehold_watchdog_batch_size",
    None,
    "Leases in one batch of renewals",
);
pub(super) const CLOCK_JUMPS: Metric = Metric::new(
    Kind::Counter,
    "leasehold_clock_jumps_total",
    None,
    "Steps seen of the clock of the store's server",
);
pub(super) const TOKENS_FALLEN: Metric = Metric::new(
    Kind::Counter,
    "leasehold_tokens_fallen_total",
    None,
    "Grants refused because their token was not above one seen before",
);
pub(super) const FENCE_REFUSALS: Metric = Metric::new(
    Kind::Counter,
    "leasehold_fence_refusals_total",
    None,
    "Writes refused by a fence, by reason",
);
pub(super) const EVENTS_DROPPED: Metric = Metric::new(
    Kind::Counter,
    "leasehold_events_dropped_total",
    None,
    "Events dropped because the log or the recorder was slow",
);
pub(super) const LABEL_OVERFLOW: Metric = Metric::new(
    Kind::Counter,
    "leasehold_label_overflow_total",
    None,
    "Clients whose group was one too many, and is counted as `other`",
);

const ALL: [&Metric; 17] = [
    &ACQUISITIONS,
    &ACQUIRE_WAIT,
    &HELD_LEASES,
    &HOLD_DURATION,
    &RENEWALS,
    &RENEWAL_DURATION,
    &RENEWAL_MARGIN_RATIO,
    &LEASES_LOST,
    &LOSS_OVERRUN,
    &RELEASES,
    &WATCHDOG_LAG,
    &WATCHDOG_BATCH_SIZE,
    &CLOCK_JUMPS,
    &TOKENS_FALLEN,
    &FENCE_REFUSALS,
    &EVENTS_DROPPED,
    &LABEL_OVERFLOW,
];

/// Describes every metric.
pub(super) fn describe() {
    ALL.into_iter().for_each(Metric::describe);
}
