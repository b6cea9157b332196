//! What a cluster, and writes that a replica acknowledges, cost beside one server.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench fleet
//! cargo bench -p leasehold-benches --bench fleet -- held 40
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]
#![expect(clippy::cast_precision_loss, reason = "counts of a few minutes")]

mod held;
mod pairs;
mod renewals;
mod servers;

use std::time::Duration;

use leasehold::{Attempt, Client, Lease};
use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_benches::many;
use leasehold_benches::throughput;
use leasehold_harness as harness;

use self::servers::Servers;

const TTL: Duration = Duration::from_secs(30);

/// Returns a client that is connected to all servers.
async fn client(url: &str) -> Client {
    let builder = Client::builder().store_url(url).ttl(TTL);
    let client = builder.build().await.expect("the store opens");
    for index in 0..100 {
        taken(&client, &format!("warm-{index}"))
            .await
            .release()
            .await;
    }
    client
}

async fn taken(client: &Client, name: &str) -> Lease {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts = ["pairs", "renewals", "acknowledged", "held"];
    let is_selected = words.iter().any(|word| parts.contains(&word.as_str()));
    let has = |part: &str| !is_selected || words.iter().any(|word| word == part);
    let seconds = words.iter().find_map(|word| word.parse().ok());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let servers = Servers::start().await;
        let (one, small, large) = (servers.one(), servers.small(), servers.large());
        if has("pairs") {
            pairs::measure("fleet_1_primary", "one_server", &small, &one).await;
            pairs::measure("fleet_3_primaries", "one_server", &large, &one).await;
        }
        if has("acknowledged") {
            let (with, without) = servers.acknowledged();
            pairs::measure("fleet_acknowledged", "unacknowledged", &with, &without).await;
        }
        if has("renewals") {
            renewals::measure("fleet_1_primary", &small, &one).await;
            renewals::measure("fleet_3_primaries", &large, &one).await;
        }
        if has("held") {
            let seconds = Duration::from_secs(seconds.unwrap_or(40));
            held::measure("one_server", &one, servers.alone(), seconds).await;
            held::measure("3_primaries", &large, servers.primaries(), seconds).await;
        }
    });
}
