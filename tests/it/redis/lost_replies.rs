//! Requests that were carried out and never answered, answered late, or arrived after all: asked again, they do no harm.

use std::time::Duration;

use leasehold::store::{Answer, Claim, ErrorKind, Outcome, Release, Renewal, Store, Token};

use super::open;
use super::wire::lease;
use crate::harness::asking::{
    LIMIT, LONG, claim, granted, held, next_token, released, renewal, renewed,
};
use crate::harness::proxy::{Fault, Proxy, Request, Weather};
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::{at, now, until};

/// How a reply can be lost: the connection ends, or falls silent.
const LOSSES: [Fault; 2] = [Fault::DropReply, Fault::HoldReply];
/// For requests whose answer is lost.
const SHORT: Duration = Duration::from_millis(300);

/// A server, a network before it, and a store across it that has its scripts loaded.
async fn start() -> (RedisServer, Proxy, std::sync::Arc<dyn Store>) {
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
        let (server, proxy, store) = start().await;
        let claim = claim("a", LONG);
        proxy.once(Request::is_script, loss);
        let lost = store.acquire(&claim, SHORT).await;
        assert_open(lost.expect_err("the reply is lost").kind());
        let token: u64 = server.told(&format!("HGET {} token", lease("a"))).await;
        let () = server.told(&format!("PEXPIRE {} 1000", lease("a"))).await;

        assert_eq!(granted(&*store, &claim).await.get(), token, "{loss:?}");
        let left: u64 = server.told(&format!("PTTL {}", lease("a"))).await;
        assert!(left > 29_000, "{loss:?}: {left} ms left");
        server.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_can_be_repeated() {
    for loss in LOSSES {
        let (server, proxy, store) = start().await;
        let claim = claim("a", LONG);
        granted(&*store, &claim).await;
        let () = server.told(&format!("PEXPIRE {} 9000", lease("a"))).await;
        proxy.once(Request::is_script, loss);
        let outcome = store
            .renew(&[renewal(&claim)], SHORT)
            .await
            .outcomes
            .remove(0);
        match outcome {
            Outcome::Unknown(error) => assert_open(error.kind()),
            other => panic!("{loss:?}: the reply is lost, got {other:?}"),
        }
        let left: u64 = server.told(&format!("PTTL {}", lease("a"))).await;
        assert!(
            left > 29_000,
            "{loss:?}: it was carried out, {left} ms left"
        );
        assert!(
            matches!(renewed(&*store, &claim).await, Outcome::Renewed),
            "{loss:?}"
        );
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_can_be_repeated_and_frees_nobody_else() {
    for loss in LOSSES {
        let (server, proxy, store) = start().await;
        let (first, next) = (claim("a", LONG), claim("a", LONG));
        granted(&*store, &first).await;
        proxy.once(Request::is_script, loss);
        let lost = store.release(&first.name, first.holder, None, SHORT).await;
        assert_open(lost.expect_err("the reply is lost").kind());
        assert_eq!(
            server.told::<u8>(&format!("EXISTS {}", lease("a"))).await,
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
async fn a_request_that_arrives_twice_is_as_one() {
    let (server, proxy, store) = start().await;
    let claim = claim("a", LONG);
    proxy.once(Request::is_script, Fault::DoubleRequest);
    let token = granted(&*store, &claim).await;
    let kept: u64 = server.told(&format!("HGET {} token", lease("a"))).await;
    assert_eq!(kept, token.get());
    proxy.once(Request::is_script, Fault::DoubleRequest);
    assert!(matches!(renewed(&*store, &claim).await, Outcome::Renewed));
    proxy.once(Request::is_script, Fault::DoubleRequest);
    assert_eq!(released(&*store, &claim).await, Release::Released);
    assert_eq!(proxy.faults().len(), 3);
}

#[tokio::test]
async fn a_reply_that_arrives_twice_is_not_taken_for_the_next() {
    let (_server, proxy, store) = start().await;
    let (mine, theirs) = (claim("a", LONG), claim("b", LONG));
    proxy.once(Request::is_script, Fault::DoubleReply);
    let token = granted(&*store, &mine).await;
    let answer = store.acquire(&theirs, LIMIT).await;
    if let Ok(Answer::Granted(grant)) = answer {
        assert_ne!(grant.token, token);
        assert!(matches!(renewed(&*store, &theirs).await, Outcome::Renewed));
    }
    assert!(matches!(renewed(&*store, &mine).await, Outcome::Renewed));
}

#[tokio::test]
async fn a_slow_network_is_waited_for_within_the_limit() {
    let (server, proxy, store) = start().await;
    let slow = Duration::from_millis(900);
    let claim = claim("a", LONG);
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
    let (server, proxy, store) = start().await;
    let ttl = Duration::from_millis(1_000);
    let claim = claim("a", ttl);
    proxy.once(Request::is_script, Fault::HoldReply);
    let first_sent_at = now();
    store
        .acquire(&claim, SHORT)
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

/// When a rival for the name `a`, asking all the time, is granted.
async fn rival_granted_at(store: &dyn Store) -> leasehold::clock::Instant {
    let rival = claim("a", LONG);
    until("the rival's grant", async || {
        match store.acquire(&rival, LIMIT).await.expect("a direct way") {
            Answer::Granted(_) => Some(now()),
            _ => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_renewal_that_arrives_after_the_release_revives_nothing() {
    let (server, proxy, store) = start().await;
    let first = claim("a", LONG);
    granted(&*store, &first).await;
    let late = Fault::DelayRequest(Duration::from_millis(600));
    proxy.once(Request::is_script, late);
    let outcome = store
        .renew(&[renewal(&first)], SHORT)
        .await
        .outcomes
        .remove(0);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let direct = open(&server.url()).await;
    assert_eq!(released(&*direct, &first).await, Release::Released);
    let next = claim("a", Duration::from_secs(10));
    granted(&*direct, &next).await;
    // The late renewal has arrived once its connection, now behind it, is answered again.
    assert_eq!(held(&*store, &claim("a", LONG)).await.by, Some(next.holder));
    at(now().after(Duration::from_millis(600))).await;
    let left: u64 = server.told(&format!("PTTL {}", lease("a"))).await;
    assert!(
        left <= 10_000,
        "extended by a renewal of another holder: {left} ms"
    );
}

/// So many leases that are held, and what renews them.
async fn hold(store: &dyn Store, count: usize) -> (Vec<Claim>, Vec<Renewal>) {
    let claims: Vec<_> = (0..count)
        .map(|index| claim(&format!("n{index}"), LONG))
        .collect();
    for claim in &claims {
        granted(store, claim).await;
    }
    let batch = claims.iter().map(renewal).collect();
    (claims, batch)
}

/// The one outcome that is not a renewal.
fn only_failure(outcomes: &[Outcome]) -> (usize, ErrorKind) {
    let mut failures = outcomes
        .iter()
        .enumerate()
        .filter_map(|(index, outcome)| match outcome {
            Outcome::Renewed => None,
            Outcome::Unknown(error) => Some((index, error.kind())),
            other => panic!("renewal {index} answered {other:?}"),
        });
    let failure = failures.next().expect("one renewal fails");
    assert_eq!(failures.next(), None, "only one renewal fails");
    failure
}

#[tokio::test]
async fn a_poisoned_key_in_a_batch_of_256_costs_one_renewal() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let (_, batch) = hold(&*store, 256).await;
    let () = server
        .told(&format!("SET {} poison PX 60000", lease("n99")))
        .await;
    let outcomes = store.renew(&batch, LIMIT).await.outcomes;
    assert_eq!(only_failure(&outcomes), (99, ErrorKind::Misconfigured));
}

#[tokio::test]
async fn a_forbidden_key_in_a_batch_of_256_costs_one_renewal() {
    let server = RedisServer::start().await;
    let admin = open(&server.url()).await;
    let (_, batch) = hold(&*admin, 256).await;
    // All of the names but n99.
    let keys = [
        "~leasehold:{n[0-8]*",
        "~leasehold:{n9",
        "~leasehold:{n9}*",
        "~leasehold:{n9[0-8]*",
    ];
    let () = server
        .told(&format!(
            "ACL SETUSER worker on >secret +@all &* {}",
            keys.join(" ")
        ))
        .await;
    let store = open(&format!("{}?user=worker&pass=secret", server.url())).await;
    let outcomes = store.renew(&batch, LIMIT).await.outcomes;
    assert_eq!(only_failure(&outcomes), (99, ErrorKind::Denied));
}

#[tokio::test]
async fn scripts_that_a_server_forgot_are_loaded_again_unnoticed() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let (claims, batch) = hold(&*store, 600).await;
    let forget = async || server.told::<()>("SCRIPT FLUSH").await;
    forget().await;
    let outcomes = store.renew(&batch, LIMIT).await.outcomes;
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Renewed))
    );
    forget().await;
    assert_eq!(released(&*store, &claims[0]).await, Release::Released);
    forget().await;
    next_token(&*store, "n0").await;
    forget().await;
    assert!(
        store
            .inspect(&claims[1].name, LIMIT)
            .await
            .expect("answered")
            .is_some()
    );
}

/// In bad weather: many tasks take and free one name. Whoever is granted sees a higher token than all before, and no two
/// are in at once. What nobody released runs out by itself.
#[tokio::test]
async fn in_bad_weather_grants_exclude_each_other_and_tokens_rise() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let seed = std::env::var("LEASEHOLD_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let late = Duration::from_millis(30);
    proxy.set_weather(Weather {
        seed: seed.unwrap_or_else(|| fastrand::u64(..)),
        per_mille: vec![
            (20, Fault::DropRequest),
            (20, Fault::DropReply),
            (10, Fault::HoldRequest),
            (10, Fault::HoldReply),
            (50, Fault::DelayRequest(late)),
            (50, Fault::DelayReply(late)),
            (50, Fault::DoubleRequest),
        ],
    });
    let history = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    let end = now().after(Duration::from_secs(3));
    for _ in 0..6 {
        let url = proxy.url();
        let history = history.clone();
        tasks.spawn(async move {
            let store = open(&url).await;
            while now() < end {
                take_and_free(&*store, &history).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert!(
        proxy.faults().len() > 20,
        "{} faults of {} requests",
        proxy.faults().len(),
        proxy.requests()
    );
    let mut history = std::mem::take(&mut *history.lock().expect("no panic"));
    history.sort_by_key(|stay| stay.token);
    assert!(history.len() > 20, "{} grants", history.len());
    for pair in history.windows(2) {
        assert!(pair[0].token < pair[1].token, "one token twice: {pair:?}");
        assert!(
            pair[0].until <= pair[1].since,
            "two were in at once: {pair:?}"
        );
    }
    server.assert_all_keys_run_out().await;
}

/// One holder's stay: surely granted by `since`, and not yet released at `until`.
#[derive(Debug)]
struct Stay {
    token: Token,
    since: leasehold::clock::Instant,
    until: leasehold::clock::Instant,
}

async fn take_and_free(store: &dyn Store, history: &std::sync::Mutex<Vec<Stay>>) {
    let ttl = Duration::from_millis(400);
    let claim = claim("a", ttl);
    let sent_at = now();
    if let Ok(Answer::Granted(grant)) = store.acquire(&claim, Duration::from_millis(100)).await {
        let since = now();
        tokio::task::yield_now().await;
        let until = now();
        // As a holder would: past its term it makes no claim to have been in.
        if until < sent_at.after(ttl) {
            let token = grant.token;
            history.lock().expect("no panic").push(Stay {
                token,
                since,
                until,
            });
        }
    }
    let limit = Duration::from_millis(100);
    for _ in 0..3 {
        if store
            .release(&claim.name, claim.holder, None, limit)
            .await
            .is_ok()
        {
            break;
        }
    }
}
