//! A hundred thousand leases held at a ttl of 30 s: processor time of the client and of each server, and none lost.

use std::time::{Duration, Instant};

use leasehold::{Client, Lease};
use rustix::time::{ClockId, clock_gettime};

use super::harness::redis_server::RedisServer;
use super::many::take_many;
use super::yardstick::{figure, seconds};
use super::{client, taken};

const LEASES: usize = 100_000;

/// Holds them over these servers.
pub(crate) async fn measure(what: &str, url: &str, servers: &[RedisServer], hold: Duration) {
    let client = client(url).await;
    let leases = take(&client).await;
    let (before, used) = (processor_time(), used_by(servers).await);
    let started = Instant::now();
    tokio::time::sleep(hold).await;
    let percent = |used: f64| used / seconds(started) * 100.0;
    let ours = percent(processor_time() - before);
    let each = used_by(servers).await.into_iter().zip(used);
    let each: Vec<_> = each
        .map(|(after, before)| percent(after - before))
        .collect();
    let lost = leases.iter().filter(|lease| lease.check().is_err());
    let name = |which: &str| format!("fleet_held_100k_{what}_{which}");
    figure(&name("cpu_percent"), "percent", &[ours]);
    // The runs are the servers here.
    figure(&name("cpu_percent_of_each_server"), "percent", &each);
    figure(&name("lost"), "leases", &[lost.count() as f64]);
    drop(leases);
    assert!(client.shutdown(Duration::from_secs(60)).await);
}

async fn take(client: &Client) -> Vec<Lease> {
    take_many(client, LEASES, |client, index| async move {
        taken(&client, &format!("held-{index:011}")).await
    })
    .await
}

/// Returns the seconds of processor time that this process has used.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the same of each server.
async fn used_by(servers: &[RedisServer]) -> Vec<f64> {
    let mut used = Vec::new();
    for server in servers {
        let told: String = server.told("INFO cpu").await;
        let of = |what: &str| {
            let line = told.lines().find_map(|line| line.strip_prefix(what));
            line.and_then(|seconds| seconds.parse::<f64>().ok())
        };
        let [system, user] = ["used_cpu_sys:", "used_cpu_user:"].map(of);
        used.push(system.expect("a number") + user.expect("a number"));
    }
    used
}
