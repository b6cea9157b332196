//! Every metric, in one place: the source of the descriptions, the zero series, the buckets, the page in the docs and
//! the tests.

use super::metric::{Metric, MetricLabel};
use super::words::{
    AckOutcome, AcquireOutcome, CheckOutcome, ErrorLabel, FenceKind, HoldEnd, LOSS_REASONS,
    LaneUse, NoticeOutcome, Standing, StoreCall, Trigger,
};

/// From half a millisecond, which is a fast round trip, to the longest limit of a request.
const ROUND_TRIPS: [f64; 14] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];
/// From a hand-over to the longest ttl, a day.
const HOLDS: [f64; 14] = [
    0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 21_600.0, 43_200.0,
    86_400.0,
];
/// A renewal at a third of the ttl leaves a little under 0.66 of it.
const SHARES: [f64; 13] = [
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.66, 0.7, 0.8, 0.9, 1.0,
];
/// Up to the most leases of one batch.
const BATCHES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
/// One, unless others claim the name at the same moment.
const ROUNDS: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0];
/// Zero is on time.
const OVERRUNS: [f64; 11] = [
    0.0, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

const GROUP: MetricLabel = MetricLabel::new("group", &[]);
const NAME: MetricLabel = MetricLabel::new("name", &[]);
const STORE: MetricLabel = MetricLabel::new("store", &[]);
const CALL: MetricLabel = MetricLabel::new("op", &StoreCall::WORDS);
const LANE: MetricLabel = MetricLabel::new("lane", &LaneUse::WORDS);
const FENCE: MetricLabel = MetricLabel::new("fence", &FenceKind::WORDS);

const fn outcome(values: &'static [&'static str]) -> MetricLabel {
    MetricLabel::new("outcome", values)
}

pub(super) const ACQUISITIONS: Metric = Metric::counter(
    "leasehold_acquisitions_total",
    "Calls to acquire that ended, by outcome",
)
.by(&[GROUP, outcome(&AcquireOutcome::WORDS)]);
pub(super) const ACQUIRE_ATTEMPTS: Metric = Metric::counter(
    "leasehold_acquire_attempts_total",
    "Requests that calls to acquire sent to the store, by what caused them",
)
.by(&[GROUP, MetricLabel::new("trigger", &Trigger::WORDS)]);
pub(super) const ACQUIRE_WAIT: Metric = Metric::histogram(
    "leasehold_acquire_wait_seconds",
    "From the call to acquire to its end, waiting included",
    &HOLDS,
)
.in_seconds()
.by(&[GROUP, outcome(&AcquireOutcome::WORDS)]);
pub(super) const WAITERS: Metric = Metric::gauge(
    "leasehold_waiters",
    "Calls to acquire that wait now, for another holder or for the store",
)
.by(&[GROUP]);
pub(super) const HELD_LEASES: Metric =
    Metric::gauge("leasehold_held_leases", "Leases held by this process").by(&[GROUP]);
