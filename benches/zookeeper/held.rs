//! Ten thousand leases held at a ttl of 30 s: requests to the servers, processor time, and none lost.

use std::time::{Duration, Instant};

use leasehold::{Client, Lease, OutagePolicy};
use rustix::time::{ClockId, clock_gettime};

use super::many::take_many;
use super::server::Server;
use super::yardstick::{figure, seconds};

const LEASES: usize = 10_000;
const TTL: Duration = Duration::from_secs(30);

/// Holds them for so many seconds.
pub(crate) async fn measure(for_seconds: u64) {
    let server = Server::start().await;
    let counter = server.counter().await;
    // The network that counts is left out, because it takes processor time of this process.
    requests(&counter, for_seconds).await;
    let client = client(&server.url()).await;
    let leases = take(&client).await;
    let (before, started) = (processor_time(), Instant::now());
    tokio::time::sleep(Duration::from_secs(for_seconds)).await;
    let percent = (processor_time() - before) / seconds(started) * 100.0;
    figure("zookeeper_held_10k_cpu_percent", "percent", &[percent]);
    figure("zookeeper_held_10k_lost", "leases", &[lost(&leases)]);
    drop(leases);
    assert!(client.shutdown(Duration::from_secs(60)).await);
}

async fn requests(counter: &super::server::Counter, for_seconds: u64) {
    let client = client(&counter.url()).await;
    let leases = take(&client).await;
    counter.take();
    tokio::time::sleep(Duration::from_secs(for_seconds)).await;
    let requests: u64 = counter.take().values().sum();
    let rate = requests as f64 / for_seconds as f64;
    figure("zookeeper_held_10k_requests_per_s", "requests/s", &[rate]);
    drop(leases);
    assert!(client.shutdown(Duration::from_secs(60)).await);
}

async fn client(url: &str) -> Client {
    let builder = Client::builder().store_url(url).ttl(TTL);
    builder.build().await.expect("the store opens")
}

async fn take(client: &Client) -> Vec<Lease> {
    take_many(client, LEASES, |client, index| async move {
        let request = client.request(format!("held-{index:011}"));
        let lease = request.on_outage(OutagePolicy::WaitOut).acquire().await;
        lease.expect("it is free")
    })
    .await
}

fn lost(leases: &[Lease]) -> f64 {
    let lost = leases.iter().filter(|lease| lease.check().is_err());
    lost.count() as f64
}

/// Returns the seconds of processor time that this process has used.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
