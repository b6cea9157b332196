//! Programs that take leases as client-go's leader election does, beside ours.

use std::time::Duration;

use leasehold::Attempt;
use leasehold::store::Outcome;
use serde_json::{Value, json};

use super::open;
use crate::harness::asking::{asked, claim, granted, held, next_token, released, renewed};
use crate::harness::kubernetes_server::Namespace;
use crate::harness::leases::{client_at, take};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, pause, soon, until};
use leasehold::store::Answer;

/// The spec as client-go writes it: `renewed` is the second of this minute.
fn elected(holder: &str, seconds: u64, renewed: u64) -> Value {
    json!({ "spec": {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "acquireTime": "2026-11-28T21:45:00.000001Z",
        "renewTime": format!("2026-11-28T21:45:{renewed:02}.000001Z"),
        "leaseTransitions": 3,
    } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_another_program_is_respected_for_its_time_and_then_taken() {
    let namespace = Namespace::make().await;
    namespace.write("a", elected("pod-1_x", 2, 1)).await;
    let store = open(&namespace.url()).await;
    let rival = claim("a", LONG);
    let first = now();
    let seen = held(&*store, &rival).await;
    assert_eq!(
        (seen.by, seen.token, &*seen.info.host),
        (None, None, "pod-1_x")
    );
    pause(Duration::from_secs(1)).await;
    namespace.write("a", elected("pod-1_x", 2, 2)).await;
    let renewed_at = now();
    let token = until("the grant", async || {
        match asked(&*store, &rival, LIMIT).await.expect("answered") {
            Answer::Granted(grant) => Some(grant.token),
            _ => None,
        }
    })
    .await;
    let after = now().since(renewed_at);
    assert!(
        after >= Duration::from_secs(2),
        "{after:?} after its renewal, {:?} in all",
        now().since(first)
    );
    assert!(token.get() > 1_000_000_000_000_000, "by the clock: {token}");
    // What the other program counts stays.
    assert_eq!(namespace.object("a").await["spec"]["leaseTransitions"], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_another_program_takes_from_us_and_releases_keeps_our_token() {
    let namespace = Namespace::make().await;
    let store = open(&namespace.url()).await;
    let lease = claim("a", LONG);
    let token = granted(&*store, &lease).await;
    // It writes the annotations back as they were.
    namespace.write("a", elected("pod-1_x", 15, 1)).await;
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Refused));
    let seen = held(&*open(&namespace.url()).await, &claim("a", LONG)).await;
    assert_eq!((seen.by, &*seen.info.host), (None, "pod-1_x"));
    let listed = store.list("", LIMIT).await.expect("answered");
    assert_eq!((listed.len(), &*listed[0].info.host), (1, "pod-1_x"));
    // Its release.
    namespace.write("a", elected("", 1, 2)).await;
    let next = next_token(&*open(&namespace.url()).await, "a").await;
    assert!(next > token, "{next} after {token}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_sees_our_holder_each_renewal_and_the_release() {
    let namespace = Namespace::make().await;
    let store = open(&namespace.url()).await;
    let lease = claim("a", Duration::from_millis(14_001));
    granted(&*store, &lease).await;
    let spec = namespace.object("a").await["spec"].clone();
    let holder = spec["holderIdentity"].as_str().expect("a holder");
    assert!(
        holder.ends_with(&format!("/{}", std::process::id())),
        "{holder}"
    );
    assert_eq!(spec["leaseDurationSeconds"], 15);
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    let after = namespace.object("a").await["spec"].clone();
    assert_eq!(after["acquireTime"], spec["acquireTime"]);
    assert!(
        after["renewTime"].as_str() > spec["renewTime"].as_str(),
        "{after}"
    );
    released(&*store, &lease).await;
    let after = namespace.object("a").await["spec"].clone();
    assert_eq!(after["holderIdentity"], Value::Null, "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_waits_for_our_holder_and_ours_for_client_go() {
    let namespace = Namespace::make().await;
    let ttl = Duration::from_secs(4);
    let client = client_at(&namespace.url(), ttl).await;
    let lease = take(&client, "a").await;
    let first = lease.token();
    let mut elected = namespace.elect("a", 4);
    // Longer than its lease and ours.
    pause(ttl * 3).await;
    assert!(elected.is_silent() && lease.check().is_ok());
    lease.release().await;
    elected.says("leads").await;
    let seen = client.try_acquire("a").await.expect("answered");
    assert!(
        matches!(&seen, Attempt::Held(held) if held.info.host.starts_with("elected-")),
        "{seen:?}"
    );
    let waiting = tokio::spawn({
        let request = client.request("a");
        async move { request.acquire().await }
    });
    pause(ttl * 3).await;
    assert!(!waiting.is_finished());
    elected.end();
    elected.says("ends").await;
    let lease = soon(waiting).await.expect("no panic").expect("granted");
    assert!(lease.token() > first, "{} after {first}", lease.token());
    // One that dies costs its lease.
    lease.release().await;
    let mut elected = namespace.elect("a", 4);
    elected.says("leads").await;
    drop(elected);
    let died_at = now();
    let lease = soon(client.request("a").acquire()).await.expect("granted");
    let after = now().since(died_at);
    eprintln!("case=the name of a program with client-go that died: after={after:.1?}");
    lease.release().await;
}
