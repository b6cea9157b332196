//! Every metric: the only source of the descriptions, the zero series, the buckets, the page in the docs and
//! the tests.

use super::metric::{Metric, MetricKind, MetricLabel};
use super::words::{AckOutcome, ConnectionPurpose, FenceKind, ServerState, StoreCall, Trigger};
use crate::error::ErrorKind;
use crate::reason::LossReason;

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

/// The ends of a call to acquire: it found another holder and did not wait (held), its limit ran out while another
/// holder had the name, its caller dropped the future, trying again does not help (refused), the store gave no answer
/// (failed).
const ACQUIRE_ENDS: [&str; 6] = [
    "acquired",
    "held",
    "timed_out",
    "cancelled",
    "refused",
    "failed",
];

/// The ends of a job under `leasehold run`.
const RUN_ENDS: [&str; 7] = [
    "success",
    "failure",
    "signal",
    "lost",
    "time_limit",
    "held",
    "store",
];

/// Defines a constant for each row, and the list of them all. A row has the kind of the metric, its name, its labels
/// with their values, the buckets of a histogram, and the help. Labels without values here have the user's or the
/// store's.
macro_rules! table {
    (@values) => { &[] };
    (@values $values:expr) => { &$values };
    (@buckets) => { &[] };
    (@buckets $buckets:expr) => { &$buckets };
    ($(
        $section:ident {
            $($metric:ident: $kind:ident $name:literal [$($label:ident $(= $values:expr)?),*] $(in $buckets:ident)?
                $help:literal;)+
        }
    )+) => {
        $($(
            pub(super) const $metric: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                unit: Metric::unit_of($name),
                help: $help,
                labels: &[$(MetricLabel {
                    name: stringify!($label),
                    values: table!(@values $($values)?),
                }),*],
                buckets: table!(@buckets $($buckets)?),
                is_of_tool: matches!(stringify!($section).as_bytes(), b"tool"),
                index: MetricIndex::$metric as usize,
            };
        )+)+

        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "named as the constants are")]
        enum MetricIndex { $($($metric,)+)+ }

        /// All of them: those of the library, then those of the tool.
        pub(crate) static ALL: &[Metric] = &[$($($metric,)+)+];
    };
}

