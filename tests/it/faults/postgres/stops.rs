//! Every way a server stops, under a client that holds a lease.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::Outcome;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::asking::{asked, claim, granted, renewed};
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::postgres_server::Database;
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::{LONG, UNANSWERED};
use crate::harness::wait::{lost, now};
use crate::postgres::{open, own_server};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_holder_outlives_a_restart_and_is_told_in_time_of_a_longer_stop() {
    let (server, database) = own_server().await;
    let client = client_at(&database.url(), TTL).await;
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
    let (_server, database) = own_server().await;
    let relay = Relay::before(&database.socket()).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", relay.port());
    let lease = client_at(&url, TTL).await.acquire("a").await.unwrap();
    relay.pass(Passing::Nothing);
    let rival = client_at(&database.url(), TTL).await;
    let (_, second) = tokio::join!(lost(&lease), rival.acquire("a"));
    assert!(lease.check().is_err());
    assert!(second.unwrap().token() > lease.token());
}

#[tokio::test]
async fn another_program_that_locks_the_table_costs_the_lease_and_never_overlaps() {
    let (_server, database) = own_server().await;
    let client = client_at(&database.url(), TTL).await;
    let lease = client.acquire("a").await.unwrap();
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; LOCK TABLE leasehold.lease")
        .await
        .expect("locked");
    lost(&lease).await;
    stranger.batch_execute("COMMIT").await.expect("let go");
    let next = take_waiting(&client, "a").await;
    assert!(next.token() > lease.token());
}

/// Sends this signal to the server's processes for our connections.
async fn signal_ours(database: &Database, signal: Signal) {
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'leasehold'";
    let rows = database.connect().await.query(sql, &[]).await;
    let rows = rows.expect("answered");
    assert!(!rows.is_empty(), "no connection of ours");
    for row in rows {
        let process = Pid::from_raw(row.get(0)).expect("a process");
        kill_process(process, signal).expect("the server is ours");
    }
}

#[tokio::test]
async fn a_holder_outlives_the_kill_of_its_servers_processes_and_the_recovery_after_it() {
    let ttl = 2 * TTL;
    let (_server, database) = own_server().await;
    let client = client_at(&database.url(), ttl).await;
    let lease = client.acquire("a").await.unwrap();
    signal_ours(&database, Signal::KILL).await;
    // Long enough for the lease to be over, had it not been renewed.
    tokio::time::sleep(ttl).await;
    lease.check().expect("renewed after the recovery");
}

#[tokio::test]
async fn a_process_of_the_server_that_hangs_costs_a_connection_and_nothing_else() {
    let (_server, database) = own_server().await;
    let store = open(&database.url());
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    signal_ours(&database, Signal::STOP).await;
    let answer = asked(&*store, &claim, UNANSWERED).await;
    assert_eq!(answer.expect_err("it hangs").kind(), ErrorKind::TimedOut);
    // The next request has a connection of its own.
    let renewal = renewed(&*store, &claim).await;
    assert!(matches!(renewal, Outcome::Renewed), "{renewal:?}");
    signal_ours(&database, Signal::CONT).await;
    granted(&*store, &claim).await;
}
