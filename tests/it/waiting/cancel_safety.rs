//! Futures dropped at every await leave nothing behind, on every store and behind a network that loses replies.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::store::Store;
use leasehold::store::memory::Memory;
use leasehold::store::redis::Redis;
use leasehold::store::sqlite::Sqlite;
use leasehold::{Client, Lease, Name, OutagePolicy};
use tokio::task::JoinSet;

use crate::harness::proxy::Fault;
use crate::harness::redis_server::RedisServer;

/// More polls than any of these futures needs on a busy machine.
const POLLS: usize = 24;
/// So long that what is gone in time was released, and did not run out.
const TTL: Duration = Duration::from_secs(6);
/// When everything is to be gone: a release that came before the grant is repeated after a second.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// How long a name is held, kept or waited for, where others are to notice.
const SHORT: Duration = Duration::from_millis(40);

/// The ways to a lease and out of it whose futures are dropped.
#[derive(Debug, Clone, Copy)]
enum Way {
    Try,
    Wait,
    WaitWithin,
    WaitBehindAnother,
    WaitInLine,
    Release,
    HoldAtLeast,
    Run,
    All,
    Reenter,
    Shutdown,
}

const WAYS: [Way; 11] = [
    Way::Try,
    Way::Wait,
    Way::WaitWithin,
    Way::WaitBehindAnother,
    Way::WaitInLine,
    Way::Release,
    Way::HoldAtLeast,
    Way::Run,
    Way::All,
    Way::Reenter,
    Way::Shutdown,
];

async fn go(way: Way, client: &Client, name: &str) {
    let taken = client.request(name).on_outage(OutagePolicy::WaitOut);
    match way {
        Way::Try => drop(client.try_acquire(name).await),
        Way::Wait => drop(client.acquire(name).await),
        Way::WaitWithin => drop(client.acquire_within(name, SHORT).await),
        Way::WaitBehindAnother => {
            let other = client.clone();
            let name = name.to_owned();
            let holder = tokio::spawn(async move {
                let lease = other.acquire(&name).await;
                tokio::time::sleep(SHORT).await;
                drop(lease);
            });
            drop(taken.acquire().await);
            let _ = holder.await;
        }
        Way::WaitInLine => {
            let wait = async || drop(client.acquire(name).await);
            tokio::join!(wait(), wait(), wait());
        }
        Way::Release => {
            if let Ok(lease) = taken.acquire().await {
                lease.release().await;
            }
        }
        Way::HoldAtLeast => {
            if let Ok(lease) = taken.hold_at_least(SHORT).acquire().await {
                lease.release().await;
            }
        }
        Way::Run => {
            let work = async |_: &Lease| tokio::task::yield_now().await;
            let _ = client.run(name, work).await;
        }
        Way::All => {
            let names = [format!("{name}/b"), name.to_owned(), format!("{name}/a")];
            drop(client.acquire_all(names).await);
        }
        Way::Reenter => {
            let owner = client.owner();
            let first = owner.acquire(name).await;
            let second = owner.acquire(name).await;
            if let Ok(first) = first {
                first.release().await;
            }
            if let Ok(second) = second {
                second.release().await;
            }
        }
        Way::Shutdown => {
            let lease = taken.acquire().await;
            let guard = tokio::spawn(async move {
                if let Ok(lease) = lease {
                    lease.lost().await;
                }
            });
            client.shutdown(Duration::from_secs(1)).await;
            let _ = guard.await;
        }
    }
}

/// Polls a future as often as it asks for, but no more than so often, and drops it.
async fn polled(future: impl Future<Output = ()>, times: usize) {
    let mut future = pin!(future);
    let mut polls = 0;
    std::future::poll_fn(|context| {
        if polls == times {
            return Poll::Ready(());
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Pending if polls < times => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

async fn client_sharing(store: Arc<dyn Store>) -> Client {
    let builder = Client::builder().shared_store(store);
    builder.ttl(TTL).build().await.unwrap()
}

/// Returns once nothing of this name is left.
async fn gone(onlooker: &dyn Store, name: &str) {
    for name in [name.to_owned(), format!("{name}/a"), format!("{name}/b")] {
        let name = Name::new(name).unwrap();
        let polling = async {
            while onlooker.inspect(&name, TTL).await.unwrap().is_some() {
                tokio::time::sleep(SHORT / 10).await;
            }
        };
        let polled = tokio::time::timeout(GONE_WITHIN, polling).await;
        assert!(polled.is_ok(), "{name} is left");
    }
}

/// Goes every way and drops its future after each number of polls, at the same time under different names.
async fn drop_everywhere(onlooker: Arc<dyn Store>, open: impl AsyncFn() -> Arc<dyn Store>) {
    for way in WAYS {
        let mut cases = JoinSet::new();
        for times in 1..=POLLS {
            let (onlooker, store) = (onlooker.clone(), open().await);
            cases.spawn(async move {
                let client = client_sharing(store).await;
                let name = format!("{way:?}/{times}");
                polled(go(way, &client, &name), times).await;
                gone(&*onlooker, &name).await;
            });
        }
        cases.join_all().await;
    }
}

#[tokio::test]
async fn futures_dropped_at_every_await_leave_nothing_in_memory() {
    let store = Memory::new();
    drop_everywhere(Arc::new(store.clone()), async || {
        Arc::new(store.clone()) as Arc<dyn Store>
    })
    .await;
}

#[tokio::test]
async fn futures_dropped_at_every_await_leave_nothing_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases");
    let open = async || Arc::new(Sqlite::open(&path).await.unwrap()) as Arc<dyn Store>;
    drop_everywhere(open().await, open).await;
}

#[tokio::test]
async fn futures_dropped_at_every_await_leave_nothing_in_redis() {
    let server = RedisServer::start().await;
    let open = async || Arc::new(Redis::open(&server.url()).unwrap()) as Arc<dyn Store>;
    drop_everywhere(open().await, open).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn whichever_reply_is_lost_nothing_is_left() {
    let server = RedisServer::start().await;
    let onlooker = Arc::new(Redis::open(&server.url()).unwrap());
    for fault in [Fault::DropReply, Fault::HoldReply, Fault::DropRequest] {
        let mut cases = JoinSet::new();
        for (way, which) in WAYS
            .into_iter()
            .flat_map(|way| (0..5).map(move |which| (way, which)))
        {
            let proxy = server.proxy().await;
            let onlooker = onlooker.clone();
            cases.spawn(async move {
                let mut seen = 0;
                proxy.set(move |request| {
                    let is_it = request.is_script() && seen == which;
                    seen += usize::from(request.is_script());
                    is_it.then_some(fault)
                });
                let client = client_sharing(Arc::new(Redis::open(&proxy.url()).unwrap())).await;
                let name = format!("{fault:?}/{way:?}/{which}");
                let going = tokio::time::timeout(TTL * 2, go(way, &client, &name));
                assert!(going.await.is_ok(), "{name} never ends");
                gone(&*onlooker, &name).await;
            });
        }
        cases.join_all().await;
    }
    server.assert_all_keys_run_out().await;
}
