//! What a claim that waits makes of a floor that rises meanwhile.

use std::pin::pin;

use futures_util::FutureExt as _;
use leasehold::fence::{Bearer as _, Refusal};
use leasehold::{Attempt, Client, Lease, Token};

use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, take};
use crate::harness::wait::{soon, until_so};

/// A token that storage has seen, an hour ahead of this lease's.
fn an_hour_ahead(lease: &Lease) -> Token {
    Token::new(lease.token().get() + 3_600_000_000).unwrap()
}

/// Has the client wait for the name `a`, and returns once it does.
async fn polling_waiter(store: &FaultyStore, client: &Client) -> tokio::task::JoinHandle<Lease> {
    let (answers, client) = (store.answers(), client.clone());
    let waiter = tokio::spawn(async move { client.acquire("a").await.unwrap() });
    until_so("a poll", async || store.answers() > answers).await;
    waiter
}

/// Has the client see more names than it remembers of those that it has nothing to do with.
fn see_many_names(client: &Client, seen: Token) {
    for index in 0..5_000 {
        client.raise_min_token(format!("n{index}"), seen).unwrap();
    }
}

#[tokio::test]
async fn a_floor_that_rises_while_a_claim_waits_lifts_its_grant() {
    let store = FaultyStore::new();
    let (holder, rival) = (client(&store).await, client(&store).await);
    let lease = take(&holder, "a").await;
    let waiter = polling_waiter(&store, &rival).await;
    let seen = an_hour_ahead(&lease);
    rival.raise_min_token("a", seen).unwrap();
    lease.release().await;
    assert!(soon(waiter).await.unwrap().token() > seen);
}

#[tokio::test]
async fn waiters_behind_a_holder_that_a_fence_refused_are_lifted() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let waiter = polling_waiter(&store, &client).await;
    let stored = an_hour_ahead(&lease);
    lease.refused(&Refusal::Stale { stored });
    drop(lease);
    assert!(soon(waiter).await.unwrap().token() > stored);
}

#[tokio::test]
async fn a_name_that_is_held_keeps_its_floor_however_many_names_are_seen() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let stored = an_hour_ahead(&lease);
    lease.refused(&Refusal::Stale { stored });
    see_many_names(&client, stored);
    lease.release().await;
    assert!(take(&client, "a").await.token() > stored);
}

#[tokio::test]
async fn a_name_that_is_awaited_keeps_its_floor_however_many_names_are_seen() {
    let store = FaultyStore::new();
    let (holder, rival) = (client(&store).await, client(&store).await);
    let lease = take(&holder, "a").await;
    let waiter = polling_waiter(&store, &rival).await;
    let seen = an_hour_ahead(&lease);
    rival.raise_min_token("a", seen).unwrap();
    see_many_names(&rival, seen);
    lease.release().await;
    assert!(soon(waiter).await.unwrap().token() > seen);
}

#[tokio::test]
async fn a_grant_below_a_floor_raised_meanwhile_is_returned_and_asked_for_anew() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let seen = an_hour_ahead(&take(&client, "other").await);
    let claims = store.claims();
    let mut trying = pin!(client.try_acquire("a"));
    assert!(trying.as_mut().now_or_never().is_none());
    assert_eq!(store.claims(), claims + 1, "it was asked, without a floor");
    client.raise_min_token("a", seen).unwrap();
    match soon(trying).await.unwrap() {
        Attempt::Acquired(lease) => assert!(lease.token() > seen),
        other => panic!("the first grant was in the way: {other:?}"),
    }
}
