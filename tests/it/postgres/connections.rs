//! How many connections there are, what they carry, and that one that is lost is found again.

use std::time::Duration;

use leasehold::store::Release;
use leasehold::{Client, ClientId};

use super::{database, open, store};
use crate::harness::asking::{asked, claim, granted, next_token, released};
use crate::harness::postgres_server::Database;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};

/// How many connections of ours this database has.
pub(super) async fn count_connections(database: &Database) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'leasehold'";
    let row = database.connect().await.query_one(sql, &[]).await;
    row.expect("answered").get(0)
}

#[tokio::test]
async fn a_second_connection_is_opened_only_when_the_first_is_busy() {
    let (database, store) = store().await;
    for _ in 0..10 {
        next_token(&*store, "a").await;
    }
    assert_eq!(count_connections(&database).await, 1);
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..64 {
        let store = store.clone();
        tasks.spawn(async move { next_token(&*store, &format!("n{index}")).await });
    }
    tasks.join_all().await;
    let count = count_connections(&database).await;
    assert!((2..=10).contains(&count), "{count} connections");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_the_next_request_opens_one() {
    let (database, store) = store().await;
    next_token(&*store, "a").await;
    let end = now().after(Duration::from_secs(20));
    while count_connections(&database).await > 0 {
        assert!(now() < end, "still there");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    next_token(&*store, "a").await;
}

#[tokio::test]
async fn a_connection_that_the_server_ended_is_replaced() {
    let (database, store) = store().await;
    // The server's list is a moment ahead of the client: a request of that moment fails, and the next one connects.
    let served = async || {
        until("a grant", async || {
            let claim = claim(&ClientId::draw().to_string(), LONG);
            asked(&*store, &claim, LIMIT).await.ok()?;
            Some(released(&*store, &claim).await)
        })
        .await
    };
    for _ in 0..3 {
        assert_eq!(served().await, Release::Released);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'leasehold'";
        database
            .connect()
            .await
            .query(end, &[])
            .await
            .expect("ended");
        until("the end of the connection", async || {
            (count_connections(&database).await == 0).then_some(())
        })
        .await;
    }
    assert_eq!(served().await, Release::Released);
}

/// As after an upgrade of the system under the server: each login is warned of another version of a collation.
#[tokio::test]
async fn a_warning_at_the_login_fails_no_request() {
    let (database, _) = store().await;
    let outdate = "UPDATE pg_database SET datcollversion = '0' WHERE datname = current_database()";
    let administrator = database.connect().await;
    administrator.batch_execute(outdate).await.expect("set");
    granted(&*open(&database.url()), &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_held_lease_costs_a_connection_for_its_watchdog_and_one_for_requests() {
    let (database, store) = store().await;
    let client = Client::builder().shared_store(store).build().await;
    let _lease = client.unwrap().acquire("a").await.unwrap();
    assert!(count_connections(&database).await <= 2);
}

#[tokio::test]
async fn nothing_is_set_on_the_session_and_nothing_prepared() {
    let database = database().await;
    let store = open(&format!("{}&connections=1", database.url()));
    next_token(&*store, "a").await;
    let sql = "SELECT query FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'leasehold'";
    let row = database.connect().await.query_one(sql, &[]).await;
    let query: String = row.expect("one connection").get(0);
    assert!(query.starts_with("SELECT \"leasehold\"."), "{query}");
}

#[tokio::test]
async fn a_store_serves_another_runtime_after_the_first_one_ended() {
    let (_database, store) = store().await;
    let first = store.clone();
    let token = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(next_token(&*first, "a"))
    });
    let before = token.join().expect("it ran");
    let claim = claim("a", LONG);
    assert!(granted(&*store, &claim).await > before);
}

/// Claims in the queue, which write the row, for a name whose row a stranger locks: so many, one after the other, on so few
/// connections that they occupy each.
async fn claims_for_a_locked_row(apart: Duration, count: u32) {
    let database = database().await;
    let store = open(&format!("{}&connections=4", database.url()));
    granted(&*store, &claim("locked", LONG)).await;
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; SELECT FROM leasehold.lease WHERE name = 'locked' FOR UPDATE")
        .await
        .expect("locked");
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (store, mut claim) = (store.clone(), claim("locked", LONG));
        claim.ask.queued = Some(leasehold::store::Queued::new(LONG));
        waiting.spawn(async move { asked(&*store, &claim, LIMIT).await });
        tokio::time::sleep(apart).await;
    }
    for _ in 0..5 {
        let begun = now();
        granted(&*store, &claim(&ClientId::draw().to_string(), LONG)).await;
        let took = now().since(begun);
        assert!(took < Duration::from_millis(750), "{took:?}");
    }
    stranger.batch_execute("COMMIT").await.expect("unlocked");
    while let Some(waited) = waiting.join_next().await {
        waited.expect("it ran").expect("answered");
    }
}

#[tokio::test]
async fn claims_at_once_for_a_locked_row_delay_no_claim_for_another_name() {
    claims_for_a_locked_row(Duration::ZERO, 4).await;
}

#[tokio::test]
async fn claims_in_turn_for_a_locked_row_delay_no_claim_for_another_name() {
    claims_for_a_locked_row(Duration::from_millis(80), 5).await;
}
