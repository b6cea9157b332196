//! Each rule of the functions holds. That each bug which is planted in them is seen is among the long tests.

use leasehold::BoxFuture;
use leasehold::store::postgres::Setup;

use super::rules::{self, Pair, Verdict};
use crate::harness::postgres_server::{Database, PostgresServer};

pub(crate) type Scenario = for<'a> fn(&'a Pair) -> BoxFuture<'a, Verdict>;

macro_rules! scenarios {
    ($($scenario:ident: [$($bug:expr),* $(,)?]),* $(,)?) => {
        &[$((
            stringify!($scenario),
            (|pair| Box::pin(rules::$scenario(pair))) as Scenario,
            &[$($bug),*],
        )),*]
    };
}

/// What stands in the functions, and what is put there instead.
pub(crate) type Bug = (&'static str, &'static str);

pub(crate) const SCENARIOS: &[(&str, Scenario, &[Bug])] = scenarios![
    time_is_not_that_of_the_transactions_begin: [("clock_timestamp()", "now()")],
    the_clock_is_read_after_the_lock_was_waited_for: [
        ("  -- Rule 2.\n  v_now := clock_timestamp();", "  v_now := statement_timestamp();"),
    ],
    a_grant_has_its_full_ttl_though_it_waited: [
        ("ends_at = clock_timestamp() + v_ttl,\n        info = p_info\n      -- Rule 4", "ends_at = excluded.ends_at,\n        info = p_info\n      -- Rule 4"),
    ],
    a_release_sees_who_joined_while_it_waited: [
        (
            "AND NOT l.has_queue\n  RETURNING 'released'",
            "AND NOT EXISTS (SELECT FROM leasehold.queue q WHERE q.name = p_name)\n  RETURNING 'released'",
        ),
        ("SET has_queue = true", "SET has_queue = false"),
    ],
    a_client_that_joins_sees_that_the_name_was_freed: [
        ("v_is_live := v_row.state <> 4 AND v_row.ends_at > v_now;", "v_is_live := true;"),
    ],
    a_client_that_leaves_takes_its_locks_in_the_common_order: [
        (
            "  tell := false;\n  -- Rule 6.",
            "  tell := false;\n  DELETE FROM leasehold.queue q WHERE q.name = p_name AND q.client = p_client;",
        ),
    ],
    a_locked_row_keeps_no_other_name_from_its_notices: [
        ("WHERE l.name = ANY (p_names) AND l.awaited_until < v_soon\n    FOR NO KEY UPDATE SKIP LOCKED", "WHERE l.name = ANY (p_names) AND l.awaited_until < v_soon\n    FOR NO KEY UPDATE"),
        ("    EXCEPTION WHEN lock_not_available THEN\n      NULL;\n", ""),
    ],
    a_subscription_lasts_for_three_pulses: [("SET awaited_until = clock_timestamp() + interval '15 s'", "SET awaited_until = clock_timestamp() + interval '2 s'")],
    a_client_that_claims_again_keeps_its_place_for_longer: [
        ("SET alive_until = clock_timestamp() + p_patience_ms * interval '1 millisecond'", "SET alive_until = q.alive_until"),
        ("SET alive_until = excluded.alive_until", "SET alive_until = q.alive_until"),
    ],
    old_rows_are_removed_and_no_others: [
        ("greatest(interval '1 hour', g.max_ttl_ms * interval '1 millisecond')", "interval '1 hour'"),
        ("clock_timestamp() - interval '1 minute'", "clock_timestamp()"),
        ("      AND l.awaited_until < v_before\n", ""),
        (" AND NOT EXISTS (SELECT FROM leasehold.queue q WHERE q.name = l.name);", ";"),
        ("l.xmax = 0 AS is_new", "false AS is_new"),
        ("  IF FOUND THEN\n    PERFORM leasehold.sweep_1();\n  END IF;\n", ""),
    ],
    a_wait_for_the_lock_of_another_program_ends_by_itself: [("SET lock_timeout = '1s'", "")],
    what_is_answered_is_flushed: [("set_config('synchronous_commit', 'on', true)", "set_config('synchronous_commit', 'off', true)")],
    a_locked_row_spoils_no_other_of_its_batch: [("FOR NO KEY UPDATE OF l SKIP LOCKED", "FOR NO KEY UPDATE OF l")],
    only_its_holder_renews_a_lease: [("AND l.holder = a.holder AND l.token", "AND l.token")],
    a_later_grant_is_not_renewed_under_an_earlier_token: [(" AND l.token = a.token", "")],
    a_lease_is_over_at_its_end: [("m.state = 0 AND m.ends_at > clock_timestamp()", "m.state = 0")],
    a_token_rises_though_the_clock_is_behind: [
        ("SET token = greatest(l.token + 1, v_us, p_floor + 1)", "SET token = greatest(v_us, p_floor + 1)"),
        ("token := greatest(v_row.token + 1,", "token := greatest("),
    ],
    two_claims_at_once_have_one_grant: [("AND (l.state = 4 OR l.ends_at <= clock_timestamp())\n        AND l.token", "AND l.token")],
    nothing_is_granted_where_the_tables_came_from_elsewhere: [
        ("p_client IS NULL AND v_lineage.quiet_until <= clock_timestamp()", "p_client IS NULL"),
        ("IF v_quiet <= v_now AND (v_is_offered", "IF (v_is_offered"),
    ],
    a_client_that_is_told_that_it_is_next_keeps_its_place_in_a_quiet_time: [("greatest(p_now, v_quiet) + p_offer_ms", "p_now + p_offer_ms")],
];

/// The outcome of a scenario on functions of its own, with a bug in them or without.
pub(crate) async fn play(
    database: &Database,
    schema: &str,
    scenario: Scenario,
    bug: Option<Bug>,
) -> Verdict {
    let url = format!("{}&schema={schema}", database.url());
    let setup = Setup::new(&url).expect("a URL in order");
    let mut sql = setup.sql();
    if let Some((there, instead)) = bug {
        let there = there.replace("leasehold.", &format!("\"{schema}\"."));
        let instead = instead.replace("leasehold.", &format!("\"{schema}\"."));
        assert!(sql.contains(&there), "nothing to plant in: {there}");
        sql = sql.replace(&there, &instead);
    }
    let made = database.connect().await.batch_execute(&sql).await;
    made.expect("the functions are made");
    scenario(&Pair::of(database, schema).await).await
}

#[tokio::test]
async fn every_rule_holds() {
    let database = PostgresServer::database().await;
    for (index, (name, scenario, _)) in SCENARIOS.iter().enumerate() {
        let verdict = play(&database, &format!("rule_{index}"), *scenario, None).await;
        assert_eq!(verdict, Ok(()), "{name}");
    }
}
