//! What a lease in Postgres costs: beside bare statements, beside the two statements of ShedLock's provider for Postgres,
//! and beside our own store on Redis. And what a hundred thousand renewed leases write.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench postgres -- all 600
//! ```
//! `all` measures everything, and holds the leases for so many seconds (default: 600). Without it only the ratios are
//! measured; with `held SECONDS` only what is held, and with `fillfactor N` on pages that are filled so far.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

mod baseline;
mod held;

use std::sync::Arc;
use std::time::Duration;

use alternating::alternating;
use baseline::{Bare, Baseline, ShedLock};
use leasehold::store::postgres::Postgres;
use leasehold::store::{self, TableSettings};
use leasehold::{Attempt, Client};
use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_benches::many;
use leasehold_benches::postgres as server;
use leasehold_benches::throughput;
use throughput::throughput;
use yardstick::case;

const RUNS: usize = 7;
const BLOCKS: usize = 6;
/// Pairs in one block; ours and the other alternate block by block, so that both meet the same weather.
const BLOCK: usize = 25;
const PAIRS_A_TASK: usize = 10;
/// As many as the store opens at most, unless it is told otherwise.
const CONNECTIONS: usize = 10;

/// Acquires and releases.
async fn pair(client: &Client, name: &str) {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease.release().await,
        other => panic!("{other:?}"),
    };
}

async fn one_task(case_name: &str, client: &Client, mut other_pair: impl AsyncFnMut()) {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = async || pair(client, "ours").await;
        runs.push(alternating(BLOCKS, BLOCK, ours, &mut other_pair).await);
    }
    case(case_name, "us", &runs);
}

async fn ours_64(client: &Client) -> f64 {
    throughput(PAIRS_A_TASK, |index| {
        let client = client.clone();
        async move {
            let name = format!("ours-{index}");
            for _ in 0..PAIRS_A_TASK {
                pair(&client, &name).await;
            }
        }
    })
    .await
}

async fn sixty_four_tasks<B: Baseline>(server: &server::Server, client: &Client) {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Arc::new(B::connect(&server.url()).await));
    }
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = ours_64(client).await;
        let other = throughput(PAIRS_A_TASK, |index| {
            let connection = connections[index % CONNECTIONS].clone();
            async move {
                let name = format!("other-{index}");
                for _ in 0..PAIRS_A_TASK {
                    connection.pair(&name).await;
                }
            }
        })
        .await;
        runs.push((ours, other));
    }
    let name = format!("postgres_64_tasks_pairs_per_s_vs_{}", B::NAME);
    case(&name, "pairs/s", &runs);
}

async fn against<B: Baseline>(server: &server::Server, client: &Client) {
    let other = B::connect(&server.url()).await;
    other.pair("other").await;
    let name = format!("postgres_1_task_p50_vs_{}", B::NAME);
    one_task(&name, client, async || other.pair("other").await).await;
    sixty_four_tasks::<B>(server, client).await;
}

async fn against_redis(client: &Client) {
    let server = yardstick::Server::start().await;
    let redis = Client::open(server.url()).await.expect("the store opens");
    pair(&redis, "other").await;
    one_task("postgres_1_task_p50_vs_redis", client, async || {
        pair(&redis, "other").await;
    })
    .await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push((ours_64(client).await, ours_64(&redis).await));
    }
    case("postgres_64_tasks_pairs_per_s_vs_redis", "pairs/s", &runs);
}

async fn ratios(server: &server::Server) {
    let store = Postgres::open(&server.url()).expect("a URL in order");
    let client = Client::builder().store(store).build().await;
    let client = client.expect("the store opens");
    pair(&client, "ours").await;
    against::<Bare>(server, &client).await;
    against::<ShedLock>(server, &client).await;
    against_redis(&client).await;
}

/// The number after this word.
fn number<T: std::str::FromStr>(words: &[String], name: &str) -> Option<Option<T>> {
    let at = words.iter().position(|word| word == name)?;
    Some(words.get(at + 1).and_then(|text| text.parse().ok()))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let all_for = number(&words, "all");
    let held_for = number(&words, "held");
    let fillfactor = number(&words, "fillfactor").flatten();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = server::Server::start().await;
        let (settings, limit) = (TableSettings::default(), Duration::from_secs(10));
        let made = store::init(&server.url(), settings, limit).await;
        made.expect("set up");
        if held_for.is_none() {
            ratios(&server).await;
        }
        if let Some(seconds) = all_for.or(held_for) {
            let seconds = seconds.unwrap_or(600);
            let plan = held::Plan {
                seconds,
                fillfactor,
            };
            held::measure(&server, plan).await;
        }
    });
}
