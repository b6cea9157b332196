//! Every store keeps the contract.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::memory::Memory;
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Store, conformance, open};
use tokio::time::sleep;

use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::RedisServer;
use crate::postgres;

/// Checks the store at this URL.
pub(crate) async fn check_at(url: String) {
    conformance::check(move || opened(url.clone())).await;
}

async fn opened(url: String) -> Arc<dyn Store> {
    open(&url).await.expect("a URL in order")
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    let store = Memory::new();
    conformance::check(move || ready(Arc::new(store.clone()) as _)).await;
}

/// Every other time it opens after all short ttls of the checks.
#[tokio::test]
async fn a_store_that_opens_slowly_at_times_keeps_the_contract() {
    let store = Memory::new();
    let opened = AtomicUsize::new(0);
    let open = move || {
        let store = store.clone();
        let is_slow = opened.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        async move {
            sleep(Duration::from_secs(u64::from(is_slow))).await;
            Arc::new(store) as _
        }
    };
    conformance::check(open).await;
}

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.sqlite");
    let open = move || {
        let store = Sqlite::open(path.clone());
        async { Arc::new(store.await.expect("it opens")) as _ }
    };
    conformance::check(open).await;
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let server = RedisServer::start().await;
    check_at(server.url()).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_quorum_of_three_keeps_the_contract() {
    a_quorum_keeps_the_contract(3).await;
}

#[tokio::test]
async fn a_quorum_of_three_with_a_dead_member_keeps_the_contract() {
    a_quorum_without_a_member_keeps_the_contract(3, RedisServer::kill).await;
}

#[tokio::test]
async fn a_quorum_of_five_keeps_the_contract() {
    a_quorum_keeps_the_contract(5).await;
}

async fn a_quorum_keeps_the_contract(members: usize) {
    let quorum = Arc::new(RedisQuorum::start(members).await);
    let opened = quorum.clone();
    conformance::check(move || ready(Arc::new(opened.open()) as _)).await;
    for server in &quorum.servers {
        server.assert_all_keys_run_out().await;
    }
}

/// Checks a quorum of so many members, to one of which this was done: it does not answer.
pub(crate) async fn a_quorum_without_a_member_keeps_the_contract(
    members: usize,
    silence: impl Fn(&mut RedisServer),
) {
    let mut quorum = RedisQuorum::start(members).await;
    silence(&mut quorum.servers[members - 1]);
    let quorum = Arc::new(quorum);
    let opened = quorum.clone();
    let open = move || ready(Arc::new(opened.open()) as _);
    conformance::check_as(open, |facts| facts, 1).await;
    for server in &quorum.servers[..members - 1] {
        server.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn postgres_keeps_the_contract() {
    let url = PostgresServer::database().await.url();
    postgres::set_up(&url).await;
    check_at(url).await;
}
