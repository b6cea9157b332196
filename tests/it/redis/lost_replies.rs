//! Requests that were carried out and never answered, answered late, or arrived after all: asked again, they do no harm.

use leasehold::ErrorKind;
use std::time::Duration;

use leasehold::store::{Answer, Outcome, Release, Store};

use super::open;
use super::wire::{lease_key, token_at};
use crate::harness::asking::{
    asked, claim, granted, held, released, renewal, renewed, rival_granted_at,
};
use crate::harness::proxy::{Fault, Proxy, Request};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG, UNANSWERED};
use crate::harness::wait::{at, now};

/// How a reply can be lost: the connection ends, or falls silent.
const LOSSES: [Fault; 2] = [Fault::DropReply, Fault::HoldReply];
const TTL: Duration = Duration::from_secs(5);

/// A server, a network before it, and a store across it that has its scripts loaded.
async fn proxied() -> (RedisServer, Proxy, std::sync::Arc<dyn Store>) {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let store = open(&proxy.url()).await;
    let warm = claim("warm", LONG);
    granted(&*store, &warm).await;
    assert!(matches!(renewed(&*store, &warm).await, Outcome::Renewed));
    assert_eq!(released(&*store, &warm).await, Release::Released);
    (server, proxy, store)
}

fn assert_open(kind: ErrorKind) {
    let kinds = [ErrorKind::Unavailable, ErrorKind::TimedOut];
    assert!(kinds.contains(&kind), "a lost reply was told as {kind:?}");
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_gets_the_same_token_and_a_full_ttl() {
    for loss in LOSSES {
        let (server, proxy, store) = proxied().await;
        let claim = claim("a", TTL);
        proxy.once(Request::is_script, loss);
        let lost = asked(&*store, &claim, UNANSWERED).await;
        assert_open(lost.expect_err("the reply is lost").kind());
        let token = token_at(&server, "a").await;
        let () = server
            .told(&format!("PEXPIRE {} 1000", lease_key("a")))
            .await;

        assert_eq!(granted(&*store, &claim).await.get(), token, "{loss:?}");
        let left: u64 = server.told(&format!("PTTL {}", lease_key("a"))).await;
        assert!(left > 4_000, "{loss:?}: {left} ms left");
        server.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_can_be_repeated() {
    for loss in LOSSES {
        let (server, proxy, store) = proxied().await;
        let claim = claim("a", TTL);
        granted(&*store, &claim).await;
        let () = server
            .told(&format!("PEXPIRE {} 3000", lease_key("a")))
            .await;
        proxy.once(Request::is_script, loss);
        let outcome = store
            .renew(&[renewal(&claim)], UNANSWERED)
            .await
            .outcomes
            .remove(0);
        match outcome {
            Outcome::Unknown(error) => assert_open(error.kind()),
            other => panic!("{loss:?}: the reply is lost, got {other:?}"),
        }
        let left: u64 = server.told(&format!("PTTL {}", lease_key("a"))).await;
        assert!(left > 4_000, "{loss:?}: it was carried out, {left} ms left");
        assert!(
            matches!(renewed(&*store, &claim).await, Outcome::Renewed),
            "{loss:?}"
        );
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_can_be_repeated_and_frees_no_other_lease() {
    for loss in LOSSES {
        let (server, proxy, store) = proxied().await;
        let (first, next) = (claim("a", TTL), claim("a", TTL));
        granted(&*store, &first).await;
        proxy.once(Request::is_script, loss);
        let lost = store
            .release(&first.name, first.holder, None, UNANSWERED)
            .await;
        assert_open(lost.expect_err("the reply is lost").kind());
        assert_eq!(
            server
                .told::<u8>(&format!("EXISTS {}", lease_key("a")))
                .await,
            0
        );

        granted(&*store, &next).await;
        assert_eq!(
            released(&*store, &first).await,
            Release::NotHeld,
            "{loss:?}"
        );
        let outcome = renewed(&*store, &next).await;
        assert!(matches!(outcome, Outcome::Renewed), "{loss:?}: {outcome:?}");
        server.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn a_request_that_arrives_twice_has_the_effect_of_one() {
    let (server, proxy, store) = proxied().await;
    let claim = claim("a", TTL);
    proxy.once(Request::is_script, Fault::DoubleRequest);
    let token = granted(&*store, &claim).await;
    let kept = token_at(&server, "a").await;
    assert_eq!(kept, token.get());
    proxy.once(Request::is_script, Fault::DoubleRequest);
    assert!(matches!(renewed(&*store, &claim).await, Outcome::Renewed));
    proxy.once(Request::is_script, Fault::DoubleRequest);
    assert_eq!(released(&*store, &claim).await, Release::Released);
    assert_eq!(proxy.faults().len(), 3);
}

#[tokio::test]
async fn a_reply_that_arrives_twice_is_not_taken_for_the_next() {
    let (_server, proxy, store) = proxied().await;
    let (mine, theirs) = (claim("a", TTL), claim("b", LONG));
    proxy.once(Request::is_script, Fault::DoubleReply);
    let token = granted(&*store, &mine).await;
    let answer = asked(&*store, &theirs, LIMIT).await;
    if let Ok(Answer::Granted(grant)) = answer {
        assert_ne!(grant.token, token);
        assert!(matches!(renewed(&*store, &theirs).await, Outcome::Renewed));
    }
    assert!(matches!(renewed(&*store, &mine).await, Outcome::Renewed));
}

#[tokio::test]
async fn a_slow_network_is_waited_for_within_the_limit() {
    let (server, proxy, store) = proxied().await;
    let slow = Duration::from_millis(900);
    let claim = claim("a", TTL);
    proxy.once(Request::is_script, Fault::DelayReply(slow));
    granted(&*store, &claim).await;
    proxy.once(Request::is_script, Fault::DelayRequest(slow));
    assert!(matches!(renewed(&*store, &claim).await, Outcome::Renewed));
    proxy.once(Request::is_script, Fault::DelayReply(slow));
    assert_eq!(released(&*store, &claim).await, Release::Released);
    assert_eq!(proxy.faults().len(), 3);
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_claim_repeated_after_a_lost_reply_keeps_its_rival_out_for_a_whole_ttl() {
    let (server, proxy, store) = proxied().await;
    let ttl = Duration::from_millis(1_000);
    let claim = claim("a", ttl);
    proxy.once(Request::is_script, Fault::HoldReply);
    let first_sent_at = now();
    asked(&*store, &claim, UNANSWERED)
        .await
        .expect_err("the reply is lost");
    at(first_sent_at.after(ttl / 2)).await;
    let sent_at = now();
    granted(&*store, &claim).await;

    let direct = open(&server.url()).await;
    at(first_sent_at.after(ttl)).await;
    let granted_at = rival_granted_at(&*direct).await;
    let over = sent_at.after(ttl);
    assert!(
        granted_at >= over,
        "a rival {:?} before the end",
        over.since(granted_at)
    );
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_renewal_that_arrives_after_the_release_revives_nothing() {
    let (server, proxy, store) = proxied().await;
    let first = claim("a", TTL);
    granted(&*store, &first).await;
    let late = 2 * UNANSWERED;
    let arrives_at = now().after(late);
    proxy.once(Request::is_script, Fault::DelayRequest(late));
    let outcome = store
        .renew(&[renewal(&first)], UNANSWERED)
        .await
        .outcomes
        .remove(0);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let direct = open(&server.url()).await;
    assert_eq!(released(&*direct, &first).await, Release::Released);
    let next = claim("a", TTL / 2);
    granted(&*direct, &next).await;
    assert_eq!(held(&*store, &claim("a", TTL)).await.by, Some(next.holder));
    at(arrives_at.after(UNANSWERED / 2)).await;
    let left: u64 = server.told(&format!("PTTL {}", lease_key("a"))).await;
    assert!(left < 2_500, "extended by the former holder: {left} ms");
}
