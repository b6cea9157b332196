//! Servers that ask who comes.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{Eviction, Release};

use crate::etcd::open;
use crate::harness::asking::{claim, granted, held, next_token, refused};
use crate::harness::etcd_server::EtcdServer;
use crate::harness::leases::{client_at, take};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, pause, soon};

/// The time until a server forgets an unused login.
const FORGOTTEN: Duration = Duration::from_secs(2);

/// A server that forgets logins soon, on which `jobs` may use the keys below `jobs`.
async fn server() -> EtcdServer {
    let forgotten = format!("--auth-token-ttl={}", FORGOTTEN.as_secs());
    let server = EtcdServer::start_with(&[&forgotten]).await;
    server.ask_for_users("jobs", "jobs").await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_a_right_on_the_prefix_has_all_calls() {
    let server = server().await;
    let url = server.url_with("jobs:jobs@", "jobs");
    let store = open(&url).await;
    next_token(&*store, "a").await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    held(&*open(&url).await, &claim("a", LONG)).await;
    assert_eq!(store.list("", LIMIT).await.expect("answered").len(), 1);
    let kept = store.release(&lease.name, lease.holder, Some(LONG), LIMIT);
    assert_eq!(kept.await.expect("answered"), Release::Released);
    assert!(
        store
            .evict(&lease.name, Eviction::Now, LIMIT)
            .await
            .expect("answered")
    );
    let ids: Vec<_> = store.hazards(LIMIT).await.expect("answered");
    let ids: Vec<_> = ids.iter().map(|hazard| hazard.id).collect();
    assert!(ids.contains(&"etcd-plaintext-password"), "{ids:?}");
    let (one, other) = (client_at(&url, LONG).await, client_at(&url, LONG).await);
    let first = take(&one, "b").await;
    let waiting = tokio::spawn({
        let request = other.request("b");
        async move { (request.acquire().await.expect("granted"), now()) }
    });
    // Longer than an unused login lasts: the next request logs in again.
    pause(3 * FORGOTTEN).await;
    let released_at = now();
    first.release().await;
    let (_lease, granted_at) = soon(waiting).await.expect("no panic");
    let took = granted_at.since(released_at);
    eprintln!("case=hand-off by a watch of etcd after a login was forgotten: took={took:.1?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_told_why() {
    let server = server().await;
    for (login, prefix, words) in [
        ("jobs:s3cret@", "jobs", "the user or the password is wrong"),
        (
            "nobody:s3cret@",
            "jobs",
            "the user or the password is wrong",
        ),
        ("", "jobs", "the servers want a user"),
        ("jobs:jobs@", "other", "readwrite on the prefix of the keys"),
    ] {
        refused(&server.url_with(login, prefix), ErrorKind::Denied, words).await;
    }
    let without = EtcdServer::shared().await.url_with("me:s3cret@", "jobs");
    let words = "take the user out of the URL";
    refused(&without, ErrorKind::Misconfigured, words).await;
}
