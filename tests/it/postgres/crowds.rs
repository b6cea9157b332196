//! Many clients at one server: those that wait, join or leave take nothing that a renewal needs. The long forms are in
//! `faults::postgres::crowds`.

use std::time::Duration;

use leasehold::ReleaseOutcome;

use super::connections::count_connections;
use super::functions::{Functions, LONG_MS};
use super::{open, set_up};
use crate::harness::crowd::Crowd;
use crate::harness::leases::{client_at, take};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::PATIENCE;
use crate::harness::wait::{now, until};

/// Holders outlive restarts of a server with room for so many connections, beside clients that wait. It answers again
/// after a second.
pub(crate) async fn outlive_restarts(
    connections: u32,
    holders: usize,
    waiting: usize,
    ttl: Duration,
) {
    let room = format!("max_connections={connections}");
    let server = PostgresServer::start(&["fsync=off", &room]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let mut crowd = Crowd::of_holders(database.url(), holders, ttl).await;
    let restart = async || {
        let begun = now();
        server.end("INT").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.start_again().await;
        println!("it was down for {:?}", now().since(begun));
    };
    crowd.outlives_restarts(waiting, restart).await;
}

#[tokio::test]
async fn waiting_clients_that_find_no_room_cost_no_lease_at_a_restart() {
    outlive_restarts(24, 8, 40, Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_client_that_only_waits_has_one_connection() {
    // The holder's connection is none of ours.
    let (database, holder) = Functions::fresh().await;
    holder.acquire("a", "h", LONG_MS).await;
    let waiter = client_at(&database.url(), Duration::from_secs(30)).await;
    let waiting = tokio::spawn(async move {
        let request = waiter.request("a");
        let lease = request.acquire_within(PATIENCE * 3).await;
        (waiter, lease.expect("granted"))
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    until("one connection for the client that waits", async || {
        (count_connections(&database).await == 1).then_some(())
    })
    .await;
    let begun = now();
    holder.release("a", "h").await;
    let (_waiter, lease) = waiting.await.expect("no panic");
    assert!(now().since(begun) < Duration::from_secs(1), "by a notice");
    lease.check().expect("held");
}

/// A client that holds two leases of unlocked rows, and drops guards of rows that a stranger locks.
pub(crate) async fn dropped_guards_of_locked_rows(others: usize, dropped: usize) {
    let ttl = Duration::from_millis(1_500);
    let database = super::database().await;
    let client = client_at(&database.url(), ttl).await;
    let mut kept = Vec::new();
    for index in 0..others {
        kept.push(take(&client, &format!("kept/{index}")).await);
    }
    let lost = || kept.iter().filter(|lease| lease.check().is_err()).count();
    tokio::time::sleep(ttl * 2).await;
    assert_eq!(lost(), 0, "without dropped guards");
    let mut guards = Vec::new();
    for index in 0..dropped {
        guards.push(take(&client, &format!("locked/{index}")).await);
    }
    let stranger = database.connect().await;
    let lock = "BEGIN; SELECT FROM leasehold.lease WHERE name LIKE 'locked/%' FOR UPDATE";
    stranger.batch_execute(lock).await.expect("locked");
    drop(guards);
    tokio::time::sleep(ttl * 3).await;
    assert_eq!(lost(), 0, "of {others}, whose rows nobody locks");
}

#[tokio::test]
async fn dropped_guards_of_locked_rows_delay_no_renewal_of_others() {
    dropped_guards_of_locked_rows(5, 20).await;
}

#[tokio::test]
async fn a_client_that_joins_a_queue_leaves_the_row_to_the_holders_renewal() {
    let (database, leases) = Functions::fresh().await;
    let joining = Functions::of(&database, "leasehold").await;
    let renewed_beside = async |client: &str| {
        joining.run("BEGIN").await.expect("begun");
        let joined = joining.queue("a", client).await;
        assert!(joined.outcome == "held", "{joined:?}");
        let letters = leases.renew(&[("a", "h")]).await;
        joining.run("COMMIT").await.expect("done");
        letters
    };
    leases.acquire("a", "h", LONG_MS).await;
    // The first one notes in the row that there is a queue, and so has it locked until its commit.
    assert_eq!(renewed_beside("c").await, "x");
    for client in ["d", "e"] {
        assert_eq!(renewed_beside(client).await, "y", "{client} joins");
    }
}

#[tokio::test]
async fn a_release_waits_for_those_who_join_a_queue_and_serves_them() {
    let (database, leases) = Functions::fresh().await;
    let joining = Functions::of(&database, "leasehold").await;
    leases.acquire("a", "h", LONG_MS).await;
    // A dead client, whose queue stays.
    leases.queue("a", "c").await;
    let dead = "UPDATE leasehold.queue SET alive_until = '-infinity'";
    leases.run(dead).await.expect("it died");
    joining.run("BEGIN").await.expect("begun");
    joining.queue("a", "d").await;
    let early = leases.run("SELECT * FROM leasehold.release_1('a', 'h', 0)");
    let early = early.await.expect_err("it waits for the join");
    assert_eq!(early.code().expect("a code").code(), "55P03", "{early}");
    joining.run("COMMIT").await.expect("done");
    assert_eq!(leases.release("a", "h").await.0, "released");
    assert_eq!(leases.row("a").await, Some((0, "d-1".into())));
}

#[tokio::test]
async fn a_renewal_waits_for_a_row_that_is_locked_for_a_while() {
    let database = super::database().await;
    let store = open(&database.url());
    let claim = crate::harness::asking::claim("a", crate::harness::times::LONG);
    crate::harness::asking::granted(&*store, &claim).await;
    let stranger = database.connect().await;
    let lock = "BEGIN; SELECT FROM leasehold.lease WHERE name = 'a' FOR UPDATE";
    stranger.batch_execute(lock).await.expect("locked");
    let (renewed, ()) = tokio::join!(crate::harness::asking::renewed(&*store, &claim), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        stranger.batch_execute("COMMIT").await.expect("let go");
    });
    assert!(
        matches!(renewed, leasehold::store::Outcome::Renewed),
        "{renewed:?}"
    );
}

/// As under a release that the watchdog sends again and again: its answer is that of the pool.
#[tokio::test]
async fn a_dropped_guard_is_released_while_its_client_holds_others() {
    let database = super::database().await;
    let client = client_at(&database.url(), Duration::from_secs(30)).await;
    let kept = take(&client, "kept").await;
    drop(take(&client, "dropped").await);
    let other = client_at(&database.url(), Duration::from_secs(30)).await;
    let request = other.request("dropped").acquire_within(PATIENCE);
    let lease = request.await.expect("free again");
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    kept.check().expect("held");
}
