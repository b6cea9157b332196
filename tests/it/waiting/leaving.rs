//! The ways out: release, shutdown, and what ends without a word.

use std::time::Duration;

use leasehold::clock::{Boottime, Clock};
use leasehold::{ErrorKind, LossReason, ReleaseOutcome};

use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, client_at, take};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{PATIENCE, TTL};
use crate::harness::wait::{soon, until_so};

#[tokio::test]
async fn a_second_shutdown_finds_nothing_left() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let holder = tokio::spawn(async move { lease.lost().await });
    let (one, other) = tokio::join!(client.shutdown(PATIENCE), client.shutdown(PATIENCE));
    assert!(one && other);
    assert_eq!(holder.await.unwrap(), LossReason::Shutdown);
    assert!(soon(client.shutdown(PATIENCE)).await);
    assert!(store.held("a").await.is_none());
}

#[tokio::test]
async fn a_client_that_is_dropped_without_a_shutdown_ends_its_threads() {
    let store = FaultyStore::new();
    let (holder, waiting) = (client(&store).await, client(&store).await);
    let lease = take(&holder, "a").await;
    let error = waiting.acquire_within("a", TTL / 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop((holder, waiting));
    lease.check().unwrap();
    drop(lease);
    // Watchdogs and the subscription each have a handle of the store.
    until_so("the threads to end", async || store.handles() == 1).await;
    assert!(store.held("a").await.is_none());
}

#[tokio::test]
async fn a_release_and_a_shutdown_are_bounded_while_the_server_is_silent() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let ttl = Duration::from_secs(3);
    let client = client_at(&proxy.url(), ttl).await;
    let lease = client.acquire("a").await.unwrap();
    let other = client.acquire("b").await.unwrap();
    proxy.stall();
    let started = Boottime.now();
    assert_eq!(lease.release().await, ReleaseOutcome::Unknown);
    let took = Boottime.now().since(started);
    assert!(took < ttl / 2, "release took {took:?}");
    let started = Boottime.now();
    drop(other);
    assert!(!client.shutdown(Duration::from_millis(300)).await);
    let took = Boottime.now().since(started);
    assert!(took < ttl / 2, "shutdown took {took:?}");
    proxy.flow();
    until_so("the releases", async || {
        let keys = server.keys().await;
        keys.iter().all(|key| key.ends_with("}:mark"))
    })
    .await;
}

#[test]
fn a_lease_on_a_server_outlives_the_runtime_it_was_acquired_on() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (short, long) = (runtime(), runtime());
    let server = long.block_on(RedisServer::start());
    let ttl = Duration::from_secs(1);
    let (client, lease) = short.block_on(async {
        let client = client_at(&server.url(), ttl).await;
        let lease = client.acquire("a").await.unwrap();
        (client, lease)
    });
    drop(short);
    long.block_on(async {
        let mut term = lease.term().unwrap();
        for _ in 0..4 {
            term = lease.renewed_past(term.deadline()).await.expect("held");
        }
        // The connection of the runtime that is gone is replaced; the first request may be the one to find out.
        let second = client
            .request("b")
            .on_outage(leasehold::OutagePolicy::WaitOut);
        let second = soon(second.acquire()).await.unwrap();
        assert_eq!(second.release().await, ReleaseOutcome::Released);
        drop(lease);
        until_so("the release", async || {
            let keys = server.keys().await;
            keys.iter().all(|key| key.ends_with("}:mark"))
        })
        .await;
    });
}
