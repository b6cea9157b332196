//! A server that may have lost data grants nothing until what it forgot is over, and goes on with what it still has.

mod init;
mod promotions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::store::redis::Redis;
use leasehold::store::{Answer, HeldState, Outcome, Purpose, Release, Store};
use leasehold::{ErrorKind, LossReason};

use super::open;
use super::rights::{DESCRIPTION, least_rights};
use crate::conformance::check_at;
use crate::harness::asking::{
    Asking, asked, chain, claim, granted, held, queued, released, renewed,
};
use crate::harness::leases::{client_at, take};
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG, STORED_TTL};
use crate::harness::wait::{lost, now, until};

/// The longest ttl of these servers, and so the time of their keep-out.
const MAX_TTL: Duration = STORED_TTL;
/// A ttl that no test outlives is longer than that: a server with it is settled by hand.
const WITH_LONG: &str = "max_ttl=60s";
/// The right that the description asks for in addition.
const FOR_KEEP_OUT: &str = "+info";
/// How much sooner the server's clock may see the end than ours, both being read in milliseconds.
const ROUNDED: Duration = Duration::from_millis(5);

fn with(url: &str, setting: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{setting}")
}

fn keeping_out(url: &str) -> String {
    with(url, &format!("max_ttl={}s", MAX_TTL.as_secs()))
}

/// Ends a keep-out before its time.
async fn settle(server: &RedisServer) {
    let _: i64 = server.told("HSET leasehold:node ready 0").await;
}

/// A server with leases of up to a minute that has been in use for a while, and its store.
async fn settled(setup: Setup) -> (RedisServer, Arc<dyn Store>) {
    let server = setup.start().await;
    let store = open(&with(&server.url(), WITH_LONG)).await;
    assert_kept_out(&*store, &claim("first", LONG)).await;
    settle(&server).await;
    (server, store)
}

async fn assert_kept_out(store: &dyn Store, claim: &Asking) -> Duration {
    let held = held(store, claim).await;
    assert_eq!(
        (held.state, held.by),
        (HeldState::KeepOut, None),
        "{held:?}"
    );
    held.remaining.expect("it is known")
}

