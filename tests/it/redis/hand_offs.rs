//! Clients that hand a name on to each other while their server fails: never two of them inside, and all are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::{Client, OutagePolicy};
use tokio::task::JoinSet;

use crate::harness::leases::client_at;
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::STORED_TTL;
use crate::harness::wait::{at, now, until_so};

const CLIENTS: usize = 4;

/// Clients that take turns at the name `a` until a moment, and what became of them.
struct Turns {
    tasks: JoinSet<usize>,
    inside: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
}

impl Turns {
    async fn begin(url: &str, end: Instant) -> Self {
        let mut turns = Self {
            tasks: JoinSet::new(),
            inside: Arc::default(),
            served: Arc::default(),
        };
        for _ in 0..CLIENTS {
            let client = client_at(url, STORED_TTL).await;
            let (inside, served) = (turns.inside.clone(), turns.served.clone());
            turns.tasks.spawn(async move {
                let mut own = 0;
                while now() < end {
                    take_turn(&client, &inside).await;
                    served.fetch_add(1, Ordering::Relaxed);
                    own += 1;
                }
                own
            });
        }
        turns
    }

    /// Returns once so many more turns were taken.
    async fn go_on(&self, turns: usize) {
        let before = self.served.load(Ordering::Relaxed);
        until_so("the turns", async || {
            self.served.load(Ordering::Relaxed) >= before + turns
        })
        .await;
    }

    /// Awaits the end, and returns the fewest turns that one client had.
    async fn fewest(self) -> usize {
        self.tasks.join_all().await.into_iter().min().unwrap_or(0)
    }
}

/// Takes the name for a moment; no one else may have it then.
async fn take_turn(client: &Client, inside: &AtomicUsize) {
    let request = client.request("a").on_outage(OutagePolicy::WaitOut);
    let lease = request.acquire().await.expect("granted at last");
    let others = inside.fetch_add(1, Ordering::SeqCst);
    // One that has just lost it may not have seen that so far.
    let is_held = lease.check().is_ok();
    at(now().after(Duration::from_millis(5))).await;
    inside.fetch_sub(1, Ordering::SeqCst);
    assert!(others == 0 || !is_held, "{others} others are inside");
    lease.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_amid_hand_offs_lets_no_two_in() {
    let group = RedisGroup::start().await;
    let url = format!("{}?acknowledged_by=1", group.url());
    let turns = Turns::begin(&url, now().after(Duration::from_secs(10))).await;
    turns.go_on(20).await;
    group.fail_over().await;
    group.master_after(0).await;
    turns.go_on(20).await;
    assert!(turns.fewest().await > 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_data_amid_hand_offs_lets_no_two_in() {
    let mut server = RedisServer::start().await;
    let url = format!("{}?max_ttl={}s", server.url(), STORED_TTL.as_secs());
    let turns = Turns::begin(&url, now().after(STORED_TTL * 5)).await;
    turns.go_on(20).await;
    server.restart_empty().await;
    turns.go_on(20).await;
    assert!(turns.fewest().await > 5);
}
