//! Grants that come when little is left of their term: the clock jumps, as over a suspend.

use std::time::Duration;

use leasehold::{Attempt, ErrorKind, ReleaseOutcome};

use crate::harness::faulty_store::{Call, DOWN, Fault, FaultyStore};
use crate::harness::leases::{client, until_free};

/// So long that a late grant is still in the store for longer than a test takes.
const LONG: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_try_whose_grant_comes_late_is_asked_again_by_its_holder() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    store.faults.plan(Call::Acquire, Fault::Late, 2);
    // Were a late grant released, and another holder asked for, that one would find the name held.
    store.faults.plan(Call::Release, Fault::Hang, 1);
    let attempt = client.request("a").ttl(LONG).try_acquire().await.unwrap();
    let Attempt::Acquired(lease) = attempt else {
        panic!("{attempt:?}");
    };
    let hanging = store.faults.heal(Call::Release);
    assert_eq!(hanging, 1, "nothing was released");
    assert_eq!(store.faults.left(Call::Acquire), 0);
    let left = lease.remaining();
    assert!(
        left > LONG / 2,
        "its term is that of the last grant: {left:?}"
    );
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn the_last_late_grant_of_a_try_is_released() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    store.faults.plan(Call::Acquire, Fault::Late, 3);
    let request = client.request("a").ttl(LONG);
    let error = request.clone().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    until_free(&store, "a").await;
    let attempt = request.try_acquire().await.unwrap();
    assert!(matches!(attempt, Attempt::Acquired(_)), "{attempt:?}");
}

#[tokio::test]
async fn a_late_grant_is_released_when_it_cannot_be_asked_for_again() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    store.faults.plan(Call::Acquire, Fault::Late, 1);
    store.faults.plan_always(Call::Acquire, DOWN);
    let attempt = client.request("a").ttl(LONG).try_acquire().await;
    assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Unavailable);
    until_free(&store, "a").await;
}