pub(super) const AT_RISK_LEASES: Metric = Metric::gauge(
    "leasehold_at_risk_leases",
    "Held leases that were not renewed for two thirds of their ttl",
)
.by(&[GROUP]);
pub(super) const SOONEST_DEADLINE: Metric = Metric::gauge(
    "leasehold_soonest_deadline_timestamp_seconds",
    "The first deadline among the held leases, as unix time; NaN when none is held",
)
.in_seconds()
.by(&[GROUP]);
pub(super) const HOLD_DURATION: Metric = Metric::histogram(
    "leasehold_hold_duration_seconds",
    "From the grant of a lease to the end of its guard, by how the hold ended",
    &HOLDS,
)
.in_seconds()
.by(&[GROUP, MetricLabel::new("end", &HoldEnd::WORDS)]);
pub(super) const RENEWALS: Metric = Metric::counter(
    "leasehold_renewals_total",
    "Renewals of leases, by outcome; one batch renews many",
)
.by(&[GROUP, outcome(&["renewed", "refused", "unknown"])]);
pub(super) const RENEWAL_DURATION: Metric = Metric::histogram(
    "leasehold_renewal_duration_seconds",
    "From the send of a batch of renewals to its answer",
    &ROUND_TRIPS,
)
.in_seconds()
.by(&[GROUP]);
pub(super) const RENEWAL_MARGIN_RATIO: Metric = Metric::histogram(
    "leasehold_renewal_margin_ratio",
    "The least share of the ttl that was left in a batch when it was renewed",
    &SHARES,
)
.by(&[GROUP]);
pub(super) const CONSECUTIVE_RENEWAL_FAILURES: Metric = Metric::gauge(
    "leasehold_consecutive_renewal_failures",
    "Renewals in a row that got no answer, of the held lease with the most",
)
.by(&[GROUP]);
pub(super) const LEASES_LOST: Metric = Metric::counter(
    "leasehold_leases_lost_total",
    "Leases lost while held, by reason",
)
.by(&[GROUP, MetricLabel::new("reason", &LOSS_REASONS)]);
pub(super) const LOSS_OVERRUN: Metric = Metric::histogram(
    "leasehold_loss_overrun_seconds",
    "How late after its deadline a holder was told of the loss",
    &OVERRUNS,
)
.in_seconds()
.by(&[GROUP]);
pub(super) const RELEASES: Metric = Metric::counter(
    "leasehold_releases_total",
    "Guards of leases that ended, each once: by a release, by its outcome, or dropped while held",
)
.by(&[
    GROUP,
    outcome(&["released", "already_lost", "unknown", "dropped"]),
]);
pub(super) const WATCHDOG_LAG: Metric = Metric::histogram(
    "leasehold_watchdog_lag_seconds",
    "How much later than planned the watchdog woke",
    &ROUND_TRIPS,
)
.in_seconds();
pub(super) const WATCHDOG_OVERDUE: Metric = Metric::gauge(
    "leasehold_watchdog_overdue_seconds",
    "How long ago the watchdog should have woken; 0 while it sleeps as planned",
)
.in_seconds();
pub(super) const WATCHDOG_BATCH_SIZE: Metric = Metric::histogram(
    "leasehold_watchdog_batch_size",
    "Leases in one batch of renewals",
    &BATCHES,
);
pub(super) const WATCHDOG_BACKLOG: Metric = Metric::gauge(
    "leasehold_watchdog_backlog",
    "Renewals that are due and were not sent",
);
pub(super) const CLOCK_JUMPS: Metric = Metric::counter(
    "leasehold_clock_jumps_total",
    "Steps seen of the clock of the store's server",
)
.by(&[MetricLabel::new("kind", &["forward", "backward"])]);
pub(super) const TOKENS_FALLEN: Metric = Metric::counter(
    "leasehold_tokens_fallen_total",
    "Grants refused because their token was not above one seen before",
);
pub(super) const FENCE_CHECKS: Metric = Metric::counter(
    "leasehold_fence_checks_total",
    "Passes checked at guarded storage, by outcome",
)
.by(&[FENCE, outcome(&CheckOutcome::WORDS)]);
pub(super) const FENCE_CHECK_DURATION: Metric = Metric::histogram(
    "leasehold_fence_check_duration_seconds",
    "What the check of a pass costs the writer",
    &ROUND_TRIPS,
)
.in_seconds()
.by(&[FENCE]);
pub(super) const STORE_REQUEST_DURATION: Metric = Metric::histogram(
    "leasehold_store_request_duration_seconds",
    "One call to the store, from its begin to its answer or failure",
    &ROUND_TRIPS,
)
.in_seconds()
.by(&[STORE, CALL]);
pub(super) const STORE_ERRORS: Metric = Metric::counter(
    "leasehold_store_errors_total",
    "Calls to the store that failed, by the kind of their error",
)
.by(&[STORE, CALL, MetricLabel::new("kind", &ErrorLabel::WORDS)]);
pub(super) const STORE_CONNECTED: Metric = Metric::gauge(
    "leasehold_store_connected",
    "Whether the connections of this kind to the store's server are up: 0 if one is down",
)
.by(&[STORE, LANE]);
pub(super) const STORE_RECONNECTS: Metric = Metric::counter(
    "leasehold_store_reconnects_total",
    "Connections to the store's server that were made anew",
)
.by(&[STORE, LANE]);
pub(super) const STORE_MEMBERS: Metric = Metric::gauge(
    "leasehold_store_members",
    "Servers of the store when they were last looked at, by whether they take part",
)
.by(&[STORE, MetricLabel::new("state", &Standing::WORDS)]);
pub(super) const REPLICA_ACKS: Metric = Metric::counter(
    "leasehold_replica_acks_total",
    "Grants and batches of renewals that waited for replicas (`acknowledged_by`), by whether enough of them had it in time",
)
.by(&[STORE, outcome(&AckOutcome::WORDS)]);
pub(super) const QUORUM_ROUNDS: Metric = Metric::histogram(
    "leasehold_quorum_rounds",
    "Rounds of requests to all members that one claim to a quorum of servers took",
    &ROUNDS,
)
.by(&[STORE]);
pub(super) const QUORUM_TAKEN_BACK: Metric = Metric::counter(
    "leasehold_quorum_taken_back_total",
    "Tokens that brought no grant and were taken back from the members of a quorum that had taken them",
)
.by(&[STORE]);
pub(super) const QUORUM_REPAIRS: Metric = Metric::counter(
    "leasehold_quorum_repairs_total",
    "Leases put back at a member of a quorum that lacked them while a majority renewed them",
)
.by(&[STORE]);
pub(super) const NOTICES: Metric = Metric::counter(
    "leasehold_notices_total",
    "Notices of freed names and of turns, by what became of them; missed: the subscription was down",
)
.by(&[STORE, outcome(&NoticeOutcome::WORDS)]);
pub(super) const LEASE_HELD: Metric = Metric::gauge(
    "leasehold_lease_held",
    "Whether this process holds the lease of this name; only with `ClientBuilder::names_in_metrics`",
)
.by(&[GROUP, NAME]);
pub(super) const LEASE_DEADLINE: Metric = Metric::gauge(
    "leasehold_lease_deadline_timestamp_seconds",
    "The deadline of the lease of this name, as unix time; NaN while it is not held",
)
.in_seconds()
.by(&[GROUP, NAME]);
pub(super) const EVENTS_DROPPED: Metric = Metric::counter(
    "leasehold_events_dropped_total",
    "Log lines and samples of histograms that were dropped because the log or the recorder was slow",
);
pub(super) const LABEL_OVERFLOW: Metric = Metric::counter(
    "leasehold_label_overflow_total",
    "Groups and names beyond their limit: such a group is counted as `other`, such a name has no series",
);
pub(super) const BUILD_INFO: Metric = Metric::gauge(
    "leasehold_build_info",
    "Always 1; the labels tell the version and the stores that were compiled in",
)
.by(&[
    MetricLabel::new("version", &[]),
    MetricLabel::new("features", &[]),
]);

