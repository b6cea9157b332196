//! What a quorum of three servers costs, beside rslock's Redlock on the same servers. Redlock has no token, no
//! information about the holder and no notice.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench quorum
//! cargo bench -p leasehold-benches --bench quorum -- pairs
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]
#![expect(clippy::cast_precision_loss, reason = "counts of a few minutes")]

mod contended;
mod pairs;
mod paused;
mod rounds;

use std::time::Duration;

use leasehold::{Attempt, Client, Lease};
use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_harness as harness;
use rslock::LockManager;

use self::harness::redis_quorum::RedisQuorum;
use self::harness::redis_server::RedisServer;

const TTL: Duration = Duration::from_secs(30);
/// How many clients ask for one name at once.
const CONTENDERS: [usize; 3] = [2, 10, 50];

/// Returns a client of these servers that has had a lease, so that it is connected.
async fn client(quorum: &RedisQuorum) -> Client {
    let builder = Client::builder().store(quorum.open()).ttl(TTL);
    let client = builder.build().await.expect("valid");
    pair(&client, "warm").await;
    client
}

/// Returns a manager of Redlocks on the same servers.
fn redlock(quorum: &RedisQuorum) -> LockManager {
    let urls = quorum.servers.iter().map(RedisServer::url);
    LockManager::new(urls.collect::<Vec<_>>())
}

async fn taken(client: &Client, name: &str) -> Lease {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

async fn pair(client: &Client, name: &str) {
    taken(client, name).await.release().await;
}

async fn redlock_pair(manager: &LockManager, name: &str) {
    let lock = manager.lock(name, TTL).await.expect("the lock is free");
    manager.unlock(&lock).await;
}

/// Returns the value that one of a hundred exceeds.
fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * 99 / 100]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts = ["pairs", "paused", "rounds", "contended"];
    let is_selected = words.iter().any(|word| parts.contains(&word.as_str()));
    let has = |part: &str| !is_selected || words.iter().any(|word| word == part);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        if has("pairs") {
            pairs::measure().await;
        }
        if has("paused") {
            paused::measure().await;
        }
        if has("rounds") {
            rounds::measure().await;
        }
        if has("contended") {
            for contenders in CONTENDERS {
                contended::measure(contenders).await;
            }
        }
    });
}