table! {
library {
    ACQUISITIONS: Counter "leasehold_acquisitions_total" [group, outcome = ACQUIRE_ENDS]
        "Calls to acquire that ended, by outcome";
    ACQUIRE_ATTEMPTS: Counter "leasehold_acquire_attempts_total" [group, trigger = Trigger::WORDS]
        "Requests that calls to acquire sent to the store, by what caused them";
    ACQUIRE_WAIT: Histogram "leasehold_acquire_wait_seconds" [group, outcome = ACQUIRE_ENDS] in HOLDS
        "From the call to acquire to its end, waiting included";
    WAITERS: Gauge "leasehold_waiters" [group]
        "Calls to acquire that wait now, for another holder or for the store";
    HELD_LEASES: Gauge "leasehold_held_leases" [group]
        "Leases held by this process";
    AT_RISK_LEASES: Gauge "leasehold_at_risk_leases" [group]
        "Held leases that were not renewed for two thirds of their ttl";
    SOONEST_DEADLINE: Gauge "leasehold_soonest_deadline_timestamp_seconds" [group]
        "The first deadline among the held leases, as unix time; NaN when none is held";
    HOLD_DURATION: Histogram "leasehold_hold_duration_seconds" [group, end = ["released", "lost", "dropped"]] in HOLDS
        "From the grant of a lease to the end of its guard, by how the hold ended";
    RENEWALS: Counter "leasehold_renewals_total" [group, outcome = ["renewed", "refused", "unknown"]]
        "Renewals of leases, by outcome; one batch renews many";
    RENEWAL_DURATION: Histogram "leasehold_renewal_duration_seconds" [group] in ROUND_TRIPS
        "From the send of a batch of renewals to its answer";
    RENEWAL_MARGIN_RATIO: Histogram "leasehold_renewal_margin_ratio" [group] in SHARES
        "The least share of the ttl that was left in a batch when it was renewed";
    CONSECUTIVE_RENEWAL_FAILURES: Gauge "leasehold_consecutive_renewal_failures" [group]
        "Renewals in a row that got no answer, of the held lease with the most";
    LEASES_LOST: Counter "leasehold_leases_lost_total" [group, reason = *LossReason::COUNTED]
        "Leases lost while held, by reason";
    LOSS_OVERRUN: Histogram "leasehold_loss_overrun_seconds" [group] in OVERRUNS
        "How late after its deadline a holder was told of the loss";
    RELEASES: Counter "leasehold_releases_total" [group, outcome = ["released", "already_lost", "unknown", "dropped"]]
        "Guards of leases that ended, each once: by a release, by its outcome, or dropped while held";
    WATCHDOG_LAG: Histogram "leasehold_watchdog_lag_seconds" [] in ROUND_TRIPS
        "How much later than planned the watchdog woke";
    WATCHDOG_OVERDUE: Gauge "leasehold_watchdog_overdue_seconds" []
        "How long ago the watchdog should have woken; 0 while it sleeps as planned";
    WATCHDOG_BATCH_SIZE: Histogram "leasehold_watchdog_batch_size" [] in BATCHES
        "Leases in one batch of renewals";
    WATCHDOG_BACKLOG: Gauge "leasehold_watchdog_backlog" []
        "Renewals that are due and were not sent";
    CLOCK_JUMPS: Counter "leasehold_clock_jumps_total" [kind = ["forward", "backward"]]
        "Steps seen of the clock of the store's server";
    TOKENS_FALLEN: Counter "leasehold_tokens_fallen_total" []
        "Grants refused because their token was not above one seen before";
    TWO_HOLDERS: Counter "leasehold_two_holders_total" []
        "Readings of a name that nodes in ZooKeeper give to two holders at once; the log says which name";
    FENCE_CHECKS: Counter "leasehold_fence_checks_total" [fence = FenceKind::WORDS, outcome = ["admitted", "stale", "conflict", "failed"]]
        "Passes checked at guarded storage, by outcome";
    FENCE_CHECK_DURATION: Histogram "leasehold_fence_check_duration_seconds" [fence = FenceKind::WORDS] in ROUND_TRIPS
        "What the check of a pass costs the writer";
    STORE_REQUEST_DURATION: Histogram "leasehold_store_request_duration_seconds" [store, op = StoreCall::WORDS] in ROUND_TRIPS
        "One call to the store, from its begin to its answer or failure";
    STORE_ERRORS: Counter "leasehold_store_errors_total" [store, op = StoreCall::WORDS, kind = ErrorKind::WORDS]
        "Calls to the store that failed, by the kind of their error";
    STORE_CONNECTED: Gauge "leasehold_store_connected" [store, purpose = ConnectionPurpose::WORDS]
        "Whether the connections of this kind to the store's server are up: 0 if one is down";
    STORE_RECONNECTS: Counter "leasehold_store_reconnects_total" [store, purpose = ConnectionPurpose::WORDS]
        "Connections to the store's server that were made anew";
    STORE_MEMBERS: Gauge "leasehold_store_members" [store, state = ServerState::WORDS]
        "Servers of the store at the last reading, by whether they take part";
    REPLICA_ACKS: Counter "leasehold_replica_acks_total" [store, outcome = AckOutcome::WORDS]
        "Grants and batches of renewals that waited for replicas (`acknowledged_by`), by whether enough of them had it in time";
    QUORUM_ROUNDS: Histogram "leasehold_quorum_rounds" [store] in ROUNDS
        "Rounds of requests to all members that one claim to a quorum of servers took";
    QUORUM_TAKEN_BACK: Counter "leasehold_quorum_taken_back_total" [store]
        "Tokens that brought no grant and were taken back from the members of a quorum that had taken them";
    QUORUM_REPAIRS: Counter "leasehold_quorum_repairs_total" [store]
        "Leases put back at a member of a quorum that lacked them while a majority renewed them";
    NOTICES: Counter "leasehold_notices_total" [store, outcome = ["delivered", "unwanted", "missed"]]
        "Notices of freed names and of turns, by what became of them; missed: the subscription was down, or its queue was full (ZooKeeper: the latter alone)";
    LEASE_HELD: Gauge "leasehold_lease_held" [group, name]
        "Whether this process holds the lease of this name; only with `ClientBuilder::names_in_metrics`";
    LEASE_DEADLINE: Gauge "leasehold_lease_deadline_timestamp_seconds" [group, name]
        "The deadline of the lease of this name, as unix time; NaN while it is not held";
    EVENTS_DROPPED: Counter "leasehold_events_dropped_total" []
        "Log lines and samples of histograms that were dropped because the log or the recorder was slow";
    LABEL_OVERFLOW: Counter "leasehold_label_overflow_total" []
        "Groups and names beyond their limit: such a group is counted as `other`, such a name has no series";
    BUILD_INFO: Gauge "leasehold_build_info" [version, features]
        "Always 1; the labels tell the version and the stores that were compiled in";
}
tool {
    RUN_IN_PROGRESS: Gauge "leasehold_run_in_progress" [group, name]
        "Whether the job of `leasehold run` runs now";
    RUN_OUTAGE: Gauge "leasehold_run_outage" [group, name]
        "Whether a run that waits for its lease has not reached its store for 5 s";
    RUN_EXITS: Counter "leasehold_run_exits_total" [group, name, reason = RUN_ENDS]
        "Jobs of `leasehold run` that ended, by why";
    RUN_DURATION: Histogram "leasehold_run_duration_seconds" [group, name] in HOLDS
        "How long jobs of `leasehold run` took, each repetition of `--again` by itself";
    RUN_LAST_SUCCESS: Gauge "leasehold_run_last_success_timestamp_seconds" [group, name]
        "When the job last ended well, as unix time";
    STORE_LEASES: Gauge "leasehold_store_leases" [store]
        "Leases that have a holder in the store, of all clients: no kept names";
    STORE_WAITERS: Gauge "leasehold_store_waiters" [store]
        "Clients that wait in turn, in the queues of the store";
    STORE_OLDEST_LEASE: Gauge "leasehold_store_oldest_lease_timestamp_seconds" [store]
        "When the lease that is held for longest was granted, as unix time; NaN when none is held";
    STORE_CLOCK_OFFSET: Gauge "leasehold_store_clock_offset_seconds" [store]
        "How far the clock of the store's server is ahead of this machine's";
    STORE_HAZARDS: Gauge "leasehold_store_hazards" [store]
        "What in the set-up of the store weakens the promises, in number";
    STORE_KEEP_OUT: Gauge "leasehold_store_keep_out_seconds" [store]
        "How long until the last server of the store that keeps out takes claims again; 0 if none keeps out";
}
}

/// Describes the metrics of the library to the recorder.
pub(super) fn describe() {
    let own = ALL.iter().filter(|metric| !metric.is_of_tool);
    own.for_each(Metric::describe);
}
