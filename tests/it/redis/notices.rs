//! Notices that a name was freed, through everything that happens to a subscription.

use std::time::Duration;

use deadpool_redis::redis;
use leasehold::store::redis::Redis;
use leasehold::store::{Eviction, Notice, Notices, Store, Topic};
use leasehold::{ErrorKind, Name};

use super::open;
use crate::harness::asking::{claim, granted, next_token};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG, PATIENCE};
use crate::harness::wait::{next_notice, until};

async fn subscribe(store: &dyn Store) -> Box<dyn Notices> {
    let notices = store.notices().await.expect("it can subscribe");
    notices.expect("this store has notices")
}

fn freed(name: &str) -> Notice {
    Notice::Freed(Name::new(name).expect("a valid name"))
}

/// Follows a name. Returns once the server knows, which comes as a first notice.
async fn follow(notices: &dyn Notices, name: &str) {
    notices.follow(&Topic::Freed(Name::new(name).expect("a valid name")));
    assert_eq!(next_notice(notices).await, freed(name));
}

#[tokio::test]
async fn a_release_and_an_eviction_are_told_to_those_who_follow_the_name() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let notices = subscribe(&*store).await;
    follow(&*notices, "a").await;
    follow(&*notices, "b c*").await;
    next_token(&*store, "other").await;
    next_token(&*store, "b c*").await;
    assert_eq!(next_notice(&*notices).await, freed("b c*"));
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let evicted = store.evict(&claim.name, Eviction::Now, LIMIT).await;
    assert!(evicted.expect("answered"));
    assert_eq!(next_notice(&*notices).await, freed("a"));
}

#[tokio::test]
async fn a_name_that_is_no_longer_followed_is_quiet() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let notices = subscribe(&*store).await;
    follow(&*notices, "a").await;
    notices.unfollow(&Topic::Freed(Name::new("a").expect("a valid name")));
    // Changes are sent in order, so this one is through when the next is.
    follow(&*notices, "b").await;
    next_token(&*store, "a").await;
    next_token(&*store, "b").await;
    assert_eq!(next_notice(&*notices).await, freed("b"));
}

#[tokio::test]
async fn a_server_that_comes_back_is_followed_as_before() {
    let mut server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let notices = subscribe(&*store).await;
    follow(&*notices, "a").await;
    server.restart_empty().await;
    assert_eq!(next_notice(&*notices).await, Notice::Reconnected);
    next_token(&*store, "a").await;
    assert_eq!(next_notice(&*notices).await, freed("a"));
}

#[tokio::test]
async fn one_subscription_serves_a_thousand_names() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let notices = subscribe(&*store).await;
    for index in 0..1_000 {
        notices.follow(&Topic::Freed(
            Name::new(format!("n{index}")).expect("a valid name"),
        ));
    }
    let mut told = std::collections::BTreeSet::new();
    while told.len() < 1_000 {
        match next_notice(&*notices).await {
            Notice::Freed(name) => told.insert(name),
            other => panic!("expected a name, got {other:?}"),
        };
    }
    let clients: String = server.told("CLIENT LIST TYPE pubsub").await;
    assert_eq!(clients.lines().count(), 1, "{clients}");
    assert!(clients.contains(" sub=1001 "), "{clients}");
}

#[tokio::test]
async fn unread_notices_become_one_check_of_every_name() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let notices = subscribe(&*store).await;
    follow(&*notices, "a").await;
    let mut connection = server.connect().await.expect("it is up");
    let () = redis::cmd("EVAL")
        .arg("for i = 1, 3000 do redis.call('PUBLISH', 'leasehold:{a}:freed', '0') end")
        .arg(0)
        .query_async(&mut connection)
        .await
        .expect("the script runs");
    until("an overflow", async || {
        format!("{notices:?}")
            .contains("has_overflowed: true")
            .then_some(())
    })
    .await;
    assert_eq!(next_notice(&*notices).await, Notice::Reconnected);
}

#[tokio::test]
async fn a_next_that_is_dropped_loses_no_notice() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let notices = subscribe(&*store).await;
    follow(&*notices, "a").await;
    for _ in 0..20 {
        let cut = tokio::time::timeout(Duration::from_millis(1), notices.next()).await;
        assert!(cut.is_err(), "nothing was freed");
    }
    next_token(&*store, "a").await;
    assert_eq!(next_notice(&*notices).await, freed("a"));
}

#[tokio::test]
async fn a_user_without_channels_is_told_so() {
    let server = RedisServer::start().await;
    let () = server
        .told("ACL SETUSER worker on >secret ~* +@all resetchannels")
        .await;
    let store = open(&format!("{}?user=worker&pass=secret", server.url())).await;
    let error = store.notices().await.expect_err("no rights to channels");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn a_name_outside_the_users_channels_does_not_spoil_the_others() {
    let server = RedisServer::start().await;
    let () = server
        .told("ACL SETUSER worker on >secret ~* +@all resetchannels &leasehold:{}:freed &leasehold:{a}:freed")
        .await;
    let store = open(&format!("{}?user=worker&pass=secret", server.url())).await;
    let notices = subscribe(&*store).await;
    for name in ["b", "c"] {
        notices.follow(&Topic::Freed(Name::new(name).expect("a valid name")));
    }
    // A first notice says that the server listens.
    follow(&*notices, "a").await;
    next_token(&*open(&server.url()).await, "b").await;
    next_token(&*open(&server.url()).await, "a").await;
    assert_eq!(next_notice(&*notices).await, freed("a"));
}

/// Elsewhere the client asks before it counts the grant.
#[test]
fn a_notice_proves_a_grant_where_the_server_that_sent_it_is_the_one_that_counts() {
    for (url, is_proof) in [
        ("redis://a", true),
        ("redis+cluster://a", true),
        ("redis+sentinel://a/main", false),
        ("redis://a?acknowledged_by=1", false),
        ("redis+cluster://a?acknowledged_by=1", false),
        ("redis://a?max_ttl=60s", false),
    ] {
        let store = Redis::open(url).expect("a URL in order");
        assert_eq!(store.facts().trusts_notices, is_proof, "{url}");
    }
}

#[tokio::test]
async fn a_silent_server_delays_a_subscription_no_longer_than_its_limit() {
    let server = RedisServer::start().await;
    let store = Redis::builder(&server.url())
        .connect_timeout(Duration::from_millis(200))
        .build()
        .expect("a store");
    server.pause();
    let error = tokio::time::timeout(PATIENCE, store.notices()).await;
    let error = error.expect("an end").expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
}