const RUN_IN_PROGRESS: Metric = Metric::gauge(
    "leasehold_run_in_progress",
    "Whether the job of `leasehold run` runs now",
)
.by(&[GROUP, NAME])
.of_tool();
const RUN_OUTAGE: Metric = Metric::gauge(
    "leasehold_run_outage",
    "Whether a run that waits for its lease has not reached its store for 5 s",
)
.by(&[GROUP, NAME])
.of_tool();
const RUN_EXITS: Metric = Metric::counter(
    "leasehold_run_exits_total",
    "Jobs of `leasehold run` that ended, by why",
)
.by(&[
    GROUP,
    NAME,
    MetricLabel::new(
        "reason",
        &[
            "success",
            "failure",
            "signal",
            "lost",
            "time_limit",
            "held",
            "store",
        ],
    ),
])
.of_tool();
const RUN_DURATION: Metric = Metric::histogram(
    "leasehold_run_duration_seconds",
    "How long jobs of `leasehold run` took",
    &HOLDS,
)
.in_seconds()
.by(&[GROUP, NAME])
.of_tool();
const RUN_LAST_SUCCESS: Metric = Metric::gauge(
    "leasehold_run_last_success_timestamp_seconds",
    "When the job last ended well, as unix time",
)
.in_seconds()
.by(&[GROUP, NAME])
.of_tool();
const STORE_LEASES: Metric = Metric::gauge(
    "leasehold_store_leases",
    "Leases in the store, of all clients",
)
.by(&[STORE])
.of_tool();
const STORE_WAITERS: Metric = Metric::gauge(
    "leasehold_store_waiters",
    "Clients in the queues of the store",
)
.by(&[STORE])
.of_tool();
const STORE_OLDEST_LEASE: Metric = Metric::gauge(
    "leasehold_store_oldest_lease_timestamp_seconds",
    "When the lease that is held for longest was granted, as unix time; NaN when none is held",
)
.in_seconds()
.by(&[STORE])
.of_tool();
const STORE_CLOCK_OFFSET: Metric = Metric::gauge(
    "leasehold_store_clock_offset_seconds",
    "How far the clock of the store's server is ahead of this machine's",
)
.in_seconds()
.by(&[STORE])
.of_tool();
const STORE_HAZARDS: Metric = Metric::gauge(
    "leasehold_store_hazards",
    "What in the set-up of the store weakens the promises, in number",
)
.by(&[STORE])
.of_tool();

