//! Acquire and release by one task, with all servers well.

use leasehold::Client;

use super::alternating::alternating;
use super::harness::redis_quorum::RedisQuorum;
use super::yardstick::case;
use super::{TTL, client, pair, redlock, redlock_pair};

const RUNS: usize = 7;
const BLOCKS: usize = 20;
/// Pairs in one block; ours and the other alternate block by block, so that both meet the same noise of the machine.
const BLOCK: usize = 50;

pub(crate) async fn measure() {
    let quorum = RedisQuorum::start(3).await;
    let alone = super::RedisServer::start().await;
    let (ours, redlock) = (client(&quorum).await, redlock(&quorum));
    let builder = Client::builder().store_url(alone.url()).ttl(TTL);
    let one_server = builder.build().await.expect("the store opens");
    pair(&one_server, "warm").await;
    redlock_pair(&redlock, "redlock").await;
    let (mut beside_redlock, mut beside_one) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let of_quorum = async || pair(&ours, "ours").await;
        let other = async || redlock_pair(&redlock, "redlock").await;
        beside_redlock.push(alternating(BLOCKS, BLOCK, of_quorum, other).await);
        let other = async || pair(&one_server, "ours").await;
        beside_one.push(alternating(BLOCKS, BLOCK, of_quorum, other).await);
    }
    case("quorum_1_task_p50_vs_rslock", "us", &beside_redlock);
    case("quorum_1_task_p50_vs_redis", "us", &beside_one);
}
