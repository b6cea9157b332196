//! When a store is asked, and what becomes of a store that hangs, panics, answers too little, or fails for one name.

use std::time::Duration;

use leasehold::store::{Eviction, Store};
use leasehold::{Client, ErrorKind, LossReason, Name, OutagePolicy, ReleaseOutcome};
use tokio::time::timeout;

use crate::harness::faulty_store::{Call, DOWN, Fault, FaultyStore};
use crate::harness::leases::{client, renewed_times, take, until_free};
use crate::harness::times::{PATIENCE, TTL};
use crate::harness::wait::lost;

/// A client whose leases do not run out while a test waits for their release.
async fn with_long_leases(store: &FaultyStore) -> Client {
    let builder = Client::builder().store(store.clone()).ttl(PATIENCE * 2);
    builder.build().await.unwrap()
}

#[tokio::test]
async fn a_term_is_counted_from_before_the_store_was_asked() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let granted = lease.term().unwrap();
    assert!(granted.sent_at() <= *store.faults.asked_at.lock().unwrap());
    let renewed = lease.renewed_past(granted.deadline()).await.unwrap();
    assert!(renewed.sent_at() <= *store.faults.asked_at.lock().unwrap());
}

#[tokio::test]
async fn a_batch_that_hangs_for_ever_is_given_up_and_sent_again() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    store.faults.plan(Call::Renew, Fault::Hang, 1);
    let first = take(&client, "first").await;
    let second = take(&client, "second").await;
    tokio::join!(renewed_times(&first, 3), renewed_times(&second, 3));
    assert_eq!(store.faults.left(Call::Renew), 0);
    first.check().unwrap();
    second.check().unwrap();
}

#[tokio::test]
async fn batches_that_hang_leave_room_for_a_lease_that_is_taken_meanwhile() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    store.faults.plan(Call::Renew, Fault::Hang, 3);
    let mut leases = Vec::new();
    for index in 0..6 {
        leases.push(take(&client, &format!("n{index}")).await);
    }
    for lease in &leases {
        renewed_times(lease, 2).await;
    }
    for lease in leases {
        assert_eq!(lease.release().await, ReleaseOutcome::Released);
    }
}

#[tokio::test]
async fn a_grant_whose_token_fell_is_refused_and_released() {
    let store = FaultyStore::new();
    let client = with_long_leases(&store).await;
    let before = take(&client, "a").await;
    let token = before.token();
    assert_eq!(before.release().await, ReleaseOutcome::Released);
    (store.faults).plan_always(Call::Acquire, Fault::FirstToken);
    let error = client.try_acquire("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let facts = format!("name=a token=1 seen={token}");
    assert!(error.to_string().ends_with(&facts), "{error}");
    until_free(&store, "a").await;
}

#[tokio::test]
async fn a_claim_that_hangs_for_ever_is_given_up_and_released() {
    let store = FaultyStore::new();
    let client = with_long_leases(&store).await;
    store.faults.plan(Call::Acquire, Fault::Unanswered, 1);
    let attempt = timeout(PATIENCE, client.try_acquire("a")).await;
    let error = attempt.expect("it is given up").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    until_free(&store, "a").await;
}

#[tokio::test]
async fn a_wait_outlasts_a_claim_that_hangs_for_ever() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    store.faults.plan(Call::Acquire, Fault::Unanswered, 1);
    let request = client.request("a").on_outage(OutagePolicy::WaitOut);
    let lease = timeout(PATIENCE, request.acquire()).await;
    lease.expect("asked again").unwrap().check().unwrap();
}

#[tokio::test]
async fn a_release_that_hangs_for_ever_is_given_up_and_sent_again() {
    let store = FaultyStore::new();
    let client = with_long_leases(&store).await;
    let lease = take(&client, "a").await;
    store.faults.plan(Call::Release, Fault::Hang, 1);
    let ending = timeout(PATIENCE, lease.release()).await;
    assert_eq!(ending.expect("it is given up"), ReleaseOutcome::Unknown);
    until_free(&store, "a").await;
    assert!(client.shutdown(PATIENCE).await, "nothing is left");
}

#[tokio::test]
async fn a_release_that_is_dropped_is_sent_by_the_watchdog_at_once() {
    let store = FaultyStore::new();
    let client = with_long_leases(&store).await;
    let lease = take(&client, "a").await;
    store.faults.plan(Call::Release, Fault::Hang, 1);
    let dropped = timeout(Duration::from_millis(10), lease.release()).await;
    dropped.expect_err("it hangs");
    // A request may take two seconds, and would be taken over after three.
    let free = timeout(Duration::from_secs(2), until_free(&store, "a")).await;
    free.expect("it is free soon");
    assert!(client.shutdown(PATIENCE).await, "nothing is left");
}

#[tokio::test]
async fn an_evicted_holder_does_not_keep_the_name() {
    for how in [Eviction::Marked, Eviction::Now] {
        let store = FaultyStore::new();
        let client = client(&store).await;
        let kept = client.request("a").hold_at_least(PATIENCE * 360);
        let lease = kept.acquire().await.unwrap();
        let name = lease.name().clone();
        store.evict(&name, how, PATIENCE).await.unwrap();
        lost(&lease).await;
        let ending = lease.release().await;
        assert_eq!(ending, ReleaseOutcome::AlreadyLost, "{how:?}");
        let taken = store.inspect(&name, PATIENCE).await.unwrap();
        assert!(taken.is_none(), "{how:?}: {taken:?}");
    }
}

#[tokio::test]
async fn a_release_that_fails_is_sent_again() {
    let store = FaultyStore::new();
    let client = with_long_leases(&store).await;
    let [released, dropped] = [take(&client, "a").await, take(&client, "b").await];
    store.faults.plan(Call::Release, DOWN, 1);
    assert_eq!(released.release().await, ReleaseOutcome::Unknown);
    until_free(&store, "a").await;
    store.faults.plan(Call::Release, DOWN, 1);
    drop(dropped);
    until_free(&store, "b").await;
}

#[tokio::test]
async fn a_store_that_answers_too_little_leaves_the_rest_unknown() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    (store.faults).plan_always(Call::Renew, Fault::NoOutcomes);
    let doomed = take(&client, "doomed").await;
    assert_eq!(lost(&doomed).await, LossReason::Deadline);
    let kept = take(&client, "kept").await;
    let term = kept.term().unwrap();
    tokio::time::sleep(TTL / 2).await;
    store.faults.heal(Call::Renew);
    kept.renewed_past(term.deadline())
        .await
        .expect("tried again in time");
}

#[tokio::test]
async fn one_name_that_fails_costs_one_lease() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let mut leases = Vec::new();
    for index in 0..20 {
        leases.push(take(&client, &format!("n{index}")).await);
    }
    let bad = Name::new("n7").unwrap();
    store.faults.poisoned.lock().unwrap().insert(bad);
    assert_eq!(lost(&leases[7]).await, LossReason::Deadline);
    for (index, lease) in leases.iter().enumerate() {
        assert_eq!(lease.check().is_ok(), index != 7, "{lease:?}");
    }
}

#[tokio::test]
async fn a_store_that_panics_gave_no_answer() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    store.faults.plan(Call::Renew, Fault::Panic, 2);
    renewed_times(&lease, 2).await;
    assert_eq!(store.faults.left(Call::Renew), 0);
    store.faults.plan(Call::Release, Fault::Panic, 1);
    drop(lease);
    until_free(&store, "a").await;
    assert!(client.shutdown(PATIENCE).await, "nothing is left");
}
