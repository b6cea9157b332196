//! What a quorum is made of, and what is refused.

use std::time::Duration;

use leasehold::store::quorum::Quorum;
use leasehold::store::redis::Redis;
use leasehold::store::{self, Store as _};
use leasehold::{Error, ErrorKind};

use crate::harness::asking::{asked, claim, granted};
use crate::harness::redis_quorum::{MAX_TTL, RedisQuorum};
use crate::harness::times::{LIMIT, LONG};

fn refused_url(url: &str) -> Error {
    Quorum::open(url).expect_err(url)
}

#[test]
fn a_quorum_is_opened_by_its_url() {
    for (url, expected) in [
        (
            "redis+quorum://me:s3cret@a,b:7000,[::1]?max_ttl=30s",
            "quorum of redis://a:6379/0, redis://b:7000/0, redis://[::1]:6379/0",
        ),
        (
            "redis+quorum://:s3cret@a,b,c/3",
            "quorum of redis://a:6379/3, redis://b:6379/3, redis://c:6379/3",
        ),
        (
            "valkeys+quorum://a,b,c",
            "quorum of valkeys://a:6379/0, valkeys://b:6379/0, valkeys://c:6379/0",
        ),
    ] {
        let store = Quorum::open(url).expect(url);
        assert_eq!(store.location(), expected);
        assert!(!format!("{store:?}").contains("s3cret"));
    }
    let store = Quorum::open("redis+quorum://a,b,c?max_ttl=30s").expect("a URL in order");
    assert_eq!(store.facts().max_ttl, Some(Duration::from_secs(30)));
    assert_eq!(store.facts().kind, "quorum");
}

#[tokio::test]
async fn every_way_to_open_a_store_opens_a_quorum() {
    let store = store::open("redis+quorum://a,b,c")
        .await
        .expect("a URL in order");
    assert_eq!(store.facts().kind, "quorum");
}

#[test]
fn a_bad_quorum_is_refused_with_what_is_wrong_and_without_its_secret() {
    for (url, what) in [
        ("redis+quorum://:s3cret@a,b", "an odd number"),
        ("redis+quorum://:s3cret@a", "an odd number"),
        ("redis+quorum://:s3cret@a,b,c,d", "an odd number"),
        ("redis+quorum://:s3cret@a,b,a:6379", "different members"),
        ("redis+quorum://:s3cret@a,b,c?max_ttl=soon", "max_ttl"),
        ("redis+quorum://:s3cret@a,b,c?max_ttl=1ms", "max_ttl"),
        (
            "redis+quorum://:s3cret@a,b,c?acknowledged_by=1",
            "acknowledged_by",
        ),
        ("redis+quorum://:s3cret@a,,c", "host is missing"),
        ("redis+cluster://:s3cret@a,b,c", "not the URL of a quorum"),
    ] {
        let error = refused_url(url);
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {text}");
        assert!(text.contains(what), "{url}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    let members = ["redis://a", "redis://b", "redis+cluster://c"];
    let error = Quorum::of(members.map(Redis::builder)).expect_err("a cluster");
    assert!(error.to_string().contains("one server"), "{error}");
    let ttls = [LONG, LONG, LONG / 2];
    let servers = ["redis://a", "redis://b", "redis://c"].map(Redis::builder);
    let servers = servers.into_iter().zip(ttls);
    let differing = Quorum::of(servers.map(|(server, ttl)| server.max_ttl(ttl)));
    let error = differing.expect_err("another longest ttl at one");
    assert!(error.to_string().contains("the same max_ttl"), "{error}");
    let servers = ["redis://a", "redis://b", "redis://c"].map(Redis::builder);
    let waiting = Quorum::of(servers.map(|server| server.acknowledged_by(1)));
    let error = waiting.expect_err("members have no replicas to wait for");
    assert!(error.to_string().contains("acknowledged_by"), "{error}");
}

#[tokio::test]
async fn a_ttl_above_the_longest_is_refused_and_nothing_is_sent() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open_with(MAX_TTL);
    let long = claim("a", MAX_TTL + Duration::from_millis(1));
    let error = asked(&store, &long, LIMIT).await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert_eq!(quorum.servers[0].keys().await, ["leasehold:node"]);
}

#[tokio::test]
async fn clients_with_another_longest_ttl_are_misconfigured() {
    let quorum = RedisQuorum::start(3).await;
    granted(&quorum.open(), &claim("a", LONG / 2)).await;
    let other = quorum.open_with(LONG / 2);
    let error = asked(&other, &claim("b", LONG / 3), LIMIT).await;
    let error = error.expect_err("another longest ttl");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("theirs=60s"), "{error}");
}

#[tokio::test]
async fn a_member_is_no_server_alone() {
    let quorum = RedisQuorum::start(3).await;
    let url = quorum.servers[0].url();
    let alone = leasehold::store::redis::Redis::open(&url).expect("a URL in order");
    let error = asked(&alone, &claim("a", LONG), LIMIT)
        .await
        .expect_err("a member");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
}
