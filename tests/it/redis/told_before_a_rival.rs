//! What a holder sees while its server, or the way there, fails: told before a rival can be granted, or nothing at all
//! where the outage was short enough.

use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::{Client, Lease, LeaseState, LossReason, OutagePolicy, ReleaseOutcome};

use super::open;
use super::wire::{lease_key as key, mark, token_at};
use crate::harness::asking::{chain, rival_granted_at};
use crate::harness::leases::{client_at, renewed_times, take};
use crate::harness::proxy::{Fault, Request};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG, STORED_TTL};
use crate::harness::wait::{at, lost, now, until};

/// What a busy machine may add to a cancellation; a bench measures how late it is.
const SLACK: Duration = Duration::from_millis(500);
/// How much before its deadline a holder may be told.
const EARLY: Duration = Duration::from_millis(10);

/// The lease is lost by its deadline, and its holder is told then and not long after.
async fn told_at(lease: &Lease) -> Instant {
    let reason = lost(lease).await;
    let told_at = now();
    assert_eq!(reason, LossReason::Deadline);
    lease.check().expect_err("it is lost");
    told_at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_black_hole_the_holder_is_told_before_a_rival_is_granted() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = client_at(&proxy.url(), STORED_TTL).await;
    let lease = take(&client, "a").await;
    renewed_times(&lease, 1).await;
    let deadline = lease.term().expect("it is held").deadline();
    proxy.stall();
    let direct = open(&server.url()).await;
    let (told_at, granted_at) = tokio::join!(told_at(&lease), rival_granted_at(&*direct));
    // A renewal under way at the stall may have moved the deadline by a third of the ttl.
    assert!(told_at >= deadline.before(EARLY) && told_at < deadline.after(STORED_TTL / 3 + SLACK));
    assert!(
        granted_at > told_at,
        "a rival {:?} before the holder was told",
        told_at.since(granted_at)
    );
    assert!(
        granted_at < told_at.after(STORED_TTL),
        "{:?} after",
        granted_at.since(told_at)
    );
    server.assert_all_keys_run_out().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_servers_holder_is_told_at_the_deadline_and_a_late_renewal_revives_nothing() {
    let server = RedisServer::start().await;
    let client = client_at(&server.url(), STORED_TTL).await;
    let lease = take(&client, "a").await;
    renewed_times(&lease, 1).await;
    server.pause();
    let deadline = lease.term().expect("it is held").deadline();
    let told_at = told_at(&lease).await;
    assert!(
        told_at >= deadline.before(EARLY) && told_at < deadline.after(SLACK),
        "{:?}",
        told_at.since(deadline)
    );
    server.resume();
    // The renewals that wait in the server's socket are carried out now, too late for the holder.
    let granted_at = rival_granted_at(&*open(&server.url()).await).await;
    assert!(granted_at > told_at);
    assert_eq!(lease.state(), LeaseState::Lost(LossReason::Deadline));
    assert_eq!(lease.release().await, ReleaseOutcome::AlreadyLost);
    server.assert_all_keys_run_out().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pauses_its_clients_is_as_one_that_is_stopped() {
    let server = RedisServer::start().await;
    let client = client_at(&server.url(), STORED_TTL).await;
    let lease = take(&client, "a").await;
    renewed_times(&lease, 1).await;
    let () = server.told("CLIENT PAUSE 60000 ALL").await;
    let deadline = lease.term().expect("it is held").deadline();
    let told_at = told_at(&lease).await;
    assert!(
        told_at < deadline.after(SLACK),
        "{:?} late",
        told_at.since(deadline)
    );
}

#[tokio::test]
async fn an_outage_within_the_window_loses_nothing() {
    let mut server = RedisServer::start().await;
    let client = client_at(&server.url(), STORED_TTL).await;
    let lease = take(&client, "a").await;
    let token = lease.token();
    for outage in ["stopped", "killed", "paused by itself"] {
        renewed_times(&lease, 1).await;
        let start = now();
        let rest = start.after(STORED_TTL / 3);
        match outage {
            "stopped" => {
                server.pause();
                at(rest).await;
                server.resume();
            }
            "killed" => {
                let snapshot = server.snapshot().await;
                server.kill();
                at(rest).await;
                server.restart_from(&snapshot).await;
            }
            _ => {
                server
                    .told(&format!(
                        "CLIENT PAUSE {} ALL",
                        (STORED_TTL / 3).as_millis()
                    ))
                    .await
            }
        }
        renewed_times(&lease, 1).await;
        lease
            .check()
            .unwrap_or_else(|error| panic!("{outage}: {error}"));
    }
    assert_eq!(token_at(&server, "a").await, token.get());
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn connections_that_break_all_the_time_lose_nothing() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = client_at(&proxy.url(), STORED_TTL).await;
    let lease = take(&client, "a").await;
    let end = now().after(2 * STORED_TTL);
    while now() < end {
        proxy.cut();
        at(now().after(STORED_TTL / 20)).await;
        lease.check().expect("it is held");
    }
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn scripts_that_are_forgotten_between_batches_lose_nothing() {
    let server = RedisServer::start().await;
    let client = client_at(&server.url(), STORED_TTL).await;
    let mut leases = Vec::new();
    for index in 0..600 {
        leases.push(take(&client, &format!("n{index}")).await);
    }
    let end = now().after(2 * STORED_TTL);
    while now() < end {
        let () = server.told("SCRIPT FLUSH").await;
        at(now().after(STORED_TTL / 20)).await;
    }
    for lease in &leases {
        lease.check().expect("it is held");
        assert_eq!(lease.state(), LeaseState::Held);
    }
}

#[tokio::test]
async fn a_hung_server_does_not_touch_the_leases_of_another() {
    let (hung, healthy) = (RedisServer::start().await, RedisServer::start().await);
    let on_hung = client_at(&hung.url(), STORED_TTL).await;
    let on_healthy = client_at(&healthy.url(), STORED_TTL).await;
    let doomed = take(&on_hung, "a").await;
    let safe = take(&on_healthy, "a").await;
    hung.pause();
    assert_eq!(lost(&doomed).await, LossReason::Deadline);
    assert_eq!(safe.state(), LeaseState::Held);
    let waiter = on_hung.request("b").acquire_within(STORED_TTL / 4).await;
    waiter.expect_err("its server is stopped");
    renewed_times(&safe, 1).await;
    drop(take(&on_healthy, "b").await);
    assert_eq!(safe.release().await, ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_clock_that_jumps_past_the_ttl_is_told_at_the_next_renewal() {
    let server = Setup::default().with_clock().start().await;
    let client = client_at(&server.url(), STORED_TTL).await;
    let lease = take(&client, "a").await;
    renewed_times(&lease, 1).await;
    let start = now();
    server.step_clock(60_000).await;
    let reason = lost(&lease).await;
    assert!(
        matches!(reason, LossReason::Refused | LossReason::Deadline),
        "{reason:?}"
    );
    assert!(
        now().since(start) < STORED_TTL / 3 + STORED_TTL / 6,
        "{:?}",
        now().since(start)
    );
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_small_jump_of_the_servers_clock_loses_nothing() {
    let server = Setup::default().with_clock().start().await;
    let builder = Client::builder()
        .store_url(server.url())
        .ttl(Duration::from_secs(4));
    let client = builder.build().await.expect("a URL in order");
    let lease = take(&client, "a").await;
    for by_ms in [1_000, -1_000, 1_000] {
        renewed_times(&lease, 1).await;
        server.step_clock(by_ms).await;
    }
    renewed_times(&lease, 1).await;
    lease.check().expect("it is held");
    server.assert_all_keys_run_out().await;
}

/// The claim lands after its caller went away.
#[tokio::test]
async fn a_claim_that_was_abandoned_on_a_slow_way_leaves_nothing() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = client_at(&proxy.url(), STORED_TTL).await;
    take(&client, "warm").await.release().await;

    let slow = Duration::from_millis(300);
    let sent_at = now();
    proxy.once(Request::is_script, Fault::DelayRequest(slow));
    let claim = client.try_acquire("a");
    let abandoned = tokio::time::timeout(slow / 3, claim).await;
    abandoned.expect_err("the caller is gone before the claim has landed");
    until("the claim's landing", async || {
        server.keys().await.contains(&mark("a")).then_some(())
    })
    .await;
    until("the end of the orphan", async || {
        (!server.keys().await.contains(&key("a"))).then_some(())
    })
    .await;
    let lived = now().since(sent_at.after(slow));
    assert!(lived < STORED_TTL / 3 + SLACK, "it lived for {lived:?}");
    // It does not come back either.
    at(now().after(STORED_TTL / 4)).await;
    assert_eq!(server.keys().await, [mark("a"), mark("warm")]);
    server.assert_all_keys_run_out().await;
}

/// The first attempt lands after the second was granted, used and released.
#[tokio::test]
async fn a_claim_that_lands_after_its_lease_was_released_is_released_too() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = client_at(&proxy.url(), STORED_TTL).await;
    take(&client, "warm").await.release().await;
    let slow = Duration::from_millis(1_500);
    let lands_at = now().after(slow);
    proxy.once(Request::is_script, Fault::DelayRequest(slow));
    let request = client.request("a").on_outage(OutagePolicy::WaitOut);
    let lease = request.acquire_within(LIMIT).await.expect("asked again");
    let token = lease.token().get();
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    assert!(
        now() < lands_at,
        "the second attempt was too slow for this test"
    );

    let last = async || server.told::<u64>(&format!("GET {}", mark("a"))).await;
    until("the first attempt's landing", async || {
        (last().await > token).then_some(())
    })
    .await;
    until("the end of the orphan", async || {
        (!server.keys().await.contains(&key("a"))).then_some(())
    })
    .await;
    let lived = now().since(lands_at);
    assert!(lived < STORED_TTL / 3 + SLACK, "it lived for {lived:?}");
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_asked_again_by_its_holder() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = client_at(&proxy.url(), STORED_TTL).await;
    take(&client, "warm").await.release().await;
    for fault in [Fault::DropReply, Fault::HoldReply] {
        proxy.once(Request::is_script, fault);
        let start = now();
        let request = client.request("a").on_outage(OutagePolicy::WaitOut);
        let lease = request.acquire_within(LIMIT).await.expect("asked again");
        assert!(
            now().since(start) < STORED_TTL,
            "it waited for its own claim to run out"
        );
        assert_eq!(
            token_at(&server, "a").await,
            lease.token().get(),
            "{fault:?}"
        );
        assert_eq!(lease.release().await, ReleaseOutcome::Released);
    }
}

#[tokio::test]
async fn a_lease_that_is_dropped_during_an_outage_is_released_after_it() {
    let server = RedisServer::start().await;
    let builder = Client::builder().store_url(server.url()).ttl(LONG);
    let client = builder.build().await.expect("a URL in order");
    let lease = take(&client, "a").await;
    server.pause();
    drop(lease);
    at(now().after(Duration::from_millis(300))).await;
    server.resume();
    until("the release", async || {
        (server.keys().await == [mark("a")]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_client_gets_a_higher_token_from_a_server_that_forgot_the_last() {
    let server = Setup::default().with_clock().start().await;
    let client = client_at(&server.url(), STORED_TTL).await;
    let lease = take(&client, "a").await;
    let last = lease.token();
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    server.step_clock(-3 * 3_600_000).await;
    let () = server.told("FLUSHALL").await;
    let lease = take(&client, "a").await;
    assert!(lease.token() > last, "{} after {last}", lease.token());
    assert_eq!(lease.release().await, ReleaseOutcome::Released);

    server.step_clock(-25 * 3_600_000).await;
    let () = server.told("FLUSHALL").await;
    let error = client.try_acquire("a").await.expect_err("a day behind");
    assert!(chain(&error).contains("clock"), "{error:?}");
    assert_eq!(server.keys().await, [""; 0]);
}
