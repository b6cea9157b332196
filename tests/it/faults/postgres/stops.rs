//! Every way in which a server stops, under a client that holds a lease.

use std::time::Duration;

use leasehold::Client;

use crate::harness::postgres_server::PostgresServer;
use crate::harness::relay::{Passing, Relay};
use crate::harness::wait::{lost, now};
use crate::postgres::{open, set_up};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_holder_outlives_a_restart_and_is_told_in_time_of_a_longer_stop() {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let client = Client::builder()
        .shared_store(open(&database.url()))
        .ttl(TTL)
        .build()
        .await;
    let client = client.unwrap();
    let lease = client.acquire("a").await.unwrap();
    for signal in ["INT", "QUIT"] {
        server.end(signal).await;
        server.start_again().await;
        // Long enough for the lease to be over, had it not been renewed.
        tokio::time::sleep(TTL).await;
        lease.check().expect("renewed after a restart");
    }
    server.end("INT").await;
    let stopped_at = now();
    lost(&lease).await;
    assert!(
        now() < stopped_at.after(TTL),
        "told after the store could grant it again"
    );
}

#[tokio::test]
async fn a_holder_behind_a_black_hole_is_told_before_a_rival_is_granted() {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let relay = Relay::before(&database.socket()).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", relay.port());
    let client = Client::builder()
        .shared_store(open(&url))
        .ttl(TTL)
        .build()
        .await;
    let lease = client.unwrap().acquire("a").await.unwrap();
    relay.pass(Passing::Nothing);
    let rival = Client::builder()
        .shared_store(open(&database.url()))
        .ttl(TTL)
        .build()
        .await;
    let rival = rival.unwrap();
    let (_, second) = tokio::join!(lost(&lease), rival.acquire("a"));
    assert!(lease.check().is_err());
    assert!(second.unwrap().token() > lease.token());
}

#[tokio::test]
async fn another_program_that_locks_the_table_costs_the_lease_and_never_overlaps() {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let client = Client::builder()
        .shared_store(open(&database.url()))
        .ttl(TTL)
        .build()
        .await;
    let client = client.unwrap();
    let lease = client.acquire("a").await.unwrap();
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; LOCK TABLE leasehold.lease")
        .await
        .expect("locked");
    lost(&lease).await;
    stranger.batch_execute("COMMIT").await.expect("let go");
    let next = client.acquire("a").await.unwrap();
    assert!(next.token() > lease.token());
}
