//! Behind PgBouncer in transaction mode, where every statement may meet another server connection.

use std::future::ready;

use leasehold::ErrorKind;
use leasehold::store::conformance;
use leasehold::store::spi::Facts;

use super::{open, set_up};
use crate::harness::asking::{asked, chain, claim, granted, renewed};
use crate::harness::pgbouncer::PgBouncer;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::{LIMIT, LONG};

#[tokio::test]
async fn a_transaction_pooler_keeps_the_contract_and_its_silence_about_notices_is_found_out() {
    let database = PostgresServer::database().await;
    let pooler = PgBouncer::before(&database, 3).await;
    set_up(&pooler.url()).await;
    let url = pooler.url();
    // It swallows LISTEN.
    let without_notices = |mut facts: Facts| {
        facts.has_notices = false;
        facts
    };
    conformance::check_as(move || ready(open(&url)), without_notices, 0).await;
}

#[tokio::test]
async fn a_lease_outlives_its_pooler() {
    let database = PostgresServer::database().await;
    let pooler = PgBouncer::before(&database, 1).await;
    set_up(&pooler.url()).await;
    let store = open(&pooler.url());
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let pooler = pooler.again(&database).await;
    assert!(matches!(
        renewed(&*store, &claim).await,
        leasehold::store::Outcome::Renewed
    ));
    drop(pooler);
}

#[tokio::test]
async fn the_probe_for_notices_leaves_nothing_in_a_pooled_connection() {
    let database = PostgresServer::database().await;
    let pooler = PgBouncer::before(&database, 1).await;
    set_up(&pooler.url()).await;
    for _ in 0..3 {
        let notices = open(&pooler.url()).notices().await;
        assert!(notices.expect("answered").is_none(), "it swallows LISTEN");
    }
    let (client, connection) = tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls)
        .await
        .expect("it answers");
    tokio::spawn(connection);
    let rows = client.simple_query("SELECT pg_listening_channels()").await;
    let rows = rows.expect("answered");
    let left = rows
        .iter()
        .filter(|row| matches!(row, tokio_postgres::SimpleQueryMessage::Row(_)));
    assert_eq!(left.count(), 0, "{rows:?}");
}

#[tokio::test]
async fn a_database_that_the_pooler_does_not_know_is_misconfigured() {
    let database = PostgresServer::database().await;
    let pooler = PgBouncer::before(&database, 1).await;
    let url = pooler.url().replace(database.name(), "nowhere");
    let refused = asked(&*open(&url), &claim("a", LONG), LIMIT).await;
    let error = refused.expect_err("there is no such database");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{}", chain(&error));
}
