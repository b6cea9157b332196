//! A store whose connections are never made, and never fail.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Manual;
use leasehold::{Client, OutagePolicy};
use tokio::task::JoinHandle;

use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::wait::soon;

/// A store on a clock that a test moves.
struct Bench {
    store: FaultyStore,
    clock: Arc<Manual>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(Manual::new());
        let store = FaultyStore::with_clock(clock.clone());
        Self { store, clock }
    }

    async fn client(&self) -> Client {
        let builder = Client::builder().store(self.store.clone());
        builder.build().await.unwrap()
    }

    /// Lets time pass until this is so.
    async fn pass_until(&self, is_so: impl Fn() -> bool) {
        soon(async {
            while !is_so() {
                self.clock.advance(Duration::from_millis(500));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }

    /// Lets time pass until this task ends.
    async fn ended<T>(&self, task: JoinHandle<T>) -> T {
        self.pass_until(|| task.is_finished()).await;
        task.await.unwrap()
    }
}

#[tokio::test]
async fn a_first_acquire_outlasts_a_connection_that_hangs_for_ever() {
    let bench = Bench::new();
    let faults = &bench.store.faults;
    faults.plan(Call::Connect, Fault::Hang, 1);
    let client = bench.client().await;
    let request = client.request("a").on_outage(OutagePolicy::WaitOut);
    let lease = bench.ended(tokio::spawn(request.acquire())).await;
    lease.unwrap().check().unwrap();
    assert_eq!(bench.store.connections(), 2);
}

#[tokio::test]
async fn a_waiting_client_gets_notices_after_a_subscription_that_hung() {
    let bench = Bench::new();
    let holder = bench.client().await;
    let lease = holder.acquire("a").await.unwrap();
    let faults = &bench.store.faults;
    faults.plan(Call::Subscribe, Fault::Hang, 1);
    let client = bench.client().await;
    let waiting = tokio::spawn(async move { client.acquire("a").await });
    bench.pass_until(|| bench.store.subscriptions() > 1).await;
    lease.release().await;
    let lease = bench.ended(waiting).await;
    lease.unwrap().check().unwrap();
}
