//! Renewals a second when all leases are due at once, compared with the same batches sent bare and with rslock.
//!
//! A gate in front of the store holds the renewals back until all leases are due; the batches that then pass it are
//! noted, so that the bare script gets the same batches, in the same order, as many at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Script, ScriptInvocation, Value};
use futures_util::StreamExt;
use leasehold::internals::schedule::BATCHES_IN_FLIGHT;
use leasehold::store::Renewal;
use leasehold::{Client, Lease};
use rslock::{Lock, LockManager};
use tokio::task::JoinSet;

use super::many::take_many;
use super::stores::Gated;
use super::yardstick::{Server, case, seconds};
use super::{RUNS, held};

const LEASES: usize = 50_000;
/// All are due after two seconds, and none is near its deadline then.
const TTL: Duration = Duration::from_secs(6);
const TASKS: usize = 64;
const EXTENSIONS: usize = 6_400;

pub(crate) async fn measure() {
    let server = Server::start().await;
    let store = leasehold::store::open(&server.url())
        .await
        .expect("the store opens");
    let (store, gate) = Gated::new(store);
    let builder = Client::builder().store(store.clone()).ttl(TTL);
    let client = builder.build().await.expect("valid");
    let leases = take(&client).await;
    let connection = server.connect().await;
    let manager = Arc::new(LockManager::new(vec![server.url()]));
    let locks = lock(&manager).await;
    let (mut bare, mut one_by_one, mut together) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let ours = store.burst(&gate, LEASES, TTL).await;
        let batches = std::mem::take(&mut *store.passed.lock().expect("no panic"));
        // With caches as cold as those of ours, which waited until all were due.
        tokio::time::sleep(Gated::pause(TTL)).await;
        bare.push((ours, replay(&connection, &batches).await));
        one_by_one.push((ours, extend(&manager, &locks[..1]).await));
        together.push((ours, extend(&manager, &locks).await));
    }
    case("renewals_per_s_vs_bare", "renewals/s", &bare);
    case(
        "renewals_per_s_vs_rslock_one_by_one",
        "renewals/s",
        &one_by_one,
    );
    case("renewals_per_s_vs_rslock_64", "renewals/s", &together);
    for lease in &leases {
        lease.check().expect("none is lost");
    }
}

async fn take(client: &Client) -> Vec<Lease> {
    take_many(client, LEASES, |client, index| async move {
        held(&client, &format!("renewed-{index:012}")).await
    })
    .await
}

/// Sends the same batches over one connection, as many under way as the watchdog has.
async fn replay(connection: &MultiplexedConnection, batches: &[Vec<Renewal>]) -> f64 {
    let script = Script::new(concat!(
        include_str!("../../src/store/redis/protocol/lease.lua"),
        include_str!("../../src/store/redis/protocol/renew.lua")
    ));
    let count: usize = batches.iter().map(Vec::len).sum();
    let calls: Vec<ScriptInvocation<'_>> = batches
        .iter()
        .map(|batch| prepare(&script, batch))
        .collect();
    let started = Instant::now();
    let calls = futures_util::stream::iter(&calls).map(|call| {
        let mut connection = connection.clone();
        async move {
            call.invoke_async::<Value>(&mut connection)
                .await
                .expect("it runs")
        }
    });
    calls.buffer_unordered(BATCHES_IN_FLIGHT).count().await;
    count as f64 / seconds(started)
}

fn prepare<'a>(script: &'a Script, batch: &[Renewal]) -> ScriptInvocation<'a> {
    let mut call = script.prepare_invoke();
    for renewal in batch {
        call.key(format!("leasehold:{{{}}}", renewal.name));
    }
    for renewal in batch {
        call.arg(format!("{} {} ", renewal.holder, renewal.token));
    }
    call.arg(batch[0].ttl.as_millis() as u64);
    call
}

async fn lock(manager: &LockManager) -> Vec<Arc<Lock>> {
    let mut locks = Vec::new();
    for index in 0..TASKS {
        let name = format!("locked-{index}");
        let lock = manager.lock(name.as_str(), Duration::from_secs(600)).await;
        locks.push(Arc::new(lock.expect("free")));
    }
    locks
}

/// Extends each of these locks repeatedly, all at once.
async fn extend(manager: &Arc<LockManager>, locks: &[Arc<Lock>]) -> f64 {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for lock in locks {
        let (manager, lock) = (manager.clone(), lock.clone());
        let times = EXTENSIONS / locks.len();
        tasks.spawn(async move {
            for _ in 0..times {
                manager
                    .extend(&lock, Duration::from_secs(600))
                    .await
                    .expect("held");
            }
        });
    }
    tasks.join_all().await;
    EXTENSIONS as f64 / seconds(started)
}
