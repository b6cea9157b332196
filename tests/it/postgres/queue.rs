//! The queue: whom a freed name goes to, and what waiting costs the holder.

use super::functions::{Functions, LONG_MS};

#[tokio::test]
async fn dead_clients_are_skipped_and_removed_from_the_queue() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    for (place, client) in ["c1", "c2", "c3"].into_iter().enumerate() {
        let ahead = leases.queue("a", client, 0).await.ahead;
        assert_eq!(ahead, i64::try_from(place).ok());
    }
    let dead = "UPDATE leasehold.queue SET alive_until = clock_timestamp() WHERE client < 'c3'";
    leases.run(dead).await.expect("they died");
    assert_eq!(leases.queue("a", "c3", 0).await.ahead, Some(0));
    assert_eq!(leases.release("a", "h").await, ("released".into(), false));
    assert_eq!(leases.row("a").await, Some((3, "c3".into())));
    assert_eq!(
        leases.number("SELECT count(*) FROM leasehold.queue").await,
        0
    );
    assert_eq!(leases.acquire("a", "h2", LONG_MS).await.state, Some(3));
    assert_eq!(leases.queue("a", "c3", 0).await.outcome, "granted");
}

#[tokio::test]
async fn a_waiting_client_keeps_its_place_while_the_row_of_the_lease_is_locked() {
    let (database, leases) = Functions::fresh().await;
    let holder = Functions::of(&database, "leasehold").await;
    holder.acquire("a", "h", LONG_MS).await;
    leases.queue("a", "c", 0).await;
    holder.run("BEGIN").await.expect("begun");
    assert_eq!(holder.renew(&[("a", "h")]).await, "y");
    // The row is locked until the renewal is committed.
    assert_eq!(leases.queue("a", "c", 0).await.ahead, Some(0));
    holder.run("COMMIT").await.expect("done");
}

#[tokio::test]
async fn a_grant_to_the_last_client_of_the_queue_ends_the_queue() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    leases.queue("a", "c", 0).await;
    leases.release("a", "h").await;
    leases.queue("a", "c", 0).await;
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
