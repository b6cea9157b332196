//! A holder that dies, and a server that is silent, refuses, or forgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use http::StatusCode;
use leasehold::store::Outcome;
use leasehold::{Client, ErrorKind, LossReason};

use super::open;
use crate::faults::contender::Contender;
use crate::harness::asking::{
    asked, chain, claim, granted, next_token, released, renewed, rival_granted_at,
};
use crate::harness::kubernetes_server::{ACCOUNT, Namespace};
use crate::harness::leases::{client_at, renewed_times, take};
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{lost, now, pause, until};
use crate::kubernetes::api::{Api, refusal};

const TTL: Duration = Duration::from_secs(3);
/// The skew of the tests' URLs and two grains.
const GRACE: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_never_saw_a_dead_holder_takes_its_name_after_the_ttl_and_the_grace() {
    let namespace = Namespace::make().await;
    let mut holder = Contender::start(&namespace.url(), TTL);
    holder.claim();
    let (token, _) = holder.granted();
    holder.kill();
    let killed_at = now();
    // Each look is that of a store of its own, as those of jobs that a timer starts.
    let (next, granted_at) = loop {
        let store = open(&namespace.url()).await;
        let rival = claim("a", LONG);
        if let leasehold::store::Answer::Granted(grant) =
            asked(&*store, &rival, LIMIT).await.expect("answered")
        {
            break (grant.token.get(), now());
        }
        pause(Duration::from_millis(100)).await;
    };
    let after = granted_at.since(killed_at);
    eprintln!("case=a dead holder's name, by processes that never saw it: after={after:.1?}");
    assert!(next > token, "{next} after {token}");
    // The last renewal may be a third of the ttl old.
    assert!(after > TTL / 2 + Duration::from_secs(1), "{after:?}");
    assert!(after < TTL + GRACE + SLACK, "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_silent_network_the_holder_is_told_before_a_rival_is_granted() {
    let namespace = Namespace::make().await;
    let relay = Relay::before_port(namespace.port()).await;
    let url = namespace.url_at(ACCOUNT, &format!("127.0.0.1:{}", relay.port()));
    namespace
        .allow(&["get", "list", "watch", "create", "patch", "delete"])
        .await;
    let client = client_at(&url, TTL).await;
    let lease = take_soon(&client).await;
    let direct = open(&namespace.url()).await;
    relay.pass(Passing::Nothing);
    let told = async {
        assert_eq!(lost(&lease).await, LossReason::Deadline);
        now()
    };
    let (told_at, granted_at) = tokio::join!(told, rival_granted_at(&*direct));
    assert!(
        told_at < granted_at,
        "told {:?} too late",
        told_at.since(granted_at)
    );
    relay.pass(Passing::All);
    let request = client
        .request("b")
        .on_outage(leasehold::OutagePolicy::WaitOut);
    request
        .acquire()
        .await
        .expect("it works again")
        .release()
        .await;
}

/// Takes the name `a` once the server knows the account's rights.
async fn take_soon(client: &Client) -> leasehold::Lease {
    until("the rights", async || match client.try_acquire("a").await {
        Ok(leasehold::Attempt::Acquired(lease)) => Some(lease),
        _ => None,
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_went_silent_costs_no_lease() {
    let namespace = Namespace::make().await;
    let relay = Relay::before_port(namespace.port()).await;
    let url = namespace.url_at("administrator", &format!("127.0.0.1:{}", relay.port()));
    let client = client_at(&url, TTL * 2).await;
    let lease = take(&client, "a").await;
    for _ in 0..3 {
        relay.forget();
        renewed_times(&lease, 2).await;
    }
    lease.release().await;
}

/// A way to the server of this namespace that answers with this code as long as it is not 0.
async fn refusing(namespace: Arc<Namespace>) -> (Api, Arc<AtomicU16>) {
    let refuses = Arc::<AtomicU16>::default();
    let code = refuses.clone();
    let api = Api::answering(move |asked| {
        let namespace = namespace.clone();
        let code = code.load(Ordering::Relaxed);
        Box::pin(async move {
            match StatusCode::from_u16(code) {
                Ok(code) => refusal(code, "not now"),
                Err(_) if asked.path.contains("watch=1") => refusal(StatusCode::GONE, "no watch"),
                Err(_) => namespace.pass(&asked.method, &asked.path, asked.body).await,
            }
        })
    });
    (api.await, refuses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_for_a_while_costs_no_lease_and_changes_nothing() {
    let namespace = Arc::new(Namespace::make().await);
    let (api, refuses) = refusing(namespace.clone()).await;
    let url = api.url(&namespace.name);
    let store = open(&url).await;
    let client = client_at(&url, TTL * 2).await;
    let lease = take(&client, "held").await;
    let known = claim("known", LONG);
    granted(&*store, &known).await;
    for (code, kind, words) in [
        (
            429,
            ErrorKind::Unavailable,
            "429 Too Many Requests: not now",
        ),
        (401, ErrorKind::Denied, "missing, wrong or expired"),
        (
            503,
            ErrorKind::Unavailable,
            "503 Service Unavailable: not now",
        ),
    ] {
        let before = namespace.object("known").await["metadata"]["resourceVersion"].clone();
        refuses.store(code, Ordering::Relaxed);
        let error = asked(&*store, &claim("new", LONG), LIMIT)
            .await
            .expect_err("refused");
        let said = chain(&error);
        assert_eq!(error.kind(), kind, "{said}");
        assert!(said.contains(words), "{said}");
        let Outcome::Unknown(error) = renewed(&*store, &known).await else {
            panic!("{code}: it was not renewed");
        };
        assert_eq!(error.kind(), kind);
        tokio::time::sleep(Duration::from_secs(2)).await;
        refuses.store(0, Ordering::Relaxed);
        let after = namespace.object("known").await["metadata"]["resourceVersion"].clone();
        assert_eq!(after, before);
        renewed_times(&lease, 2).await;
        assert!(matches!(renewed(&*store, &known).await, Outcome::Renewed));
    }
    lease.release().await;
    released(&*store, &known).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_an_operator_removed_refuses_its_holder_and_its_next_token_is_higher() {
    let namespace = Namespace::make().await;
    let store = open(&namespace.url()).await;
    let lease = claim("a", LONG);
    let token = granted(&*store, &lease).await;
    // Times are in whole seconds.
    pause(Duration::from_secs(2)).await;
    namespace.remove("a").await;
    let outcome = renewed(&*store, &lease).await;
    assert!(matches!(outcome, Outcome::Refused), "{outcome:?}");
    let next = next_token(&*open(&namespace.url()).await, "a").await;
    assert!(next > token, "{next} after {token}");
}
