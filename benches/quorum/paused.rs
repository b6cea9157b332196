//! Acquire and release while one of the three servers stands still for half of the time.
//!
//! A pair is begun every few milliseconds, each in a task of its own, whatever becomes of those before it. A caller that
//! waited for its pair before it began the next would meet each stop only once.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Attempt;
use tokio::task::JoinSet;

use super::harness::redis_quorum::RedisQuorum;
use super::yardstick::{case, seconds};
use super::{TTL, client, p99, redlock};

const RUNS: usize = 5;
const EVERY: Duration = Duration::from_millis(5);
/// How long the server stands still, and how long it runs then.
const HALF: Duration = Duration::from_secs(1);
/// How often it does both in one run.
const TIMES: u32 = 3;
/// Long enough after a stop for both to use the server again.
const REST: Duration = Duration::from_secs(2);

pub(crate) async fn measure() {
    let quorum = RedisQuorum::start(3).await;
    let (client, redlock) = (client(&quorum).await, Arc::new(redlock(&quorum)));
    let (mut runs, mut failed) = (Vec::new(), [0, 0]);
    for run in 0..RUNS {
        let ours = under_stops(&quorum, |index| {
            let client = client.clone();
            async move {
                match client.try_acquire(format!("ours-{run}-{index}")).await {
                    Ok(Attempt::Acquired(lease)) => {
                        lease.release().await;
                        true
                    }
                    _ => false,
                }
            }
        });
        let ours = ours.await;
        let other = under_stops(&quorum, |index| {
            let redlock = redlock.clone();
            async move {
                let name = format!("redlock-{run}-{index}");
                match redlock.lock(name.as_str(), TTL).await {
                    Ok(lock) => {
                        redlock.unlock(&lock).await;
                        true
                    }
                    Err(_) => false,
                }
            }
        });
        let other = other.await;
        runs.push((p99(ours.0), p99(other.0)));
        failed = [failed[0] + ours.1, failed[1] + other.1];
    }
    println!(
        "# pairs that failed: ours {}, rslock {}",
        failed[0], failed[1]
    );
    case("quorum_one_paused_p99_vs_rslock", "ms", &runs);
}

/// Returns the milliseconds that each pair took, and how many of them failed.
async fn under_stops<F: Future<Output = bool> + Send + 'static>(
    quorum: &RedisQuorum,
    mut pair: impl FnMut(usize) -> F,
) -> (Vec<f64>, usize) {
    let mut pairs = JoinSet::new();
    let stops = async {
        for _ in 0..TIMES {
            quorum.servers[2].pause();
            tokio::time::sleep(HALF).await;
            quorum.servers[2].resume();
            tokio::time::sleep(HALF).await;
        }
    };
    let begin = async {
        let mut ticks = tokio::time::interval(EVERY);
        let count = (HALF * 2 * TIMES).as_millis() / EVERY.as_millis();
        for index in 0..usize::try_from(count).expect("a thousand") {
            let due = ticks.tick().await.into_std();
            let pair = pair(index);
            pairs.spawn(async move { (pair.await, seconds(due) * 1e3) });
        }
    };
    tokio::join!(stops, begin);
    let outcomes = pairs.join_all().await;
    tokio::time::sleep(REST).await;
    let failed = outcomes.iter().filter(|(is_done, _)| !is_done).count();
    let took = outcomes.into_iter().map(|(_, took)| took);
    (took.collect(), failed)
}
