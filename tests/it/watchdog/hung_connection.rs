//! A store whose connections are never made, and never fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::clock::Manual;
use leasehold::store::memory::Memory;
use leasehold::store::{Lane, Notices, Store};
use leasehold::{BoxFuture, Client, Error, OutagePolicy};
use tokio::task::JoinHandle;

use super::LIMIT;
use crate::harness::forward::forward;

/// A store in memory, on a clock that a test moves, whose first connections hang. Clones are one store.
#[derive(Debug, Clone)]
struct Hung {
    memory: Memory,
    clock: Arc<Manual>,
    connections: Arc<AtomicU32>,
    subscriptions: Arc<AtomicU32>,
}

impl Hung {
    fn new() -> Self {
        let clock = Arc::new(Manual::new());
        Self {
            memory: Memory::with_clock(clock.clone()),
            clock,
            connections: Arc::default(),
            subscriptions: Arc::default(),
        }
    }

    async fn client(&self) -> Client {
        let builder = Client::builder().store(self.clone());
        builder.build().await.unwrap()
    }

    /// Lets time pass until this is so.
    async fn until(&self, is_so: impl Fn() -> bool) {
        let passing = async {
            while !is_so() {
                self.clock.advance(Duration::from_millis(500));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let passed = tokio::time::timeout(LIMIT, passing).await;
        passed.expect("it does not hang for ever");
    }

    /// Lets time pass until this task ends.
    async fn ended<T>(&self, task: JoinHandle<T>) -> T {
        self.until(|| task.is_finished()).await;
        task.await.unwrap()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Hung {
    forward!(memory: facts shard members clock location acquire renew release leave inspect list evict hazards close);

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        match self.subscriptions.fetch_add(1, Ordering::SeqCst) {
            0 => Box::pin(std::future::pending()),
            _ => self.memory.notices(),
        }
    }

    fn on_own_connection(&self, lane: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        match self.connections.fetch_add(1, Ordering::SeqCst) {
            0 => Box::pin(std::future::pending()),
            _ => self.memory.on_own_connection(lane),
        }
    }
}

#[tokio::test]
async fn a_first_acquire_outlasts_a_connection_that_hangs_for_ever() {
    let store = Hung::new();
    let client = store.client().await;
    let request = client.request("a").on_outage(OutagePolicy::WaitOut);
    let lease = store.ended(tokio::spawn(request.acquire())).await;
    lease.unwrap().check().unwrap();
    assert_eq!(store.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_waiting_client_gets_notices_after_a_subscription_that_hung() {
    let store = Hung::new();
    let holder = store.client().await;
    store.connections.store(1, Ordering::SeqCst);
    let lease = holder.acquire("a").await.unwrap();
    let client = store.client().await;
    let waiting = tokio::spawn(async move { client.acquire("a").await });
    let subscriptions = store.subscriptions.clone();
    store
        .until(|| subscriptions.load(Ordering::SeqCst) > 1)
        .await;
    lease.release().await;
    let lease = store.ended(waiting).await;
    lease.unwrap().check().unwrap();
}
