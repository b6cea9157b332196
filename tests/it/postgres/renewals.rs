//! Renewals by batches: what another transaction has locked, and by which way the rows are found.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::Outcome;

use super::functions::{Functions, LONG_MS};
use super::store;
use crate::harness::asking::{self, claim, granted, renewal};
use crate::harness::times::{LIMIT, LONG};

#[tokio::test]
async fn a_locked_lease_is_unknown_and_the_others_are_renewed() {
    let (database, store) = store().await;
    let claims = ["a", "b", "c"].map(|name| claim(name, LONG));
    for claim in &claims {
        granted(&*store, claim).await;
    }
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; SELECT FROM leasehold.lease WHERE name = 'b' FOR UPDATE")
        .await
        .expect("locked");
    let outcomes = store
        .renew(&claims.each_ref().map(renewal), LIMIT)
        .await
        .outcomes;
    let [Outcome::Renewed, Outcome::Unknown(error), Outcome::Renewed] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("locked"), "{error}");
    stranger.batch_execute("COMMIT").await.expect("let go");
    let renewed = asking::renewed(&*store, &claims[1]).await;
    assert!(matches!(renewed, Outcome::Renewed), "{renewed:?}");
}

#[tokio::test]
async fn a_lease_that_is_locked_for_a_moment_is_renewed_all_the_same() {
    let (database, store) = store().await;
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; SELECT FROM leasehold.lease WHERE name = 'a' FOR UPDATE")
        .await
        .expect("locked");
    let (renewed, ()) = tokio::join!(asking::renewed(&*store, &claim), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        stranger.batch_execute("COMMIT").await.expect("let go");
    });
    assert!(matches!(renewed, Outcome::Renewed), "{renewed:?}");
}

#[tokio::test]
async fn overlapping_batches_in_opposite_orders_do_not_deadlock() {
    let (database, leases) = Functions::fresh().await;
    let names: Vec<_> = (0..100).map(|index| format!("n{index}")).collect();
    for name in &names {
        leases.acquire(name, "h", LONG_MS).await;
    }
    let other = Functions::of(&database, "leasehold").await;
    let forwards: Vec<_> = names.iter().map(|name| (name.as_str(), "h")).collect();
    let backwards: Vec<_> = forwards.iter().rev().copied().collect();
    for _ in 0..20 {
        let (one, two) = tokio::join!(leases.renew(&forwards), other.renew(&backwards));
        for letters in [one, two] {
            assert!(
                letters.chars().all(|letter| "yx".contains(letter)),
                "{letters}"
            );
        }
    }
}

#[tokio::test]
async fn rows_are_found_by_their_key_in_a_table_that_grew() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("n1", "h", LONG_MS).await;
    // Often enough for the plan to be kept.
    for _ in 0..10 {
        leases.renew(&[("n1", "h"), ("n2", "h")]).await;
        leases.acquire("n1", "other", LONG_MS).await;
    }
    let fill =
        "INSERT INTO leasehold.lease (name, token, state, holder, ttl_ms, since, ends_at, info)
        SELECT 'n' || i, 1, 0, 'h', 30000, now(), now() + interval '30 s', '{}'
        FROM generate_series(2, 20000) i";
    leases.run(fill).await.expect("filled");
    let before = scans(&leases).await;
    for _ in 0..10 {
        assert_eq!(leases.renew(&[("n1", "h"), ("n7000", "h")]).await, "yy");
        leases.acquire("n9000", "other", LONG_MS).await;
    }
    assert_eq!(scans(&leases).await, before, "the whole table was read");
}

/// How often the whole table of leases was read.
async fn scans(leases: &Functions) -> i64 {
    leases
        .run("SELECT pg_stat_force_next_flush()")
        .await
        .expect("told");
    leases
        .run("SELECT pg_stat_clear_snapshot()")
        .await
        .expect("told");
    let scans =
        "SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'leasehold.lease'::regclass";
    leases.number(scans).await
}
