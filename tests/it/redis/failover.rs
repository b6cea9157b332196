//! Two servers of which one follows the other: what a client behind one address goes through when they change roles,
//! and, with clocks that differ, what the promises do not cover, and what still protects then.

use std::time::Duration;

use leasehold::store::{Answer, Outcome, Purpose, Store};
use leasehold::{Attempt, Client, ErrorKind, OutagePolicy};

use super::open;
use crate::harness::asking::{asked, chain, claim, granted, next_token, renewal, renewed};
use crate::harness::leases::client_at;
use crate::harness::proxy::Proxy;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};

/// A master, and a server to come after it whose clock is ahead by so much, or behind.
async fn pair_ahead(ahead_ms: i64) -> (RedisServer, RedisServer) {
    let master = Setup::default().with_port().start().await;
    let replica = Setup::default().with_clock().start().await;
    replica.step_clock(ahead_ms).await;
    (master, replica)
}

#[tokio::test]
async fn a_replica_whose_clock_is_ahead_grants_early_but_under_a_higher_token() {
    let (mut master, replica) = pair_ahead(3_000).await;
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
        match asked(&*after, &rival, LONG).await.expect("it is promoted") {
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
    let (mut master, replica) = pair_ahead(-5_000).await;
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
    let lifted = granted(&*after, &claim("a", LONG).with_floor(last)).await;
    assert!(lifted > last, "{lifted} after {last}");
    replica.assert_all_keys_run_out().await;
}

/// A master, its replica, and one address that leads to the master.
async fn behind_one_address() -> (RedisServer, RedisServer, Proxy) {
    let master = Setup::default().with_port().start().await;
    let replica = Setup::default().with_port().start().await;
    replica.follow(&master).await;
    let address = master.proxy().await;
    (master, replica, address)
}

/// Returns once a client listens to this server for its grant of the name `a`.
async fn listened_to(server: &RedisServer) {
    until("the subscription", async || {
        let channels: Vec<String> = server.told("PUBSUB CHANNELS leasehold:{a}:granted:*").await;
        (!channels.is_empty()).then_some(())
    })
    .await;
}

/// Its old subscription stays open: it would hear of grants by way of a replica, and the master would pass it over.
#[tokio::test]
async fn who_waits_behind_one_address_listens_to_the_new_master() {
    let (first, second, address) = behind_one_address().await;
    let ttl = Duration::from_secs(3);
    let lease = client_at(&address.url(), ttl).await.acquire("a").await;
    let lease = lease.expect("granted");
    let client = client_at(&address.url(), ttl).await;
    let request = client.request("a").on_outage(OutagePolicy::WaitOut);
    let waits = tokio::spawn(request.acquire());
    listened_to(&first).await;
    caught_up(&second, &first).await;
    second.promote().await;
    address.lead_to(&second.socket());
    first.follow(&second).await;
    listened_to(&second).await;
    lease.check().expect("it is renewed at the new master");
    lease.release().await;
    let next = waits.await.expect("it waits").expect("granted");
    next.check().expect("held");
}

/// Returns once the replica has what the master has.
pub(super) async fn caught_up(replica: &RedisServer, master: &RedisServer) {
    until("the replica's data", async || {
        (replica.contents().await == master.contents().await).then_some(())
    })
    .await;
}

/// Makes it a replica without a master, as a server is while its successor is being chosen.
async fn demote(master: &RedisServer) {
    let () = master.told("REPLICAOF 127.0.0.1 1").await;
}

#[tokio::test]
async fn a_demoted_master_is_left_for_the_one_behind_the_same_address() {
    let (first, second, address) = behind_one_address().await;
    let client = client_at(&address.url(), Duration::from_secs(3)).await;
    let lease = client.acquire("a").await.expect("granted");
    caught_up(&second, &first).await;
    second.promote().await;
    address.lead_to(&second.socket());
    first.follow(&second).await;
    for _ in 0..4 {
        let deadline = lease.term().expect("it is held").deadline();
        let renewed = lease.renewed_past(deadline).await;
        renewed.expect("it is renewed at the new master");
    }
    let attempt = client
        .try_acquire("b")
        .await
        .expect("the new master answers");
    assert!(matches!(attempt, Attempt::Acquired(_)), "{attempt:?}");
    lease.check().expect("the lease outlived the failover");
}

/// The successor is slower than the first new connection, which leads to the demoted master once more.
#[tokio::test]
async fn a_demoted_master_is_left_within_seconds_however_long_the_leases_are() {
    let (first, second, address) = behind_one_address().await;
    let builder = Client::builder().store_url(address.url());
    let client = builder.ttl(Duration::from_secs(3_600)).build().await;
    let client = client.expect("a URL in order");
    let lease = client.acquire("a").await.expect("granted");
    caught_up(&second, &first).await;
    demote(&first).await;
    for _ in 0..2 {
        let error = client.try_acquire("b").await.expect_err("no master");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    second.promote().await;
    address.lead_to(&second.socket());
    let attempt = until("an answer of the new master", async || {
        client.try_acquire("b").await.ok()
    })
    .await;
    assert!(matches!(attempt, Attempt::Acquired(_)), "{attempt:?}");
    lease.check().expect("the lease outlived the failover");
}

#[tokio::test]
async fn waiting_clients_and_holders_survive_a_slow_failover() {
    let (first, second, address) = behind_one_address().await;
    let client = client_at(&address.url(), Duration::from_secs(3)).await;
    let lease = client.acquire("a").await.expect("granted");
    caught_up(&second, &first).await;
    demote(&first).await;
    let error = client
        .try_acquire("b")
        .await
        .expect_err("nobody takes writes");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let waiting = client
        .request("b")
        .on_outage(OutagePolicy::WaitOut)
        .acquire();
    let waiting = tokio::spawn(waiting);
    let begun = now();
    until("a second of failover", async || {
        (now().since(begun) > Duration::from_secs(1)).then_some(())
    })
    .await;
    assert!(!waiting.is_finished());
    second.promote().await;
    address.lead_to(&second.socket());
    let waited = waiting.await.expect("no panic");
    let _granted = waited.expect("it is granted by the new master");
    lease.check().expect("the lease outlived the failover");
}

#[tokio::test]
async fn a_replica_is_misconfigured_at_first_contact_and_unavailable_after_a_write() {
    let (first, _second, address) = behind_one_address().await;
    let store = open(&address.url()).await;
    let holder = claim("a", LONG);
    granted(&*store, &holder).await;
    let own = store
        .on_own_connection(Purpose::Watchdog)
        .await
        .expect("a connection");
    let strangers = open(&address.url()).await;
    for (stale, code) in [("yes", "READONLY"), ("no", "MASTERDOWN")] {
        let () = first
            .told(&format!("CONFIG SET replica-serve-stale-data {stale}"))
            .await;
        demote(&first).await;
        for (store, kind) in [
            (&store, ErrorKind::Unavailable),
            (&own, ErrorKind::Unavailable),
            (&strangers, ErrorKind::Misconfigured),
        ] {
            for error in replica_errors(&**store).await {
                assert_eq!(error.kind(), kind, "{code}: {error:?}");
                let text = chain(&error);
                assert!(text.contains(code), "{text}");
            }
        }
    }
    first.promote().await;
    assert!(matches!(renewed(&*own, &holder).await, Outcome::Renewed));
}

/// What a claim and the renewal of what was once granted fail with.
async fn replica_errors(store: &dyn Store) -> [leasehold::Error; 2] {
    let acquired = asked(store, &claim("b", LONG), LIMIT).await;
    let unknown = claim("unknown", LONG);
    let mut outcomes = store.renew(&[renewal(&unknown)], LIMIT).await.outcomes;
    match outcomes.pop() {
        Some(Outcome::Unknown(error)) => [acquired.expect_err("it takes no writes"), error],
        other => panic!("a replica knows nothing for certain: {other:?}"),
    }
}
