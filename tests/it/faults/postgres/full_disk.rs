//! The disk fills up: the files of the tables, or those of the log as well.

use std::time::Duration;

use leasehold::store::{Outcome, Store};
use leasehold::{Client, ErrorKind};

use crate::harness::asking::{asked, claim, granted, next_token, renewed};
use crate::harness::full_disk::Full;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{lost, until};
use crate::postgres::{open, set_up};

const TTL: Duration = Duration::from_secs(3);

/// Claims new names until the table has no room for one more.
async fn first_refusal(store: &dyn Store) -> leasehold::Error {
    for index in 0..2_000 {
        let claim = claim(&format!("filler-{index}"), LONG);
        if let Err(error) = asked(store, &claim, LIMIT).await {
            return error;
        }
    }
    panic!("the disk is full, and 2,000 names were granted");
}

#[tokio::test]
async fn where_the_tables_cannot_grow_claims_are_refused_unharmed_and_renewals_go_on() {
    let (server, disk) = PostgresServer::start_with_disk(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let store = open(&database.url());
    let kept = claim("kept", LONG);
    granted(&*store, &kept).await;
    let token = next_token(&*store, "free").await;
    disk.set(Full::Data);
    let error = first_refusal(&*store).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    // A name with a row needs no more room.
    assert!(matches!(renewed(&*store, &kept).await, Outcome::Renewed));
    assert!(next_token(&*store, "free").await > token);
    disk.set(Full::Nothing);
    granted(&*store, &claim("after", LONG)).await;
    assert!(matches!(renewed(&*store, &kept).await, Outcome::Renewed));
}

#[tokio::test]
async fn on_a_full_log_the_holder_is_told_by_its_deadline_and_tokens_rise() {
    let (server, disk) = PostgresServer::start_with_disk(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let store = open(&database.url());
    let client = Client::builder().shared_store(store.clone()).ttl(TTL);
    let client = client.build().await.expect("a client");
    let lease = client.acquire("a").await.expect("granted");
    let stranger = database.connect().await;
    disk.set(Full::DataAndLog);
    // Another program writes until the log needs a further file; then the whole server stops.
    let fill = "SELECT pg_logical_emit_message(false, 'full', repeat('x', 1000000))";
    until("the end of the log's room", async || {
        stranger.query_one(fill, &[]).await.err()
    })
    .await;
    lost(&lease).await;
    let refused = asked(&*store, &claim("b", TTL), LIMIT).await;
    let error = refused.expect_err("the server is down");
    assert!(
        [ErrorKind::Unavailable, ErrorKind::TimedOut].contains(&error.kind()),
        "{error:#}"
    );
    disk.set(Full::Nothing);
    server.order_end("QUIT");
    server.start_again().await;
    let next = until("a grant", async || client.acquire("a").await.ok()).await;
    assert!(next.token() > lease.token());
}
