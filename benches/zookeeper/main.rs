//! What a lease in ZooKeeper costs: beside an ephemeral node without a token, and beside our own store on Redis. And how
//! many requests a grant takes while many clients wait, and ten thousand leases while they are held.
//!
//! ```text
//! cargo bench --all-features --bench zookeeper
//! cargo bench --all-features --bench zookeeper -- turns
//! ```
//! Its other parts are `pairs` and `held`, which takes a number of seconds.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]
#![expect(clippy::cast_precision_loss, reason = "counts of a few minutes")]

#[path = "../yardstick/alternating.rs"]
mod alternating;
mod bare;
mod held;
#[path = "../yardstick/leases.rs"]
mod leases;
#[path = "../yardstick/many.rs"]
mod many;
mod pairs;
#[path = "../yardstick/zookeeper.rs"]
mod server;
#[path = "../yardstick/throughput.rs"]
mod throughput;
mod turns;
#[path = "../yardstick/mod.rs"]
#[expect(dead_code, reason = "no bare connection to Redis is needed here")]
mod yardstick;

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
