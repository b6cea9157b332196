//! A hundred thousand leases held at a ttl of 30 s: memory, processor time, and none lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::store::Store;
use leasehold::store::memory::Memory;
use leasehold::{Client, Lease};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::held;
use super::stores::Yes;
use super::yardstick::{Server, figure, seconds};

const LEASES: usize = 100_000;
const TTL: Duration = Duration::from_secs(30);
const TASKS: usize = 64;

/// Holds this many leases over memory and over Redis, and watches them for this many times this many seconds.
pub(crate) async fn measure(times: usize, for_seconds: u64) {
    hold("memory", Arc::new(Memory::new()), times, for_seconds).await;
    let server = Server::start().await;
    let store = leasehold::store::open(&server.url())
        .await
        .expect("the store opens");
    hold("redis", store, times, for_seconds).await;
}

/// Measures what each lease takes: by how much the resident set grows while they are acquired, with a guard and a token
/// held for each, over a store that keeps nothing. So the overhead of the allocator is included.
pub(crate) async fn bytes() {
    let client = Client::builder()
        .store(Yes::store())
        .ttl(TTL)
        .build()
        .await
        .expect("valid");
    let mut kept = vec![take(&client, "warm", 10_000).await];
    let mut runs = Vec::new();
    for run in 0..3 {
        let before = resident();
        kept.push(take(&client, &format!("{run}"), LEASES).await);
        runs.push((resident() - before) / LEASES as f64);
    }
    figure("held_100k_bytes_per_lease", "bytes", &runs);
    drop(kept);
    assert!(client.shutdown(Duration::from_secs(60)).await);
}

/// Acquires leases of 20-byte names.
async fn take(client: &Client, run: &str, count: usize) -> Vec<Vec<(Lease, CancellationToken)>> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        let run = run.to_owned();
        tasks.spawn(async move {
            let mut leases = Vec::with_capacity(count / TASKS + 1);
            for index in (task..count).step_by(TASKS) {
                let lease = held(&client, &format!("{run:.>8}-{index:011}")).await;
                let token = lease.cancellation_token();
                leases.push((lease, token));
            }
            leases
        });
    }
    // They stay where they are, so that no copy of them is counted.
    tasks.join_all().await
}

async fn hold(name: &str, store: Arc<dyn Store>, times: usize, for_seconds: u64) {
    let builder = Client::builder().shared_store(store).ttl(TTL);
    let client = builder.build().await.expect("valid");
    let started = Instant::now();
    let leases = take(&client, name, LEASES).await;
    println!(
        "# {LEASES} leases taken over {name} in {:.1} s",
        seconds(started)
    );
    let (mut percents, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let (before, started) = (processor_time(), Instant::now());
        tokio::time::sleep(Duration::from_secs(for_seconds)).await;
        percents.push((processor_time() - before) / seconds(started) * 100.0);
        let gone = leases
            .iter()
            .flatten()
            .filter(|(lease, token)| lease.check().is_err() || token.is_cancelled());
        lost.push(gone.count() as f64);
    }
    figure(
        &format!("held_100k_cpu_percent_{name}_{for_seconds}_s"),
        "percent",
        &percents,
    );
    figure(
        &format!("held_100k_lost_{name}_{for_seconds}_s"),
        "leases",
        &lost,
    );
    drop(leases);
    assert!(client.shutdown(Duration::from_secs(60)).await);
}

/// Returns the bytes of this process that are in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("a number") * 4_096.0
}

/// Returns the seconds of processor time that this process has used.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
