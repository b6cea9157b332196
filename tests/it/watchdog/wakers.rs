//! What a renewal and a loss wake, and what the woken code may do to the watchdog.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use leasehold::LossReason;
use leasehold::clock::Instant;

use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, renewed_times, take};
use crate::harness::times::{PATIENCE, TTL};
use crate::harness::wait::{lost, until};

/// Panics, as the waker of an event loop that has ended may.
pub(super) struct Gone;

impl Wake for Gone {
    fn wake(self: Arc<Self>) {
        panic!("the event loop is gone, as it was told");
    }
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_waker_that_panics_ends_no_lease_but_its_own() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let doomed = client.request("doomed").max_hold(TTL).acquire().await;
    let (doomed, other) = (doomed.unwrap(), take(&client, "other").await);
    let gone = Waker::from(Arc::new(Gone));
    let mut context = Context::from_waker(&gone);
    // One is woken by the first renewal, the other by the loss.
    let first = doomed.term().expect("held").deadline();
    let mut moved = Box::pin(doomed.renewed_past(first));
    assert!(moved.as_mut().poll(&mut context).is_pending());
    let is_renewed = async || (doomed.term()?.deadline() > first).then_some(());
    until("the first renewal", is_renewed).await;
    let mut ended = Box::pin(doomed.renewed_past(Instant::FAR_FUTURE));
    assert!(ended.as_mut().poll(&mut context).is_pending());
    assert_eq!(lost(&doomed).await, LossReason::MaxHold);
    renewed_times(&other, 2).await;
    take(&client, "another").await.check().unwrap();
}

#[tokio::test]
async fn a_waker_that_panics_at_a_loss_ends_no_lease_but_its_own() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let doomed = client.request("doomed").max_hold(TTL).acquire().await;
    let (doomed, other) = (doomed.unwrap(), take(&client, "other").await);
    let gone = Waker::from(Arc::new(Gone));
    let mut told = Box::pin(doomed.lost());
    let is_pending = told
        .as_mut()
        .poll(&mut Context::from_waker(&gone))
        .is_pending();
    assert!(is_pending);
    until("the loss", async || doomed.check().err()).await;
    renewed_times(&other, 2).await;
    take(&client, "another").await.check().unwrap();
}

#[tokio::test]
async fn a_renewal_wakes_only_the_tasks_that_wait_for_this_lease() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let long = client
        .request("long")
        .ttl(PATIENCE * 2)
        .acquire()
        .await
        .unwrap();
    let count = Arc::new(Counting::default());
    let waker = Waker::from(count.clone());
    let mut moved = pin!(long.renewed_past(long.term().expect("held").deadline()));
    let is_pending = moved
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending();
    assert!(is_pending);
    let short = take(&client, "short").await;
    renewed_times(&short, 2).await;
    short.release().await;
    drop(take(&client, "dropped").await);
    assert_eq!(count.0.load(Ordering::SeqCst), 0, "nothing of it has moved");
}
