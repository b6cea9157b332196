//! Every store keeps the contract.

use std::sync::Arc;

use leasehold::store::memory::Memory;
use leasehold::store::redis::Redis;
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Store as _, conformance};

use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::RedisServer;
use crate::postgres;

#[tokio::test]
async fn memory_keeps_the_contract() {
    conformance::check(Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Sqlite::open(folder.path().join("leases.sqlite")).await;
    conformance::check(Arc::new(store.expect("it opens"))).await;
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let server = RedisServer::start().await;
    let store = Redis::open(&server.url()).expect("a URL in order");
    conformance::check(Arc::new(store)).await;
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
    let quorum = RedisQuorum::start(members).await;
    conformance::check(Arc::new(quorum.open())).await;
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
    let store = quorum.open();
    silence(&mut quorum.servers[members - 1]);
    let facts = store.facts();
    conformance::check_as(Arc::new(store), facts, 1).await;
    for server in &quorum.servers[..members - 1] {
        server.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn postgres_keeps_the_contract() {
    let url = PostgresServer::database().await.url();
    postgres::set_up(&url).await;
    conformance::check(postgres::open(&url)).await;
}
