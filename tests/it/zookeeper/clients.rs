//! Whole clients: renewal, loss and waiting in both orders.

use std::time::Duration;

use leasehold::store::Eviction;
use leasehold::{LossReason, Name, OutagePolicy, ReleaseOutcome};

use super::open;
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::times::{LIMIT, STORED_TTL};
use crate::harness::wait::{at, lost, now};
use crate::harness::zookeeper_server::ZookeeperServer;

#[tokio::test]
async fn a_lease_is_renewed_past_its_ttl_and_an_eviction_is_told() {
    let url = ZookeeperServer::chroot().await;
    let client = client_at(&url, STORED_TTL).await;
    let lease = take_waiting(&client, "a").await;
    at(now().after(2 * STORED_TTL)).await;
    lease.check().expect("it is renewed");
    let operator = open(&url);
    let name = Name::new("a").expect("a name");
    let evicted = operator.evict(&name, Eviction::Marked, LIMIT).await;
    assert!(evicted.expect("answered"));
    assert_eq!(lost(&lease).await, LossReason::Evicted);
    client.shutdown(LIMIT).await;
}

#[tokio::test]
async fn many_clients_get_a_name_one_after_the_other() {
    let url = ZookeeperServer::chroot().await;
    let mut waiting = tokio::task::JoinSet::new();
    let counter = std::sync::Arc::new(tokio::sync::Mutex::new(Vec::new()));
    for _ in 0..6 {
        let (client, counter) = (client_at(&url, STORED_TTL).await, counter.clone());
        waiting.spawn(async move {
            for _ in 0..3 {
                // On a busy machine a session takes longer to make than one request may.
                let request = client.request("a");
                let request = request.on_outage(OutagePolicy::WaitOut);
                let lease = request.acquire().await.expect("in the end");
                // Held by one at a time, or this fails.
                let mut tokens = counter.try_lock().expect("nobody else has it");
                assert!(tokens.last() < Some(&lease.token()), "{tokens:?}");
                tokens.push(lease.token());
                drop(tokens);
                assert_eq!(lease.release().await, ReleaseOutcome::Released);
            }
            client.shutdown(LIMIT).await;
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(60), waiting.join_all());
    all.await.expect("all of them in time");
    assert_eq!(counter.lock().await.len(), 18);
}

#[tokio::test]
async fn a_client_that_shuts_down_frees_what_it_holds() {
    let url = ZookeeperServer::chroot().await;
    let (first, second) = (
        client_at(&url, STORED_TTL).await,
        client_at(&url, STORED_TTL).await,
    );
    let lease = take_waiting(&first, "a").await;
    drop(lease);
    first.shutdown(LIMIT).await;
    let lease = second.acquire_within("a", STORED_TTL / 2).await;
    drop(lease.expect("it is free again"));
    second.shutdown(LIMIT).await;
}
