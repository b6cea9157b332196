//! Tokens rise through everything that a server can forget, as long as no clock goes back; and where one does, the floor
//! that a client knows closes the gap or is refused with the reason.

use std::time::UNIX_EPOCH;

use leasehold::store::Store;
use leasehold::{ErrorKind, Token};

use super::open;
use super::wire::mark;
use crate::harness::asking::{asked, chain, claim, granted, held, next_token, released};
use crate::harness::leases::{client_at, take};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until;

const HOUR_MS: i64 = 3_600_000;

/// Two grants with something in between that must not make the second token lower.
async fn rises(store: &dyn Store, between: impl AsyncFnOnce()) {
    let before = next_token(store, "a").await;
    between().await;
    let after = next_token(store, "a").await;
    assert!(after > before, "{after} after {before}");
}

#[tokio::test]
async fn tokens_rise_through_a_flush() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    rises(&*store, async || server.told("FLUSHALL").await).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn tokens_rise_through_the_loss_of_the_mark() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    rises(&*store, async || {
        assert!(server.told::<bool>(&format!("DEL {}", mark("a"))).await);
    })
    .await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn tokens_rise_through_an_eviction_by_a_full_server() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    rises(&*store, async || {
        let () = server
            .told("CONFIG SET maxmemory-policy allkeys-random")
            .await;
        let () = server.told("CONFIG SET maxmemory 1").await;
        until("the eviction of the mark", async || {
            let _ = server.ask::<()>("SET pressure 1 PX 1000").await;
            (!server.keys().await.contains(&mark("a"))).then_some(())
        })
        .await;
        let () = server.told("CONFIG SET maxmemory 0").await;
    })
    .await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn tokens_rise_through_an_empty_restart() {
    let mut server = RedisServer::start().await;
    let store = open(&server.url()).await;
    rises(&*store, async || server.restart_empty().await).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn tokens_rise_through_a_restart_from_an_older_snapshot() {
    let mut server = RedisServer::start().await;
    let store = open(&server.url()).await;
    next_token(&*store, "a").await;
    let snapshot = server.snapshot().await;
    rises(&*store, async || {
        server.restart_from(&snapshot).await;
        assert_eq!(server.keys().await, [mark("a")]);
    })
    .await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn tokens_rise_through_a_failover_to_a_replica_that_missed_the_grant() {
    let mut master = Setup::default().with_port().start().await;
    let before = open(&master.url()).await;
    next_token(&*before, "a").await;
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    // Cut off and promoted; the master has not heard of it and grants once more.
    replica.promote().await;
    let missed = granted(&*before, &claim("a", LONG)).await;
    master.kill();
    let after = open(&replica.url()).await;
    let token = next_token(&*after, "a").await;
    assert!(token > missed, "{token} after {missed}");
    replica.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn tokens_rise_though_the_servers_clock_goes_back() {
    let server = Setup::default().with_clock().start().await;
    let store = open(&server.url()).await;
    rises(&*store, async || server.step_clock(-3 * HOUR_MS).await).await;
    server.assert_all_keys_run_out().await;
}

/// A job that runs once a day, on a server whose clock was ahead when it last ran.
#[tokio::test]
async fn tokens_rise_through_a_days_pause_while_the_mark_is_ahead_of_the_clock() {
    let server = Setup::default().with_clock().start().await;
    let store = open(&server.url()).await;
    rises(&*store, async || {
        server.step_clock(-48 * HOUR_MS).await;
        server.step_clock(24 * HOUR_MS).await;
        assert_eq!(server.keys().await, [mark("a")]);
    })
    .await;
}

#[tokio::test]
async fn the_names_of_a_slot_share_one_mark_that_never_runs_out() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    // The name that is the tag of the other's slot.
    assert_eq!(mark("billing"), "leasehold:{43473}:mark");
    let mut last = None;
    for name in ["billing", "43473", "billing"] {
        let token = next_token(&*store, name).await;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
    }
    assert_eq!(server.keys().await, [mark("billing")]);
    let left: i64 = server.told(&format!("PTTL {}", mark("billing"))).await;
    assert_eq!(left, -1);
}

/// No clock goes back here: a floor alone puts the token ahead of the server's clock.
#[tokio::test]
async fn tokens_rise_though_a_lifted_one_is_ahead_of_the_clock_for_hours() {
    let server = Setup::default().with_clock().start().await;
    let store = open(&server.url()).await;
    let hours_ahead = (server.time_ms().await + 5 * HOUR_MS) * 1_000;
    let floor = Token::new(hours_ahead.cast_unsigned()).expect("a token");
    let lifted = claim("a", LONG).with_floor(floor);
    let token = granted(&*store, &lifted).await;
    assert!(token > floor);
    released(&*store, &lifted).await;
    server.step_clock(2 * HOUR_MS).await;
    let after = next_token(&*store, "a").await;
    assert!(after > token, "{after} after {token}");
    server.assert_all_keys_run_out().await;
    // The clock carries the tokens again.
    server.step_clock(5 * HOUR_MS).await;
    assert!(next_token(&*store, "a").await > after);
}

#[tokio::test]
async fn a_token_that_was_lifted_does_not_tell_since_when_a_name_is_held() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let hour_ahead = (server.time_ms().await + HOUR_MS) * 1_000;
    let floor = Token::new(hour_ahead.cast_unsigned()).expect("a token");
    granted(&*store, &claim("a", LONG).with_floor(floor)).await;
    let since = held(&*store, &claim("a", LONG)).await.since;
    let since = since.expect("told").duration_since(UNIX_EPOCH);
    let since = since.expect("it is now").as_millis();
    let now = u128::from(server.time_ms().await.cast_unsigned());
    assert!((now - 60_000..=now).contains(&since), "{since} at {now}");
}

#[tokio::test]
async fn the_clock_carries_a_token_in_the_first_moments_of_a_second_too() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    next_token(&*store, "warm").await;
    let now = until("the beginning of a second", async || {
        let (seconds, micros): (u64, u64) = server.told("TIME").await;
        (micros < 50_000).then_some(seconds * 1_000_000 + micros)
    })
    .await;
    let token = next_token(&*store, "a").await;
    assert!(token.get() > now, "{token} at {now}");
}

