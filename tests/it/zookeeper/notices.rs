//! Notices: what wakes a waiting client.

use std::time::Duration;

use leasehold::Name;
use leasehold::store::Topic;
use tokio::time::timeout;

use super::{open, store_in_chroot};
use crate::harness::asking::{claim, granted, released, renewed};
use crate::harness::relay::Relay;
use crate::harness::times::LONG;
use crate::harness::wait::{at, next_notice, now};
use crate::harness::zookeeper_server::ZookeeperServer;

#[tokio::test]
async fn a_renewal_sends_no_notice_and_a_release_does() {
    let store = store_in_chroot().await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    let notices = store
        .notices()
        .await
        .expect("answered")
        .expect("it has notices");
    let topic = Topic::Freed(lease.name.clone());
    notices.follow(&topic);
    assert_eq!(next_notice(&*notices).await, topic.first_notice());
    for _ in 0..20 {
        renewed(&*store, &lease).await;
    }
    let quiet = timeout(Duration::from_millis(300), notices.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    released(&*store, &lease).await;
    assert_eq!(next_notice(&*notices).await, topic.first_notice());
}

#[tokio::test]
async fn a_name_that_was_never_granted_can_be_followed() {
    let store = store_in_chroot().await;
    let lease = claim("a", LONG);
    let notices = store
        .notices()
        .await
        .expect("answered")
        .expect("it has notices");
    let topic = Topic::Freed(lease.name.clone());
    notices.follow(&topic);
    assert_eq!(next_notice(&*notices).await, topic.first_notice());
    granted(&*store, &lease).await;
    // So that the lease is seen.
    at(now().after(Duration::from_millis(200))).await;
    released(&*store, &lease).await;
    assert_eq!(next_notice(&*notices).await, topic.first_notice());
}

/// Their paths are more than one request can have.
#[tokio::test]
async fn six_hundred_names_of_400_bytes_are_followed_through_a_lost_connection() {
    let url = ZookeeperServer::chroot().await;
    let relay = Relay::before_port(ZookeeperServer::shared().await.port()).await;
    let (_, chroot) = url.rsplit_once('/').expect("it has a chroot");
    let store = open(&format!("zookeeper://127.0.0.1:{}/{chroot}", relay.port()));
    let (direct, lease) = (open(&url), claim("a", LONG));
    granted(&*direct, &lease).await;
    let notices = store
        .notices()
        .await
        .expect("answered")
        .expect("it has notices");
    let freed = Topic::Freed(lease.name.clone());
    notices.follow(&freed);
    assert_eq!(next_notice(&*notices).await, freed.first_notice());
    for index in 0..600 {
        let name = Name::new(format!("{index:0400}")).expect("a name");
        notices.follow(&Topic::Freed(name));
        next_notice(&*notices).await;
    }
    relay.cut();
    // So that it is seen before the release is.
    at(now().after(Duration::from_millis(200))).await;
    released(&*direct, &lease).await;
    assert_eq!(next_notice(&*notices).await, freed.first_notice());
}
