//! Two servers of which one follows the other, with clocks that differ: what the promises do not cover, seen to happen,
//! and what still protects then.

use std::time::Duration;

use leasehold::store::Answer;

use super::open;
use crate::harness::asking::{LONG, claim, granted, next_token};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::wait::{now, until};

/// A master, and a server to come after it whose clock is ahead by so much, or behind.
async fn pair(ahead_ms: i64) -> (RedisServer, RedisServer) {
    let master = Setup::default().with_port().start().await;
    let replica = Setup::default().with_clock().start().await;
    replica.step_clock(ahead_ms).await;
    (master, replica)
}

#[tokio::test]
async fn a_replica_whose_clock_is_ahead_grants_early_but_under_a_higher_token() {
    let (mut master, replica) = pair(3_000).await;
    let ttl = Duration::from_millis(5_000);
    let before = open(&master.url()).await;
    let sent_at = now();
    let token = granted(&*before, &claim("a", ttl)).await;
    // In a snapshot the end of a lease is a moment of the wall clock; 7.0 and later send every expiry so.
    replica.follow(&master).await;
    master.kill();
    replica.promote().await;
    let after = open(&replica.url()).await;
    let rival = claim("a", LONG);
    let next = until("the rival's grant", async || {
        match after.acquire(&rival, LONG).await.expect("it is promoted") {
            Answer::Granted(grant) => Some(grant.token),
            _ => None,
        }
    })
    .await;
    let held_for = now().since(sent_at);
    assert!(
        held_for < ttl,
        "the clocks' difference is made good: {held_for:?}"
    );
    assert!(
        next > token,
        "{next} after {token}: no fence could tell them apart"
    );
    replica.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_replica_that_missed_a_grant_and_is_behind_is_lifted_by_the_floor() {
    let (mut master, replica) = pair(-5_000).await;
    replica.follow(&master).await;
    // Cut off, so that it misses what follows.
    replica.promote().await;
    let before = open(&master.url()).await;
    let last = next_token(&*before, "a").await;
    master.kill();
    let after = open(&replica.url()).await;
    let fallen = next_token(&*after, "a").await;
    assert!(
        fallen < last,
        "the assumption is needed no more: {fallen} after {last}"
    );
    // As after a fence's answer that names what storage has seen.
    let lifted = granted(&*after, &claim("a", LONG).with_floor(Some(last))).await;
    assert!(lifted > last, "{lifted} after {last}");
    replica.assert_all_keys_run_out().await;
}
