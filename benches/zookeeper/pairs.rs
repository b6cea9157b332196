//! Acquire and release, hand-off and renewals: beside the least that ZooKeeper can do, and beside our store on Redis.

use std::sync::Arc;
use std::time::Instant;

use leasehold::Client;
use leasehold::store::MAX_BATCH;

use super::alternating::alternating;
use super::bare::Bare;
use super::leases::{RENEWED, client, hand_off, pair, renewed_per_s, taken};
use super::server::Server;
use super::throughput::throughput;
use super::yardstick::{self, case, seconds};

const RUNS: usize = 5;
const BLOCKS: usize = 4;
const BLOCK: usize = 25;
const PAIRS_A_TASK: usize = 10;

pub(crate) async fn measure() {
    let (server, redis) = (Server::start().await, yardstick::Server::start().await);
    let ours = client(&server.url()).await;
    let other = client(&redis.url()).await;
    let bare = Arc::new(Bare::connect(&server.cluster()).await);
    one_task(&ours, &other, &bare).await;
    sixty_four_tasks(&ours, &other, &bare).await;
    hand_offs(&server.url(), &redis.url()).await;
    renewals(&server.url(), &redis.url(), &bare).await;
}

async fn one_task(ours: &Client, redis: &Client, bare: &Bare) {
    let (mut beside_bare, mut beside_redis) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let ours = async || pair(ours, "one").await;
        beside_bare.push(alternating(BLOCKS, BLOCK, ours, async || bare.pair("one").await).await);
        beside_redis
            .push(alternating(BLOCKS, BLOCK, ours, async || pair(redis, "one").await).await);
    }
    case("zookeeper_1_task_p50_vs_bare", "us", &beside_bare);
    case("zookeeper_1_task_p50_vs_redis", "us", &beside_redis);
}

async fn pairs_of_64(client: &Client) -> f64 {
    throughput(PAIRS_A_TASK, |index| {
        let client = client.clone();
        async move {
            for _ in 0..PAIRS_A_TASK {
                pair(&client, &format!("task-{index}")).await;
            }
        }
    })
    .await
}

async fn sixty_four_tasks(ours: &Client, redis: &Client, bare: &Arc<Bare>) {
    let (mut beside_bare, mut beside_redis) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let rate = pairs_of_64(ours).await;
        let of_bare = throughput(PAIRS_A_TASK, |index| {
            let bare = bare.clone();
            async move {
                for _ in 0..PAIRS_A_TASK {
                    bare.pair(&format!("bare-{index}")).await;
                }
            }
        });
        beside_bare.push((rate, of_bare.await));
        beside_redis.push((rate, pairs_of_64(redis).await));
    }
    case(
        "zookeeper_64_tasks_pairs_per_s_vs_bare",
        "pairs/s",
        &beside_bare,
    );
    case(
        "zookeeper_64_tasks_pairs_per_s_vs_redis",
        "pairs/s",
        &beside_redis,
    );
}

async fn hand_offs(url: &str, redis: &str) {
    let ours = [client(url).await, client(url).await];
    let other = [client(redis).await, client(redis).await];
    let fair = |client: &Client| client.request("turns");
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push((hand_off(&ours, fair).await, hand_off(&other, fair).await));
    }
    case("zookeeper_hand_off_fair_p50_vs_redis", "us", &runs);
}

async fn renewals(url: &str, redis: &str, bare: &Bare) {
    let ((ours, of_ours), (other, of_other)) =
        (taken(url, RENEWED).await, taken(redis, RENEWED).await);
    bare.make(RENEWED).await;
    let (mut beside_bare, mut beside_redis) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let rate = renewed_per_s(&*ours, &of_ours).await;
        let start = Instant::now();
        bare.renew(RENEWED, MAX_BATCH).await;
        beside_bare.push((rate, RENEWED as f64 / seconds(start)));
        beside_redis.push((rate, renewed_per_s(&*other, &of_other).await));
    }
    case(
        "zookeeper_renewals_per_s_vs_bare",
        "renewals/s",
        &beside_bare,
    );
    case(
        "zookeeper_renewals_per_s_vs_redis",
        "renewals/s",
        &beside_redis,
    );
}
