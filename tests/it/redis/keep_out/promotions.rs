//! Keep-out begins at every promotion and every start, and at nothing else. It counts from the start of the server only
//! where nothing can have been forgotten since.

use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::Store;

use super::super::open;
use super::{WITH_LONG, assert_kept_out, settle, settled, with};
use crate::harness::asking::{asked, chain, claim, granted};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until;
use crate::redis::failover::caught_up;

/// Longer than a keep-out of these servers.
const LATER_MS: i64 = 120_000;
/// The least that is left of a keep-out that began just now, on a busy machine.
const NEARLY_ALL: Duration = Duration::from_secs(50);

async fn assert_keep_out_begins(store: &dyn Store) {
    let left = assert_kept_out(store, &claim("a", LONG)).await;
    assert!(left > NEARLY_ALL, "{left:?}");
}

/// A server with a port that forgets what it was promoted for after a second without replicas.
fn forgetful() -> Setup {
    let setup = Setup::default().with_port();
    setup.with(["--repl-backlog-ttl", "1"])
}

/// A master that grants, its store, and a replica that has its data.
async fn pair(setup: fn() -> Setup) -> (RedisServer, Arc<dyn Store>, RedisServer) {
    let (master, store) = settled(setup()).await;
    let replica = setup().start().await;
    replica.follow(&master).await;
    granted(&*store, &claim("in use", LONG)).await;
    caught_up(&replica, &master).await;
    (master, store, replica)
}

/// One line of `INFO replication`.
async fn replication_info(server: &RedisServer, key: &str) -> String {
    let info: String = server.told("INFO replication").await;
    let line = info.lines().find_map(|line| line.strip_prefix(key));
    line.expect("it is told").trim().into()
}

/// Returns once the server has another replication id than this.
async fn has_other_id(server: &RedisServer, known: &str) -> String {
    until("another replication id", async || {
        let id = replication_info(server, "master_replid:").await;
        (id != known).then_some(id)
    })
    .await
}

