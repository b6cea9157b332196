//! What a lease in ZooKeeper costs: beside an ephemeral node without a token, and beside our own store on Redis. And how
//! many requests a grant takes while many clients wait, and ten thousand leases while they are held.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench zookeeper
//! cargo bench -p leasehold-benches --bench zookeeper -- turns
//! ```
//! Its other parts are `pairs` and `held`, which takes a number of seconds.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]
#![expect(clippy::cast_precision_loss, reason = "counts of a few minutes")]

mod bare;
mod held;
mod pairs;
mod turns;

use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_benches::leases;
use leasehold_benches::many;
use leasehold_benches::throughput;
use leasehold_benches::zookeeper as server;

/// How many clients wait.
const CLIENTS: [usize; 3] = [10, 100, 1_000];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parts = ["pairs", "turns", "held"];
    let is_selected = words.iter().any(|word| parts.contains(&word.as_str()));
    let has = |part: &str| !is_selected || words.iter().any(|word| word == part);
    let seconds = words.iter().find_map(|word| word.parse().ok());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        if turns::serve().await {
            return;
        }
        if has("pairs") {
            pairs::measure().await;
        }
        if has("turns") {
            for clients in CLIENTS {
                turns::measure(clients).await;
            }
        }
        if has("held") {
            held::measure(seconds.unwrap_or(60)).await;
        }
    });
}