const STORE_KEEP_OUT: Metric = Metric::gauge(
    "leasehold_store_keep_out_seconds",
    "How long until the last server of the store that keeps out takes claims again; 0 if none keeps out",
)
.in_seconds()
.by(&[STORE])
.of_tool();

/// All of them: those of the library, then those of the tool.
pub(crate) static ALL: [Metric; 49] = [
    ACQUISITIONS,
    ACQUIRE_ATTEMPTS,
    ACQUIRE_WAIT,
    WAITERS,
    HELD_LEASES,
    AT_RISK_LEASES,
    SOONEST_DEADLINE,
    HOLD_DURATION,
    RENEWALS,
    RENEWAL_DURATION,
    RENEWAL_MARGIN_RATIO,
    CONSECUTIVE_RENEWAL_FAILURES,
    LEASES_LOST,
    LOSS_OVERRUN,
    RELEASES,
    WATCHDOG_LAG,
    WATCHDOG_OVERDUE,
    WATCHDOG_BATCH_SIZE,
    WATCHDOG_BACKLOG,
    CLOCK_JUMPS,
    TOKENS_FALLEN,
    FENCE_CHECKS,
    FENCE_CHECK_DURATION,
    STORE_REQUEST_DURATION,
    STORE_ERRORS,
    STORE_CONNECTED,
    STORE_RECONNECTS,
    STORE_MEMBERS,
    REPLICA_ACKS,
    QUORUM_ROUNDS,
    QUORUM_TAKEN_BACK,
    QUORUM_REPAIRS,
    NOTICES,
    LEASE_HELD,
    LEASE_DEADLINE,
    EVENTS_DROPPED,
    LABEL_OVERFLOW,
    BUILD_INFO,
    RUN_IN_PROGRESS,
    RUN_OUTAGE,
    RUN_EXITS,
    RUN_DURATION,
    RUN_LAST_SUCCESS,
    STORE_LEASES,
    STORE_WAITERS,
    STORE_OLDEST_LEASE,
    STORE_CLOCK_OFFSET,
    STORE_HAZARDS,
    STORE_KEEP_OUT,
];

/// Describes the metrics of the library to the recorder.
pub(super) fn describe() {
    let own = ALL.iter().filter(|metric| !metric.is_of_tool);
    own.for_each(Metric::describe);
}
