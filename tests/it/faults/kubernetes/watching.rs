//! Clients that wait, told by a watch or not.

use std::time::Duration;

use leasehold::Client;

use crate::harness::kubernetes_server::{ACCOUNT, Namespace};
use crate::harness::leases::{client_at, take};
use crate::harness::times::LONG;
use crate::harness::wait::{now, pause, soon, until};

/// Releases a name that the other client waits for, and returns the time until that has it.
async fn hand_off(from: &Client, to: &Client, name: &str) -> Duration {
    let lease = take(from, name).await;
    let waiting = tokio::spawn({
        let request = to.request(name);
        async move { (request.acquire().await.expect("granted"), now()) }
    });
    // Longer than it takes to poll and to begin a watch.
    pause(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    let released_at = now();
    lease.release().await;
    let (lease, granted_at) = soon(waiting).await.expect("it does not panic");
    lease.release().await;
    granted_at.since(released_at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_client_has_a_name_that_was_released_long_before_it_would_poll_again() {
    let namespace = Namespace::make().await;
    let (one, other) = (
        client_at(&namespace.url(), LONG).await,
        client_at(&namespace.url(), LONG).await,
    );
    let mut took = Vec::new();
    // The name of the last is not that of its object.
    for name in ["a", "a", "Odd/Name"] {
        took.push(hand_off(&one, &other, name).await);
    }
    eprintln!("case=hand-off by watch: took={took:.1?}");
    took.sort();
    // It polls after five seconds, two of which are over.
    assert!(took[2] < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_may_not_watch_polls_each_second() {
    let namespace = Namespace::make().await;
    namespace
        .allow(&["get", "list", "create", "patch", "delete"])
        .await;
    let one = client_at(&namespace.url(), LONG).await;
    let other = client_at(&namespace.url_as(ACCOUNT), LONG).await;
    let lease = until("the rights", async || {
        other.request("b").acquire().await.ok()
    })
    .await;
    lease.release().await;
    let took = hand_off(&one, &other, "a").await;
    eprintln!("case=hand-off by polling: took={took:.1?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}
