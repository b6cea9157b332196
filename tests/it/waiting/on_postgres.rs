//! Waiting on a Postgres server while clients die, freeze and leave, and while the server is started again.

use std::time::Duration;

use leasehold::store::{Answer, Queued};
use leasehold::{Client, Lease, ReleaseOutcome};

use super::{child, waiter};
use crate::harness::asking::{asked, claim, granted, queued, released};
use crate::harness::leases::client_at;
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::times::{LIMIT, LONG, PATIENCE};
use crate::harness::wait::{now, soon, until_so};
use crate::postgres::{open, set_up};

const TTL: Duration = Duration::from_secs(12);

async fn database() -> Database {
    let database = PostgresServer::database().await;
    set_up(&database.url()).await;
    database
}

async fn holder(database: &Database) -> Lease {
    let client = client_at(&database.url(), TTL).await;
    client.request("a").ttl(LONG).acquire().await.unwrap()
}

async fn number(database: &Database, sql: &str) -> i64 {
    let rows = database.connect().await.query(sql, &[]).await;
    rows.unwrap()[0].get(0)
}

/// Returns once so many clients wait at a place that was confirmed while they listened.
async fn until_queued(database: &Database, clients: i64) {
    let sql = "SELECT count(*) FROM leasehold.queue q JOIN leasehold.lease l USING (name)
        WHERE q.holder IS NOT NULL AND q.alive_until > clock_timestamp() AND l.awaited_until > clock_timestamp()";
    until_so("the queue", async || number(database, sql).await == clients).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// A holder, a process that waits first, and a client that waits behind it.
async fn behind_a_process(database: &Database) -> (Lease, crate::harness::subprocess::Subprocess) {
    let lease = holder(database).await;
    let mut first = child::start(&database.url(), TTL);
    first.order("acquire a");
    until_queued(database, 1).await;
    (lease, first)
}

#[tokio::test]
async fn a_client_in_the_queue_hears_of_its_grant_at_once() {
    let database = database().await;
    let lease = holder(&database).await;
    let client = client_at(&database.url(), TTL).await;
    let waiting = waiter(&client);
    until_queued(&database, 1).await;
    let freed = now();
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    let next = soon(waiting).await.unwrap();
    let took = now().since(freed);
    assert!(took < Duration::from_millis(700), "{took:?}");
    // What it holds is no more than what was left, and is renewed to its full ttl.
    until_so("the renewal", async || {
        let left =
            "SELECT extract(epoch FROM ends_at - clock_timestamp())::bigint FROM leasehold.lease";
        number(&database, left).await > 5
    })
    .await;
    next.check().unwrap();
}

#[tokio::test]
async fn a_dead_client_costs_those_behind_it_its_term_at_most() {
    let database = database().await;
    let (lease, mut dead) = behind_a_process(&database).await;
    let client = client_at(&database.url(), TTL).await;
    let waiting = waiter(&client);
    until_queued(&database, 2).await;
    dead.kill();
    let freed = now();
    lease.release().await;
    let next = soon(waiting).await.unwrap();
    let took = now().since(freed);
    println!("a dead head costs {took:?}");
    assert!(
        took < Queued::LONGEST_TERM + Duration::from_secs(1),
        "{took:?}"
    );
    next.check().unwrap();
}

#[tokio::test]
async fn a_client_that_is_stopped_at_its_turn_loses_it_and_is_served_later() {
    let database = database().await;
    let (lease, stopped) = behind_a_process(&database).await;
    let client = client_at(&database.url(), TTL).await;
    let waiting = waiter(&client);
    until_queued(&database, 2).await;
    stopped.pause();
    let freed = now();
    lease.release().await;
    let second = soon(waiting).await.unwrap();
    let took = now().since(freed);
    println!("a frozen head costs {took:?}");
    assert!(
        took < Queued::LONGEST_TERM + Duration::from_secs(1),
        "{took:?}"
    );
    // It wakes with the notice of a grant that is over.
    stopped.resume();
    tokio::time::sleep(Duration::from_millis(500)).await;
    second.check().unwrap();
    let token = second.token();
    assert_eq!(second.release().await, ReleaseOutcome::Released);
    let answer = tokio::task::spawn_blocking(move || stopped.answer());
    let answer: u64 = answer.await.unwrap().parse().unwrap();
    assert!(answer > token.get(), "{answer} after {token}");
}

#[tokio::test]
async fn a_caller_that_gives_up_costs_those_behind_it_nothing() {
    let database = database().await;
    let lease = holder(&database).await;
    let clients: [Client; 2] = [
        client_at(&database.url(), TTL).await,
        client_at(&database.url(), TTL).await,
    ];
    let leaving = waiter(&clients[0]);
    until_queued(&database, 1).await;
    let waiting = waiter(&clients[1]);
    until_queued(&database, 2).await;
    leaving.abort();
    until_queued(&database, 1).await;
    let freed = now();
    lease.release().await;
    let next = soon(waiting).await.unwrap();
    let took = now().since(freed);
    assert!(took < Duration::from_millis(700), "{took:?}");
    next.check().unwrap();
}

#[tokio::test]
async fn a_process_that_dies_as_it_is_granted_the_name_holds_for_its_term() {
    let database = database().await;
    let (lease, mut first) = behind_a_process(&database).await;
    // It hears of the grant, and is killed before it renews.
    first.pause();
    lease.release().await;
    first.kill();
    let by_grant = number(&database, "SELECT state::bigint FROM leasehold.lease").await;
    assert_eq!(by_grant, 0, "granted by the release");
    let begun = now();
    let next = soon(waiter(&client_at(&database.url(), TTL).await)).await;
    let took = now().since(begun);
    assert!(
        took < Queued::LONGEST_TERM + Duration::from_secs(1),
        "{took:?}"
    );
    next.unwrap().check().unwrap();
}

/// In the middle of a hand-off: the release has granted, and no client has heard of it.
#[tokio::test]
async fn a_grant_that_a_restart_kept_from_its_client_is_found_by_its_next_poll() {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let lease = holder(&database).await;
    let client = client_at(&database.url(), TTL).await;
    let waiting = waiter(&client);
    until_queued(&database, 1).await;
    let dead = "UPDATE leasehold.lease SET awaited_until = '-infinity'";
    let silent = database.connect().await;
    silent.batch_execute(dead).await.unwrap();
    lease.release().await;
    drop(silent);
    server.end("QUIT").await;
    server.start_again().await;
    let next = tokio::time::timeout(PATIENCE, waiting).await;
    let next = next.expect("in time").unwrap();
    next.check().unwrap();
    tokio::time::sleep(Queued::LONGEST_TERM).await;
    next.check().expect("renewed");
}

/// A claim that waits finds the name free, or has a place that the release sees.
#[tokio::test]
async fn claims_that_join_while_the_name_is_freed_are_served() {
    let database = database().await;
    let store = open(&database.url());
    for round in 0..40 {
        let name = format!("n{}", round % 3);
        let holder = claim(&name, LONG);
        granted(&*store, &holder).await;
        let mut joining = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (store, claim) = (store.clone(), queued(&name, LONG));
            joining.spawn(async move {
                asked(&*store, &claim, LIMIT).await.unwrap();
                claim
            });
        }
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        released(&*store, &holder).await;
        let mut left = joining.join_all().await;
        // Each holds in its turn, and no other at the same time.
        while !left.is_empty() {
            let mut holders = Vec::new();
            for (index, claim) in left.iter().enumerate() {
                if let Answer::Granted(_) = asked(&*store, claim, LIMIT).await.unwrap() {
                    holders.push(index);
                }
            }
            assert_eq!(
                holders.len(),
                1,
                "round {round}: {holders:?} of {}",
                left.len()
            );
            released(&*store, &left.remove(holders[0])).await;
        }
        let held = store.inspect(&holder.name, LIMIT).await.unwrap();
        assert!(held.is_none(), "round {round}: {held:?}");
    }
}