#[tokio::test]
async fn a_master_that_followed_one_that_missed_a_grant_keeps_out() {
    let (first, store, second) = pair(|| Setup::default().with_port()).await;
    // Cut off, so that it misses what follows.
    second.promote().await;
    granted(&*store, &claim("a", LONG)).await;
    first.follow(&second).await;
    first.promote().await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn each_of_several_promotions_of_a_master_that_never_stopped_keeps_out() {
    let (first, store, second) = pair(|| Setup::default().with_port()).await;
    for _ in 0..3 {
        second.promote().await;
        first.follow(&second).await;
        first.promote().await;
        second.follow(&first).await;
        assert_kept_out(&*store, &claim("a", LONG)).await;
        settle(&first).await;
        granted(&*store, &claim("b", Duration::from_millis(1))).await;
    }
}

#[tokio::test]
async fn a_promotion_keeps_out_although_the_server_has_forgotten_its_trace() {
    let (first, store, second) = pair(forgetful).await;
    second.promote().await;
    granted(&*store, &claim("a", LONG)).await;
    first.follow(&second).await;
    first.promote().await;
    until("no trace of the promotion", async || {
        let trace = replication_info(&first, "master_replid2:").await;
        trace.chars().all(|digit| digit == '0').then_some(())
    })
    .await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_promotion_keeps_out_although_the_servers_statistics_were_reset() {
    let (first, store, second) = pair(|| Setup::default().with_port()).await;
    second.promote().await;
    granted(&*store, &claim("a", LONG)).await;
    first.follow(&second).await;
    first.promote().await;
    let () = first.told("CONFIG RESETSTAT").await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_master_that_was_to_follow_one_that_was_not_there_keeps_out() {
    let (server, store) = settled(Setup::default().with_port()).await;
    let () = server.told("REPLICAOF 127.0.0.1 1").await;
    server.promote().await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_replica_that_comes_or_goes_costs_no_keep_out() {
    let (master, store) = settled(forgetful()).await;
    let mut replica = forgetful().start().await;
    let mut id = replication_info(&master, "master_replid:").await;
    for round in 0..2 {
        replica.follow(&master).await;
        id = has_other_id(&master, &id).await;
        granted(&*store, &claim(&format!("joined {round}"), LONG)).await;
        replica.kill();
        id = has_other_id(&master, &id).await;
        granted(&*store, &claim(&format!("left {round}"), LONG)).await;
        replica.start_again().await;
    }
    // An order that changes nothing costs none either.
    master.promote().await;
    granted(&*store, &claim("ordered", LONG)).await;
}

#[tokio::test]
async fn a_replica_that_takes_writes_grants_nothing() {
    let (_master, _store, replica) = pair(|| Setup::default().with_port()).await;
    let () = replica.told("CONFIG SET replica-read-only no").await;
    let store = open(&with(&replica.url(), WITH_LONG)).await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("a replica");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(chain(&error).contains("replica"), "{error:?}");
}

/// The same as [`settled`], and its operator says that it never has a replica.
async fn settled_alone(setup: Setup) -> (RedisServer, Arc<dyn Store>) {
    let (server, _) = settled(setup).await;
    let store = open(&with(&server.url(), &format!("{WITH_LONG}&alone=yes"))).await;
    (server, store)
}

/// A server in use that is alone, with a clock, that was started again with its data.
async fn started_again() -> (RedisServer, Arc<dyn Store>) {
    let (mut server, store) = settled_alone(Setup::default().with_clock()).await;
    granted(&*store, &claim("a", LONG)).await;
    let snapshot = server.snapshot().await;
    server.restart_from(&snapshot).await;
    (server, store)
}

#[tokio::test]
async fn after_a_restart_of_a_server_that_is_alone_keep_out_counts_from_its_start() {
    let (server, store) = started_again().await;
    server.step_clock(LATER_MS / 4).await;
    let left = assert_kept_out(&*store, &claim("a", LONG)).await;
    assert!(left < LONG * 3 / 4, "{left:?}");
    server.step_clock(LATER_MS / 2).await;
    granted(&*store, &claim("a", LONG)).await;

    let (server, store) = started_again().await;
    server.step_clock(LATER_MS).await;
    granted(&*store, &claim("a", LONG)).await;

    // Without its operator's word it counts from the first claim.
    let (server, _) = started_again().await;
    server.step_clock(LATER_MS).await;
    let store = open(&with(&server.url(), WITH_LONG)).await;
    assert_keep_out_begins(&*store).await;
}

#[tokio::test]
async fn after_a_restart_with_a_late_clock_keep_out_counts_from_the_first_claim() {
    let (mut server, store) = settled_alone(Setup::default().with_clock()).await;
    granted(&*store, &claim("a", LONG)).await;
    server.step_clock(-10 * LATER_MS).await;
    let snapshot = server.snapshot().await;
    server.restart_from(&snapshot).await;
    server.step_clock(10 * LATER_MS).await;
    assert_keep_out_begins(&*store).await;
}

#[tokio::test]
async fn a_restart_with_a_late_clock_does_not_cut_a_keep_out_short() {
    let mut server = Setup::default().with_clock().start().await;
    let store = open(&with(&server.url(), &format!("{WITH_LONG}&alone=yes"))).await;
    assert_kept_out(&*store, &claim("a", LONG)).await;
    server.step_clock(-10 * LATER_MS).await;
    let snapshot = server.snapshot().await;
    server.restart_from(&snapshot).await;
    server.step_clock(10 * LATER_MS).await;
    assert_keep_out_begins(&*store).await;
}

#[tokio::test]
async fn a_server_that_was_flushed_long_after_its_start_keeps_out_from_then_on() {
    let (server, store) = started_again().await;
    server.step_clock(LATER_MS).await;
    let () = server.told("FLUSHALL").await;
    assert_keep_out_begins(&*store).await;
}

/// As after a promotion whose trace the server has forgotten, and whose orders a reset of its statistics.
#[tokio::test]
async fn a_master_ordered_long_after_its_start_keeps_out_from_the_first_claim() {
    let (server, store) = settled(Setup::default().with_clock()).await;
    server.step_clock(LATER_MS).await;
    let _: i64 = server.told("HSET leasehold:node replid x orders 7").await;
    assert_keep_out_begins(&*store).await;
}

#[tokio::test]
async fn a_replica_that_started_long_ago_keeps_out_from_its_promotion_on() {
    for hides in ["nothing", "the end of the backlog", "a reset"] {
        println!("hidden by {hides}");
        let (master, _store) = settled(Setup::default().with_port()).await;
        let replica = forgetful().with_clock().start().await;
        replica.follow(&master).await;
        replica.step_clock(LATER_MS).await;
        replica.promote().await;
        if hides == "the end of the backlog" {
            let id = replication_info(&replica, "master_replid:").await;
            has_other_id(&replica, &id).await;
        } else if hides == "a reset" {
            let () = replica.told("CONFIG RESETSTAT").await;
        }
        let store = open(&with(&replica.url(), WITH_LONG)).await;
        assert_keep_out_begins(&*store).await;
    }
}

/// The replica joined after its last claim, which knew of none, or was away for so long that a claim noted that there
/// is none.
#[tokio::test]
async fn an_old_master_whose_replica_was_promoted_unseen_keeps_out_from_the_first_claim_on() {
    for joins in [
        "after the last claim",
        "and was away for the backlog's time",
    ] {
        println!("the replica joined {joins}");
        let setup = forgetful().with_clock();
        let setup = setup.with(["--appendonly", "yes", "--appendfsync", "always"]);
        let (mut first, store) = settled(setup).await;
        granted(&*store, &claim("before", LONG)).await;
        let second = forgetful().start().await;
        let id = replication_info(&first, "master_replid:").await;
        second.follow(&first).await;
        if joins != "after the last claim" {
            granted(&*store, &claim("joined", LONG)).await;
            let id = has_other_id(&first, &id).await;
            second.promote().await;
            has_other_id(&first, &id).await;
            granted(&*store, &claim("left", LONG)).await;
        }
        first.kill();
        second.promote().await;
        let successor = open(&with(&second.url(), WITH_LONG)).await;
        assert_keep_out_begins(&*successor).await;
        settle(&second).await;
        granted(&*successor, &claim("a", LONG)).await;
        first.start_again().await;
        first.step_clock(LATER_MS).await;
        assert_keep_out_begins(&*store).await;
    }
}

/// One of its replicas may have been promoted while it was down.
#[tokio::test]
async fn a_restarted_master_that_had_replicas_keeps_out_from_the_first_claim_on() {
    let setup = Setup::default().with_port().with_clock();
    // Its log does not remember that it had replicas, as a snapshot may.
    let setup = setup.with(["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut master, store) = settled_alone(setup).await;
    let replica = Setup::default().start().await;
    replica.follow(&master).await;
    granted(&*store, &claim("a", LONG)).await;
    master.kill();
    master.start_again().await;
    master.step_clock(LATER_MS).await;
    assert_keep_out_begins(&*store).await;
}
