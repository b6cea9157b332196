//! The queue: whom a freed name goes to, and what waiting costs the holder.

use super::functions::{Functions, LONG_MS};
use crate::harness::wait::{now, until_so};

/// The places that are left.
async fn places(leases: &Functions) -> i64 {
    leases.number("SELECT count(*) FROM leasehold.queue").await
}

#[tokio::test]
async fn dead_clients_are_skipped_and_removed_from_the_queue() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    for (place, client) in ["c1", "c2", "c3", "c4"].into_iter().enumerate() {
        let ahead = leases.queue("a", client).await.ahead;
        assert_eq!(ahead, i64::try_from(place).ok());
    }
    let dead = "UPDATE leasehold.queue SET alive_until = clock_timestamp() WHERE client IN ('c1', 'c2', 'c4')";
    leases.run(dead).await.expect("they died");
    assert_eq!(leases.queue("a", "c3").await.ahead, Some(0));
    assert_eq!(leases.release("a", "h").await, ("released".into(), false));
    assert_eq!(leases.row("a").await, Some((0, "c3-1".into())));
    assert_eq!(places(&leases).await, 0);
    assert_eq!(leases.acquire("a", "h2", LONG_MS).await.state, Some(0));
    assert_eq!(leases.queue("a", "c3").await.outcome, "granted");
}

#[tokio::test]
async fn a_thousand_dead_clients_are_passed_in_a_moment() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    leases.queue("a", "c").await;
    let dead =
        "INSERT INTO leasehold.queue (name, client, alive_until, holder, info, floor, term_ms)
        SELECT 'a', 'd' || i, clock_timestamp() - interval '1 s', 'd' || i || '-1', '{}', 0, 3000
        FROM generate_series(1, 1000) i";
    leases.run(dead).await.expect("they died");
    leases.queue("a", "e").await;
    leases.release("a", "c-1").await;
    let begun = now();
    leases.release("a", "h").await;
    let took = now().since(begun);
    assert_eq!(leases.row("a").await, Some((0, "e-1".into())));
    assert!(took.as_millis() < 500, "{took:?}");
    println!("a thousand dead clients were passed in {took:?}");
    // That of the claim that gave up.
    assert_eq!(places(&leases).await, 1);
}

#[tokio::test]
async fn a_client_that_comes_back_after_its_term_is_the_last_one() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    for (ahead, client) in [(0, "c"), (1, "d"), (0, "c")] {
        assert_eq!(leases.queue("a", client).await.ahead, Some(ahead));
    }
    let dead = "UPDATE leasehold.queue SET alive_until = clock_timestamp() WHERE client = 'c'";
    leases.run(dead).await.expect("it died");
    assert_eq!(leases.queue("a", "c").await.ahead, Some(1));
    assert_eq!(places(&leases).await, 2);
}

#[tokio::test]
async fn a_waiting_client_keeps_its_place_while_the_row_of_the_lease_is_locked() {
    let (database, leases) = Functions::fresh().await;
    let holder = Functions::of(&database, "leasehold").await;
    holder.acquire("a", "h", LONG_MS).await;
    leases.queue("a", "c").await;
    holder.run("BEGIN").await.expect("begun");
    assert_eq!(holder.renew(&[("a", "h")]).await, "y");
    // The row is locked until the renewal is committed.
    assert_eq!(leases.queue("a", "c").await.ahead, Some(0));
    holder.run("COMMIT").await.expect("done");
}

#[tokio::test]
async fn a_grant_to_the_last_client_of_the_queue_ends_the_queue() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    leases.queue("a", "c").await;
    leases.release("a", "h").await;
    let has_queue = "SELECT has_queue::int::bigint FROM leasehold.lease";
    assert_eq!(leases.number(has_queue).await, 0);
    leases.release("a", "c-1").await;
    assert_eq!(leases.acquire("a", "h2", LONG_MS).await.outcome, "granted");
}

#[tokio::test]
async fn a_release_sends_a_notice_only_for_a_name_that_a_client_follows() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    assert!(!leases.release("a", "h").await.1);
    leases.acquire("a", "h", LONG_MS).await;
    let mark = "SELECT leasehold.await_1(ARRAY['a', 'b'])";
    leases.run(mark).await.expect("marked");
    assert!(leases.release("a", "h").await.1);
    leases.acquire("a", "h", LONG_MS).await;
    assert!(leases.release_keeping("a", "h", 100).await.1);
    assert_eq!(leases.row("b").await, Some((4, String::new())));
}

#[tokio::test]
async fn two_claims_of_a_client_that_join_at_once_have_one_place() {
    let (database, leases) = Functions::fresh().await;
    let other = Functions::of(&database, "leasehold").await;
    let third = Functions::of(&database, "leasehold").await;
    leases.acquire("a", "h", LONG_MS).await;
    leases.queue("a", "first").await;
    // In its own time a claim that is seen to wait can be over before the other one commits.
    let patient = "ALTER FUNCTION leasehold.acquire_1 SET lock_timeout = '10s'";
    leases.run(patient).await.expect("altered");
    other.run("BEGIN").await.expect("begun");
    assert_eq!(other.queue_for("a", "c-1", LONG_MS).await.ahead, Some(1));
    let (two, ()) = tokio::join!(leases.queue_for("a", "c-2", LONG_MS), async {
        until_so("the second claim to wait for the first", async || {
            let sql = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            third.number(sql).await == 1
        })
        .await;
        other.run("COMMIT").await.expect("done");
    });
    assert_eq!((two.outcome.as_str(), two.ahead), ("held", Some(1)));
    assert_eq!(places(&leases).await, 2);
    leases.release("a", "first-1").await;
    leases.release("a", "h").await;
    assert_eq!(leases.row("a").await, Some((0, "c-2".into())));
}

/// So the notice of an earlier grant is told from that of the place that was confirmed.
#[tokio::test]
async fn a_grant_has_a_token_above_what_its_claim_was_told_last_and_no_earlier_one_has() {
    let (_database, leases) = Functions::fresh().await;
    let before = leases.acquire("a", "h", LONG_MS).await.token;
    let height = leases.queue("a", "c").await.height;
    assert!(height >= before, "{height:?} after {before:?}");
    leases.release("a", "h").await;
    let token = leases.queue("a", "c").await.token;
    assert!(token > height, "{token:?} after {height:?}");
    // Also where the clock is behind.
    let lift = "UPDATE leasehold.lease SET token = token + 3600000000 RETURNING token";
    let lifted = leases.number(lift).await;
    assert_eq!(leases.queue("a", "d").await.height, Some(lifted));
}
