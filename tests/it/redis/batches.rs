//! One bad lease in a batch, and scripts that the server forgot.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{MAX_BATCH, Outcome, Release, Renewal, Store};

use super::open;
use super::wire::lease_key;
use crate::harness::asking::{Asking, begin, claim, granted, next_token, released, renewal};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until_so};

/// So many leases that are held, and what renews them.
async fn hold(store: &dyn Store, count: usize) -> (Vec<Asking>, Vec<Renewal>) {
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
        .told(&format!("SET {} poison PX 60000", lease_key("n99")))
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
    let (claims, batch) = hold(&*store, MAX_BATCH).await;
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

#[tokio::test]
async fn a_caller_that_loads_scripts_and_is_not_polled_holds_up_no_other() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    next_token(&*store, "warm").await;
    let () = server.told("SCRIPT FLUSH").await;
    let () = server.told("CONFIG RESETSTAT").await;
    let claims = ["kept", "a", "b"].map(|name| claim(name, LONG));
    let [mut kept, mut a, mut b] = claims
        .each_ref()
        .map(|claim| store.acquire(claim, claim.ask, LIMIT));
    for request in [&mut kept, &mut a, &mut b] {
        begin(request).await;
    }
    until_so("all of them found no script", async || {
        let refused: String = server.told("INFO errorstats").await;
        refused.contains("errorstat_NOSCRIPT:count=3")
    })
    .await;
    // It begins to load them.
    begin(&mut kept).await;
    let began_at = now();
    for answer in [a.await, b.await] {
        answer.expect("granted");
    }
    let took = now().since(began_at);
    assert!(took < Duration::from_secs(1), "{took:?}");
    kept.await.expect("granted as well");
}