/// As a machine does whose hardware clock is in local time, until its time daemon sets it back.
#[tokio::test]
async fn tokens_rise_after_a_clock_that_began_hours_ahead_was_set_back() {
    let server = Setup::default().with_clock().start().await;
    let store = open(&server.url()).await;
    server.step_clock(5 * HOUR_MS).await;
    next_token(&*store, "a").await;
    server.step_clock(-5 * HOUR_MS).await;
    rises(&*store, async || server.step_clock(2 * HOUR_MS).await).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn tokens_rise_through_a_move_from_sqlite_to_redis_and_back() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = format!("sqlite:{}", folder.path().join("leases").display());
    let (server, local) = (RedisServer::start().await, open(&file).await);
    let remote = open(&server.url()).await;
    let mut last = None;
    for store in [&local, &remote, &local, &remote] {
        let token = next_token(&**store, "a").await;
        assert!(
            Some(token) > last,
            "{token} after {last:?} on {}",
            store.location()
        );
        last = Some(token);
    }
}

/// A server that breaks the assumption: its clock goes back by so much, and it forgets the mark.
async fn broken_by(back_ms: i64) -> (RedisServer, std::sync::Arc<dyn Store>, Token) {
    let server = Setup::default().with_clock().start().await;
    let store = open(&server.url()).await;
    let last = next_token(&*store, "a").await;
    server.step_clock(-back_ms).await;
    let () = server.told("FLUSHALL").await;
    (server, store, last)
}

#[tokio::test]
async fn a_clock_set_back_and_a_lost_mark_make_tokens_fall() {
    let (_server, store, last) = broken_by(3 * HOUR_MS).await;
    let fallen = next_token(&*store, "a").await;
    assert!(
        fallen < last,
        "the assumption is needed no more: {fallen} after {last}"
    );
}

/// The floor put the token ahead of the one clock here, which never moved back.
#[tokio::test]
async fn a_floor_and_a_flush_make_tokens_fall_until_the_clock_has_come_as_far() {
    let server = Setup::default().with_clock().start().await;
    let store = open(&server.url()).await;
    let hour_ahead = (server.time_ms().await + HOUR_MS) * 1_000;
    let floor = Token::new(hour_ahead.cast_unsigned()).expect("a token");
    let lifted = claim("a", LONG).with_floor(floor);
    let last = granted(&*store, &lifted).await;
    let () = server.told("FLUSHALL").await;
    let fallen = next_token(&*store, "a").await;
    assert!(
        fallen < last,
        "the assumption is needed no more: {fallen} after {last}"
    );
    server.step_clock(HOUR_MS + 60_000).await;
    let risen = next_token(&*store, "a").await;
    assert!(risen > last, "{risen} after {last}");
}

#[tokio::test]
async fn a_floor_lifts_the_token_over_what_a_broken_server_forgot() {
    let (server, store, last) = broken_by(3 * HOUR_MS).await;
    let token = granted(&*store, &claim("a", LONG).with_floor(last)).await;
    assert!(token > last, "{token} after {last}");
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_floor_a_day_ahead_of_a_broken_server_is_refused_with_the_reason() {
    let (server, store, last) = broken_by(25 * HOUR_MS).await;
    let refused = asked(&*store, &claim("a", LONG).with_floor(last), LIMIT).await;
    let error = refused.expect_err("more than a day ahead");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let message = chain(&error);
    assert!(
        message.contains("floor") && message.contains(&last.to_string()),
        "{message}"
    );
    assert!(message.contains("clock"), "{message}");
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_client_that_saw_a_token_from_a_wrong_clock_can_have_the_name_again() {
    let server = Setup::default().with_clock().start().await;
    server.step_clock(48 * HOUR_MS).await;
    let client = client_at(&server.url(), LONG).await;
    let mut last = None;
    for round in 0..3 {
        let lease = take(&client, "a").await;
        assert!(Some(lease.token()) > last, "{round}: {}", lease.token());
        last = Some(lease.token());
        lease.release().await;
        if round == 0 {
            server.step_clock(-48 * HOUR_MS).await;
        }
    }
    // A floor above the mark and far ahead of the clock still has no effect but a refusal.
    let above = Token::new(last.expect("granted").get() + 1).expect("a token");
    let store = open(&server.url()).await;
    let refused = asked(&*store, &claim("a", LONG).with_floor(above), LIMIT).await;
    assert_eq!(refused.expect_err("too far").kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn tokens_that_are_far_ahead_of_the_clock_are_a_hazard() {
    let server = Setup::default().with_clock().start().await;
    server.step_clock(48 * HOUR_MS).await;
    let store = open(&server.url()).await;
    next_token(&*store, "a").await;
    server.step_clock(-48 * HOUR_MS).await;
    let hazards = store.hazards(LIMIT).await.expect("answered");
    let told = hazards
        .iter()
        .find(|hazard| hazard.id == "redis-tokens-ahead");
    let told = told.unwrap_or_else(|| panic!("{hazards:?}")).to_string();
    assert!(told.contains("2days ahead"), "{told}");
}

#[tokio::test]
async fn a_broken_mark_is_named_by_the_error_itself() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let () = server.told(&format!("SET {} x", mark("a"))).await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("the mark is broken");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("mark=\"x\""), "{error}");
}
