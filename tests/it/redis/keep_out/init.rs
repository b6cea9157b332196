//! A server that is new is told so once, and grants at once; one that is not is left as it is.

use std::time::Duration;

use leasehold::store::redis::Redis;
use leasehold::store::{self, TableSettings};
use leasehold::{Error, ErrorKind};

use super::super::open;
use super::super::rights::least_rights;
use super::{WITH_LONG, assert_kept_out, settled, with};
use crate::harness::asking::{chain, claim, granted, next_token};
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG};

async fn init(url: &str) -> Result<(), Error> {
    store::init(url, TableSettings::default(), LIMIT).await
}

#[tokio::test]
async fn a_server_that_was_set_up_grants_at_once_and_waits_after_a_restart() {
    let mut server = RedisServer::start().await;
    let url = with(&server.url(), WITH_LONG);
    // Keys of another prefix, or of another program, are none of its business.
    let () = server.told("MSET other:{a}:mark 7 leasehold 7").await;
    init(&url).await.expect("it is new");
    let store = open(&url).await;
    granted(&*store, &claim("a", LONG)).await;
    let snapshot = server.snapshot().await;
    server.restart_from(&snapshot).await;
    assert_kept_out(&*store, &claim("b", LONG)).await;
}

#[tokio::test]
async fn the_wait_that_a_first_claim_began_is_ended_and_no_other() {
    let mut server = RedisServer::start().await;
    let url = with(&server.url(), WITH_LONG);
    let store = open(&url).await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
    let snapshot = server.snapshot().await;
    init(&url).await.expect("it is new");
    granted(&*store, &claim("a", LONG)).await;
    // What the server granted since, the snapshot lacks.
    server.restart_from(&snapshot).await;
    assert_kept_out(&*store, &claim("b", LONG)).await;
    let error = init(&url).await.expect_err("it was started since");
    assert!(error.to_string().contains("set up already"), "{error}");
    assert_kept_out(&*store, &claim("b", LONG)).await;
}

#[tokio::test]
async fn the_master_of_a_new_group_is_set_up_and_its_successor_keeps_out() {
    let group = RedisGroup::start().await;
    let url = with(&group.url(), WITH_LONG);
    init(&url).await.expect("it is new");
    granted(&*open(&url).await, &claim("a", LONG)).await;
    group.fail_over().await;
    let master = group.master_after(0).await;
    let store = open(&with(&group.servers[master].url(), WITH_LONG)).await;
    assert_kept_out(&*store, &claim("b", LONG)).await;
}

#[tokio::test]
async fn a_server_that_is_not_new_is_refused_with_the_reason_and_unchanged() {
    let held = RedisServer::start().await;
    granted(&*open(&held.url()).await, &claim("a", LONG)).await;
    let marked = RedisServer::start().await;
    next_token(&*open(&marked.url()).await, "a").await;
    let (kept_out, _store) = settled(Setup::default()).await;
    let foreign = RedisServer::start().await;
    let () = foreign.told("SET leasehold:node x").await;
    let queued = RedisServer::start().await;
    let _: i64 = queued.told("ZADD leasehold:{a}:queue 1 x").await;
    for (server, setting, reason) in [
        (&held, WITH_LONG, "it has leases or marks"),
        (&marked, WITH_LONG, "it has leases or marks"),
        (&queued, WITH_LONG, "it has leases or marks"),
        (
            &kept_out,
            WITH_LONG,
            "is set up already key=\"leasehold:node\" max_ttl=60s",
        ),
        (
            &kept_out,
            "max_ttl=61s",
            "is set up already key=\"leasehold:node\" max_ttl=60s",
        ),
        (&foreign, WITH_LONG, "of another form"),
    ] {
        let before = server.contents().await;
        let refused = init(&with(&server.url(), setting)).await;
        let error = refused.expect_err("not new");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(server.contents().await, before, "{reason}");
    }
}

#[tokio::test]
async fn without_the_right_to_info_a_set_up_is_denied_and_names_it() {
    let server = RedisServer::start().await;
    let () = server.told(&least_rights()).await;
    let user = with(&server.url(), "user=leasehold&pass=secret");
    let error = init(&with(&user, WITH_LONG)).await.expect_err("denied");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(chain(&error).contains("+info"), "{error:?}");
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn what_cannot_be_set_up_is_refused_by_its_name() {
    for (url, said) in [
        ("redis://a", "without a longest ttl"),
        ("redis+sentinel://a/main", "without a longest ttl"),
        ("redis+cluster://a", "a cluster does not keep out"),
        (
            "redis+cluster://a?max_ttl=60s",
            "a cluster does not keep out",
        ),
        (
            "zookeeper://a",
            "this store needs no set-up; expected redis://",
        ),
        ("memory:", "this store needs no set-up; expected redis://"),
    ] {
        let error = init(url).await.expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains(said), "{url}: {error}");
        let error = store::init_script(url, TableSettings::default()).expect_err(url);
        assert!(error.to_string().contains(said), "{url}: {error}");
    }
    let mut settings = TableSettings::default();
    settings.max_ttl = Some(LONG);
    let refused = store::init("redis://a?max_ttl=60s", settings, LIMIT).await;
    let error = refused.expect_err("it is that of a table");
    assert!(error.to_string().contains("in its URL"), "{error}");
    let store = Redis::builder("redis://a").build().expect("in order");
    let error = store.init(LIMIT).await.expect_err("no longest ttl");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn the_longest_ttl_of_a_server_that_was_set_up_is_that_of_the_builder() {
    let server = RedisServer::start().await;
    let builder = Redis::builder(&server.url()).prefix("mine");
    let store = builder.max_ttl(Duration::from_millis(1_500)).build();
    let store = store.expect("in order");
    store.init(LIMIT).await.expect("it is new");
    let known: u64 = server.told("HGET mine:node keep_out").await;
    assert_eq!(known, 1_500);
}