/// When this claim, sent again and again, is granted. Until then the server keeps out.
async fn granted_at(store: &dyn Store, claim: &Asking) -> Instant {
    until("the grant", async || {
        match asked(store, claim, LIMIT).await.ok()? {
            Answer::Granted(_) => Some(now()),
            Answer::Held(held) => {
                let expected = [HeldState::KeepOut, HeldState::Leased];
                assert!(expected.contains(&held.state), "{held:?}");
                None
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_server_that_was_never_used_grants_nothing_until_the_longest_ttl_is_over() {
    let server = RedisServer::start().await;
    let store = open(&keeping_out(&server.url())).await;
    let first = claim("a", MAX_TTL);
    let began_at = now();
    let left = assert_kept_out(&*store, &first).await;
    assert!(left > MAX_TTL && left < MAX_TTL * 11 / 10, "{left:?}");
    let granted_at = granted_at(&*store, &first).await;
    assert!(granted_at.since(began_at) > MAX_TTL - ROUNDED);
    // From then on it grants at once.
    granted(&*store, &claim("b", MAX_TTL)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_flush_the_holder_is_told_before_a_rival_is_granted() {
    let server = RedisServer::start().await;
    let url = keeping_out(&server.url());
    let rivals = open(&url).await;
    granted_at(&*rivals, &claim("first", MAX_TTL)).await;
    let client = client_at(&url, MAX_TTL).await;
    let lease = take(&client, "a").await;
    let () = server.told("FLUSHALL").await;
    let flushed_at = now();
    let rival = claim("a", MAX_TTL);
    let ((told_at, reason), granted_at) = tokio::join!(
        async {
            let reason = lost(&lease).await;
            (now(), reason)
        },
        granted_at(&*rivals, &rival),
    );
    assert!(
        matches!(reason, LossReason::Refused | LossReason::Deadline),
        "{reason:?}"
    );
    assert!(
        granted_at > told_at,
        "{:?} before",
        told_at.since(granted_at)
    );
    assert!(granted_at.since(flushed_at) > MAX_TTL - ROUNDED);
}

#[tokio::test]
async fn after_a_restart_with_its_data_leases_are_renewed_and_released_and_nothing_is_granted() {
    let (mut server, store) = settled(Setup::default()).await;
    let (stays, goes) = (claim("stays", LONG), claim("goes", LONG));
    granted(&*store, &stays).await;
    granted(&*store, &goes).await;
    let snapshot = server.snapshot().await;
    server.restart_from(&snapshot).await;
    assert!(matches!(renewed(&*store, &stays).await, Outcome::Renewed));
    released(&*store, &goes).await;
    for name in ["goes", "stays", "new"] {
        assert_kept_out(&*store, &claim(name, LONG)).await;
    }
    // Not even to the holder itself: the snapshot may be older than what another holder was granted.
    assert_kept_out(&*store, &stays).await;
    settle(&server).await;
    granted(&*store, &claim("goes", LONG)).await;
    assert_eq!(
        held(&*store, &claim("stays", LONG)).await.by,
        Some(stays.holder)
    );
}

#[tokio::test]
async fn a_server_that_restarts_empty_keeps_out_of_claims_on_old_connections_too() {
    let (mut server, store) = settled(Setup::default()).await;
    granted(&*store, &claim("a", LONG)).await;
    server.restart_empty().await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn clients_without_the_setting_obey_a_server_that_keeps_out() {
    let server = RedisServer::start().await;
    // One connects before there is a key that could be obeyed.
    let (before, after) = (open(&server.url()).await, open(&server.url()).await);
    granted(&*before, &claim("old", LONG)).await;
    let keeping = open(&with(&server.url(), WITH_LONG)).await;
    assert_kept_out(&*keeping, &claim("a", LONG)).await;
    for store in [&before, &after] {
        assert_kept_out(&**store, &claim("a", LONG)).await;
    }
    settle(&server).await;
    granted(&*before, &claim("a", LONG)).await;
    let too_long = claim("b", LONG * 2);
    let error = asked(&*before, &too_long, LIMIT)
        .await
        .expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    let said = error.to_string();
    assert!(said.contains("ttl=120s max_ttl=60s"), "{said}");
}

#[tokio::test]
async fn a_client_with_another_longest_ttl_is_misconfigured_and_changes_nothing() {
    let (server, _store) = settled(Setup::default()).await;
    let before = server.contents().await;
    let other = open(&with(&server.url(), "max_ttl=61s")).await;
    let error = asked(&*other, &claim("a", LONG), LIMIT)
        .await
        .expect_err("it differs");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let said = chain(&error);
    assert!(
        said.contains("max_ttl=61s") && said.contains("expected=60s"),
        "{said}"
    );
    assert_eq!(server.contents().await, before);
}

#[tokio::test]
async fn a_ttl_above_the_longest_is_invalid_before_anything_is_sent() {
    let server = RedisServer::start().await;
    let store = open(&keeping_out(&server.url())).await;
    assert_eq!(store.facts().max_ttl, Some(MAX_TTL));
    let client = leasehold::Client::builder()
        .shared_store(store)
        .build()
        .await
        .expect("in order");
    let asked = client.request("a").ttl(MAX_TTL * 2).try_acquire().await;
    let error = asked.expect_err("too long");
    assert!(error.to_string().contains("at most 2s"), "{error}");
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn those_who_wait_in_turn_keep_their_places_while_a_server_keeps_out() {
    let (mut server, store) = settled(Setup::default()).await;
    let (holder, first, second) = (claim("a", LONG), queued("a", LONG), queued("a", LONG));
    granted(&*store, &holder).await;
    held(&*store, &first).await;
    held(&*store, &second).await;
    let snapshot = server.snapshot().await;
    server.restart_from(&snapshot).await;
    // The server may have forgotten who has the name, so the release grants it to no one.
    released(&*store, &holder).await;
    for (claim, ahead) in [(&first, 0), (&second, 1)] {
        let held = held(&*store, claim).await;
        assert_eq!(held.state, HeldState::KeepOut);
        assert_eq!(held.place.map(|place| place.ahead), Some(ahead));
    }
    settle(&server).await;
    assert_eq!(held(&*store, &second).await.by, Some(first.holder));
    granted(&*store, &first).await;
}

#[tokio::test]
async fn a_cluster_that_should_keep_out_is_refused_with_what_helps_there() {
    for built in [
        Redis::open("redis+cluster://a?max_ttl=60s"),
        Redis::builder("redis+cluster://a").max_ttl(LONG).build(),
    ] {
        let error = built.expect_err("not for a cluster");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("acknowledged_by"), "{error}");
    }
}

#[tokio::test]
async fn a_longest_ttl_that_cannot_be_used_is_refused_with_its_value() {
    for (value, said) in [
        ("60", "its max_ttl is not a duration"),
        ("", "its max_ttl is not a duration"),
        ("1ms", "1ms"),
        ("2days", "172800s"),
    ] {
        let error = Redis::open(&format!("redis://a?max_ttl={value}")).expect_err(value);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_keeps_out_fulfils_the_contract_with_the_rights_that_are_described() {
    assert!(DESCRIPTION.contains(&format!("keep-out needs `{FOR_KEEP_OUT}`")));
    let server = RedisServer::start().await;
    let () = server
        .told(&format!("{} {FOR_KEEP_OUT}", least_rights()))
        .await;
    let url = with(
        &server.url(),
        &format!("user=leasehold&pass=secret&{WITH_LONG}"),
    );
    let store = open(&url).await;
    assert_kept_out(&*store, &claim("first", LONG)).await;
    settle(&server).await;
    check_at(url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_renews_what_it_has_and_grants_after_the_longest_ttl() {
    let group = RedisGroup::start().await;
    let ttl = Duration::from_secs(5);
    let url = with(&group.url(), "max_ttl=5s");
    let store = open(&url).await;
    granted_at(&*store, &claim("first", ttl)).await;
    let client = client_at(&url, ttl).await;
    let lease = take(&client, "a").await;
    group.fail_over().await;
    // Until it is demoted, the old master grants free names.
    let names = AtomicU32::new(0);
    let (began_at, rival) = until("the first answer of the new master", async || {
        let name = format!("new-{}", names.fetch_add(1, Ordering::Relaxed));
        let rival = claim(&name, ttl);
        match asked(&*store, &rival, LIMIT).await.ok()? {
            Answer::Held(held) if held.state == HeldState::KeepOut => Some((now(), rival)),
            _ => None,
        }
    })
    .await;
    let granted_at = granted_at(&*store, &rival).await;
    assert!(granted_at.since(began_at) > ttl / 2);
    lease.check().expect("its renewals go on");
}

#[tokio::test]
async fn a_holder_without_info_goes_on_when_another_client_turns_keep_out_on() {
    let server = RedisServer::start().await;
    let () = server.told(&least_rights()).await;
    let store = open(&with(&server.url(), "user=leasehold&pass=secret")).await;
    let holder = claim("a", LONG);
    granted(&*store, &holder).await;
    let keeping = open(&with(&server.url(), WITH_LONG)).await;
    assert_kept_out(&*keeping, &claim("b", LONG)).await;
    settle(&server).await;
    let _: i64 = server.told("CLIENT KILL USER leasehold").await;
    let own = store.on_own_connection(Purpose::Watchdog).await;
    let own = own.expect("a connection that asks nothing");
    assert!(matches!(renewed(&*own, &holder).await, Outcome::Renewed));
    let error = asked(&*store, &claim("b", LONG), LIMIT).await;
    let error = error.expect_err("it may not ask whether it may claim");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(chain(&error).contains("+info"), "{error:?}");
    assert_eq!(released(&*store, &holder).await, Release::Released);
}

#[tokio::test]
async fn a_node_key_of_another_type_fails_claims_alone_and_is_named() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let holder = claim("a", LONG);
    granted(&*store, &holder).await;
    let () = server.told("SET leasehold:node x").await;
    let _: i64 = server.told("CLIENT KILL TYPE normal SKIPME no").await;
    let own = store.on_own_connection(Purpose::Watchdog).await;
    let own = own.expect("a connection that asks nothing");
    assert!(matches!(renewed(&*own, &holder).await, Outcome::Renewed));
    for store in [store.clone(), open(&with(&server.url(), WITH_LONG)).await] {
        assert_broken(&*store).await;
    }
    assert_eq!(released(&*store, &holder).await, Release::Released);
}

/// A claim fails and names the key.
async fn assert_broken(store: &dyn Store) {
    let error = asked(store, &claim("b", LONG), LIMIT).await;
    let error = error.expect_err("the key is broken");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let said = chain(&error);
    assert!(said.contains("leasehold:node"), "{said}");
    assert!(!said.contains("0ns"), "{said}");
}

#[tokio::test]
async fn a_node_key_with_a_bad_number_is_named_and_left_as_it_is() {
    let (server, keeping) = settled(Setup::default()).await;
    let obeying = open(&server.url()).await;
    for (field, values) in [
        ("keep_out", ["x", "0", "1e3", "-1", "60000000000000"]),
        ("ready", ["x", "", "1e3", "-1", "17951748147203120"]),
    ] {
        let was: String = server.told(&format!("HGET leasehold:node {field}")).await;
        for value in values {
            if value.is_empty() {
                let _: i64 = server.told(&format!("HDEL leasehold:node {field}")).await;
            } else {
                let row = format!("HSET leasehold:node {field} {value}");
                let _: i64 = server.told(&row).await;
            }
            let before = server.contents().await;
            println!("{field}={value:?}");
            assert_broken(&*obeying).await;
            if field == "ready" {
                assert_broken(&*keeping).await;
            }
            assert_eq!(server.contents().await, before);
        }
        let _: i64 = server
            .told(&format!("HSET leasehold:node {field} {was}"))
            .await;
    }
    let _: i64 = server.told("HDEL leasehold:node keep_out").await;
    assert_broken(&*obeying).await;
    assert_broken(&*keeping).await;
}

#[tokio::test]
async fn keep_out_ends_within_the_longest_ttl_once_a_clock_is_set_right() {
    let server = Setup::default().with_clock().start().await;
    server.step_clock(3 * 3_600_000).await;
    let store = open(&with(&server.url(), WITH_LONG)).await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
    server.step_clock(-3 * 3_600_000).await;
    let left = assert_kept_out(&*store, &claim("a", LONG)).await;
    assert!(left < LONG * 11 / 10, "{left:?}");
    // And it runs out.
    server.step_clock(30_000).await;
    let left = assert_kept_out(&*store, &claim("a", LONG)).await;
    assert!(left < LONG * 3 / 4, "{left:?}");
}

#[tokio::test]
async fn a_dead_holders_name_is_free_in_time_though_the_clock_was_set_back() {
    let server = Setup::default().with_clock().start().await;
    let store = open(&keeping_out(&server.url())).await;
    let granted_soon = async |name: &str| {
        let claim = claim(name, MAX_TTL);
        until("a grant", async || {
            let asked = asked(&*store, &claim, LIMIT).await;
            matches!(asked, Ok(Answer::Granted(_))).then_some(())
        })
        .await;
    };
    granted_soon("a").await;
    server.step_clock(-600_000).await;
    let stepped_at = now();
    granted_soon("a").await;
    // A keep-out, and then a ttl at most.
    let took = now().since(stepped_at);
    assert!(took < MAX_TTL * 3, "{took:?}");
}
