//! Each limit of a lease begins when the lease is handed to its caller, and none while the caller waits for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::memory::Memory;
use leasehold::store::{self, Store};
use leasehold::{Client, Lease, LeaseRequest, LossReason};
use tokio::task::JoinHandle;

use super::{KINDS, client_of, of_kind, slow, try_take};
use crate::harness::faulty_store::FaultyStore;
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::{lost, now, soon, until_so};

/// The limit that each of these tests sets.
const MOST: Duration = Duration::from_millis(500);
/// How long a writer waits at least: by then a limit that had begun at the door is over.
const WAIT: Duration = Duration::from_millis(700);
/// What a lease may lose of its limit: its end is told early, and the test checks late.
const SLACK: Duration = Duration::from_millis(50);

/// A store in memory and one in Redis, with a client of two processes in all but name.
struct Site {
    store: FaultyStore,
    reading: Client,
    writing: Client,
    _server: Option<RedisServer>,
}

async fn sites() -> [Site; 2] {
    let server = RedisServer::start().await;
    let on_redis = store::open(&server.url()).await.unwrap();
    [
        site(Arc::new(Memory::new()), None).await,
        site(on_redis, Some(server)).await,
    ]
}

async fn site(store: Arc<dyn Store>, server: Option<RedisServer>) -> Site {
    let store = FaultyStore::over(store);
    Site {
        reading: client_of(&store).await,
        writing: client_of(&store).await,
        store,
        _server: server,
    }
}

impl Site {
    /// A reader, and a writer with this request that waits for it for longer than any limit.
    async fn behind_a_reader(
        &self,
        limited: fn(LeaseRequest) -> LeaseRequest,
    ) -> (Lease, JoinHandle<Lease>) {
        let reader = self.reading.shared("config").acquire().await.unwrap();
        let request = limited(self.writing.exclusive("config"));
        let writing = tokio::spawn(async { request.acquire().await.unwrap() });
        until_so("the writer to have the door", async || {
            self.store.held("config").await.is_some()
        })
        .await;
        let door = self.store.held("config").await.unwrap().token;
        tokio::time::sleep(WAIT).await;
        let held = self.store.held("config").await.expect("it keeps its turn");
        assert_eq!(held.token, door, "it keeps its turn");
        (reader, writing)
    }
}

/// Asserts that the lease is lost for this reason, after its whole limit.
async fn assert_lost_after(lease: &Lease, reason: LossReason) {
    let began = now();
    assert_eq!(lost(lease).await, reason);
    let held_for = now().since(began);
    assert!(held_for + SLACK >= MOST, "{reason} after {held_for:?}");
}

#[tokio::test]
async fn the_longest_hold_of_a_writer_begins_when_it_has_the_name_alone() {
    for site in sites().await {
        let limited = |request: LeaseRequest| request.max_hold(MOST);
        let (reader, writing) = site.behind_a_reader(limited).await;
        reader.release().await;
        let writer = soon(writing).await.unwrap();
        assert_lost_after(&writer, LossReason::MaxHold).await;
    }
}

#[tokio::test]
async fn no_reader_overtakes_a_writer_that_waits_longer_than_its_longest_hold() {
    for site in sites().await {
        let limited = |request: LeaseRequest| request.max_hold(MOST);
        let (reader, writing) = site.behind_a_reader(limited).await;
        for _ in 0..3 {
            let later = site.reading.shared("config");
            let later = later.acquire_within(Duration::from_millis(100)).await;
            later.expect_err("a writer waits");
        }
        reader.release().await;
        soon(writing).await.unwrap().release().await;
        // The place of a reader that gave up is left by the loop: its turn may come first.
        until_so("the name to be free", async || {
            try_take(site.reading.shared("config")).await.is_some()
        })
        .await;
    }
}

#[tokio::test]
async fn a_writer_that_waits_need_show_no_progress_until_it_has_the_name() {
    for site in sites().await {
        let limited = |request: LeaseRequest| request.progress_within(MOST);
        let (reader, writing) = site.behind_a_reader(limited).await;
        reader.release().await;
        let writer = soon(writing).await.unwrap();
        assert_lost_after(&writer, LossReason::NoProgress).await;
    }
}

#[tokio::test]
async fn the_least_hold_of_a_writer_begins_when_it_has_the_name_alone() {
    for site in sites().await {
        let limited = |request: LeaseRequest| request.hold_at_least(MOST);
        let (reader, writing) = site.behind_a_reader(limited).await;
        reader.release().await;
        let writer = soon(writing).await.unwrap();
        let began = now();
        writer.release().await;
        until_so("the name to be free", async || {
            try_take(site.writing.request("config")).await.is_some()
        })
        .await;
        let kept_for = now().since(began);
        assert!(kept_for + SLACK >= MOST, "free after {kept_for:?}");
    }
}

/// Their checks of the door come between the grant and the caller.
#[tokio::test]
async fn the_longest_hold_of_each_kind_begins_when_its_caller_has_it() {
    for kind in KINDS {
        let store = slow(Memory::new(), 150);
        let client = client_of(&store).await;
        let lease = of_kind(&client, kind).max_hold(MOST).acquire().await;
        assert_lost_after(&lease.unwrap(), LossReason::MaxHold).await;
    }
}
