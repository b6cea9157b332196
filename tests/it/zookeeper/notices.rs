//! Hints: what wakes a waiting client.

use std::time::Duration;

use leasehold::store::{Notice, Notices, Topic};
use tokio::time::timeout;

use super::store;
use crate::harness::asking::{claim, granted, released, renewed};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{at, now};

async fn next(notices: &dyn Notices) -> Notice {
    timeout(LIMIT, notices.next())
        .await
        .expect("a hint in time")
}

#[tokio::test]
async fn a_renewal_sends_no_hint_and_a_release_does() {
    let store = store().await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    let notices = store.notices().await.expect("answered").expect("it hints");
    let topic = Topic::Freed(lease.name.clone());
    notices.follow(&topic);
    assert_eq!(next(&*notices).await, topic.first_hint());
    for _ in 0..20 {
        renewed(&*store, &lease).await;
    }
    let quiet = timeout(Duration::from_millis(300), notices.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    released(&*store, &lease).await;
    assert_eq!(next(&*notices).await, topic.first_hint());
}

#[tokio::test]
async fn a_name_that_was_never_granted_can_be_followed() {
    let store = store().await;
    let lease = claim("a", LONG);
    let notices = store.notices().await.expect("answered").expect("it hints");
    let topic = Topic::Freed(lease.name.clone());
    notices.follow(&topic);
    assert_eq!(next(&*notices).await, topic.first_hint());
    granted(&*store, &lease).await;
    // So that the lease is seen.
    at(now().after(Duration::from_millis(200))).await;
    released(&*store, &lease).await;
    assert_eq!(next(&*notices).await, topic.first_hint());
}
