//! Each metric, and the test that makes it move.

use leasehold::metrics::table;

use crate::harness::tree::root;

/// In the order of the table.
const MOVED: [(&str, &str); 50] = [
    ("acquisitions_total", ENDS_OF_A_CALL),
    ("acquire_attempts_total", ATTEMPTS),
    ("acquire_wait_seconds", ENDS_OF_A_CALL),
    ("waiters", ENDS_OF_A_CALL),
    ("held_leases", LATE_EXPORTER),
    ("at_risk_leases", OUTAGE),
    ("soonest_deadline_timestamp_seconds", LATE_EXPORTER),
    ("hold_duration_seconds", ENDS_OF_A_GUARD),
    ("renewals_total", OUTAGE),
    ("renewal_duration_seconds", OUTAGE),
    ("renewal_margin_ratio", OUTAGE),
    ("consecutive_renewal_failures", OUTAGE),
    ("leases_lost_total", ENDS_OF_A_GUARD),
    ("loss_overrun_seconds", ENDS_OF_A_GUARD),
    ("releases_total", ENDS_OF_A_GUARD),
    ("watchdog_lag_seconds", OVERSLEPT),
    ("watchdog_overdue_seconds", OVERSLEPT),
    ("watchdog_batch_size", OUTAGE),
    (
        "watchdog_backlog",
        "watchdog::seen::renewals_that_cannot_be_sent_are_seen_as_a_backlog",
    ),
    ("clock_jumps_total", BACK_IN_TIME),
    ("tokens_fallen_total", BACK_IN_TIME),
    (
        "two_holders_total",
        "metrics::servers::a_name_with_two_holders_in_zookeeper_is_counted",
    ),
    // And each kind of fence has a test of its own there.
    ("fence_checks_total", CHECKS),
    ("fence_check_duration_seconds", CHECKS),
    (
        "store_request_duration_seconds",
        "metrics::leases::calls_to_a_store_are_timed_by_what_they_do",
    ),
    ("store_errors_total", OUTAGE),
    // And those of Postgres and ZooKeeper in `metrics::connections`.
    ("store_connected", OUTAGE),
    ("store_reconnects_total", OUTAGE),
    ("store_members", OUTAGE),
    (
        "replica_acks_total",
        "metrics::servers::grants_and_renewals_are_counted_by_whether_replicas_have_them",
    ),
    ("quorum_rounds", QUORUM),
    ("quorum_taken_back_total", QUORUM),
    ("quorum_repairs_total", QUORUM),
    ("notices_total", ATTEMPTS),
    ("lease_held", NAMES),
    ("lease_deadline_timestamp_seconds", NAMES),
    (
        "events_dropped_total",
        "watchdog::counted::a_recorder_that_panics_for_the_events_that_were_dropped_hides_no_others",
    ),
    ("label_overflow_total", NAMES),
    (
        "build_info",
        "metrics::text::promtool_has_no_complaint_about_the_exporters_text",
    ),
    (
        "run_in_progress",
        "tool::export::the_pages_of_a_job_are_there_while_it_runs_and_only_for_get",
    ),
    (
        "run_outage",
        "tool::on_redis::outages::a_store_that_dies_while_a_run_waits_is_said_and_so_is_its_return",
    ),
    ("run_exits_total", JOB_FILE),
    ("run_duration_seconds", JOB_FILE),
    ("run_last_success_timestamp_seconds", JOB_FILE),
    ("store_leases", WHOLE_STORE),
    ("store_waiters", WHOLE_STORE),
    ("store_oldest_lease_timestamp_seconds", WHOLE_STORE),
    ("store_clock_offset_seconds", WHOLE_STORE),
    ("store_hazards", WHOLE_STORE),
    (
        "store_keep_out_seconds",
        "tool::on_quorum::the_exporter_counts_the_members_and_tells_how_long_one_keeps_out",
    ),
];

const ENDS_OF_A_CALL: &str = "metrics::leases::each_end_of_a_call_to_acquire_is_counted_once";
const ATTEMPTS: &str =
    "metrics::leases::attempts_tell_what_caused_them_and_notices_what_became_of_them";
const LATE_EXPORTER: &str =
    "metrics::leases::an_exporter_that_comes_after_two_clients_shows_the_leases_of_both";
const OUTAGE: &str =
    "metrics::servers::an_outage_of_the_server_is_seen_from_its_first_failed_renewal_to_its_end";
const ENDS_OF_A_GUARD: &str = "metrics::leases::each_end_of_a_guard_is_counted_once";
const QUORUM: &str = "metrics::quorum::rounds_tries_that_were_taken_back_and_repairs_are_counted";
const OVERSLEPT: &str =
    "watchdog::seen::a_watchdog_that_oversleeps_is_seen_while_it_sleeps_and_afterwards";
const BACK_IN_TIME: &str = "watchdog::seen::a_store_that_went_back_in_time_is_counted";
const CHECKS: &str = "metrics::fences::each_outcome_of_a_check_is_counted_and_timed";
const NAMES: &str = "metrics::leases::names_have_series_up_to_the_limit_and_keep_them";
const JOB_FILE: &str =
    "tool::export::the_metrics_file_tells_how_each_run_ended_and_remembers_the_last_success";
const WHOLE_STORE: &str = "tool::export::a_store_is_exported_as_a_whole_and_left_as_it_was";

#[test]
fn every_metric_is_moved_by_a_test() {
    let home = root().join("tests/it");
    for (metric, (name, test)) in table().iter().zip(MOVED) {
        assert_eq!(metric.name, format!("leasehold_{name}"));
        let (file, test) = test.rsplit_once("::").unwrap();
        let path = home.join(file.replace("::", "/")).with_extension("rs");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains(&format!("fn {test}(")),
            "{file} has no {test}"
        );
        assert!(text.contains(metric.name), "{file} does not name {name}");
    }
    assert_eq!(table().len(), MOVED.len());
}
