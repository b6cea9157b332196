//! Work that is done under a lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::{Eviction, Store};
use leasehold::{ErrorKind, Lease, LossReason};

use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, take};
use crate::harness::times::TTL;
use crate::harness::wait::{soon, until_so};

#[tokio::test]
async fn work_that_uses_its_lease_can_be_spawned() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let done = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (client, done) = (client.clone(), done.clone());
            tokio::spawn(async move {
                let work = async |lease: &Lease| {
                    let before = done.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    done.store(before + 1, Ordering::SeqCst);
                    lease.token()
                };
                client.run("a", work).await.unwrap()
            })
        })
        .collect();
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(soon(task).await.unwrap());
    }
    assert_eq!(done.load(Ordering::SeqCst), 20, "no two ran at once");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 20);
}

#[tokio::test]
async fn the_end_of_the_work_counts_though_the_lease_is_lost_after_it() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let work = async |lease: &Lease| {
        let name = lease.name().clone();
        store.evict(&name, Eviction::Now, TTL).await.unwrap();
        "done"
    };
    assert_eq!(client.run("a", work).await.unwrap(), "done");
}

#[tokio::test]
async fn work_that_blocks_past_the_loss_keeps_its_value() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let request = client.request("a").max_hold(TTL / 4);
    // Without an await it cannot be dropped.
    let work = async |lease: &Lease| while lease.check().is_ok() {};
    request.run(work).await.unwrap();
}

#[tokio::test]
async fn a_loss_names_its_reason_and_is_no_error_of_the_works() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let request = client.request("a").max_hold(TTL / 4);
    let ended: Result<Result<(), String>, _> = request
        .run(async |_| {
            std::future::pending::<()>().await;
            Err("the work's own".to_owned())
        })
        .await;
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(
        error.to_string().contains(LossReason::MaxHold.as_str()),
        "{error}"
    );
}

#[tokio::test]
async fn work_never_begins_without_the_lease() {
    let store = FaultyStore::new();
    let (holder, client) = (client(&store).await, client(&store).await);
    let _lease = take(&holder, "a").await;
    let began = AtomicUsize::new(0);
    let work = async |_: &Lease| began.fetch_add(1, Ordering::SeqCst);
    let waiting = tokio::time::timeout(TTL / 4, client.run("a", work)).await;
    assert!(waiting.is_err());
    assert_eq!(began.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_scope_that_is_dropped_drops_the_work_and_releases() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let witness = Arc::new(());
    let held = witness.clone();
    let work = async move |_: &Lease| {
        let _held = held;
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    let working = tokio::time::timeout(TTL / 4, client.run("a", work)).await;
    assert!(working.is_err());
    assert_eq!(Arc::strong_count(&witness), 1);
    until_so("the release", async || store.held("a").await.is_none()).await;
}
