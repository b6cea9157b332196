//! How many claims that no other one meets are decided by their first round.
//!
//! Each round sends one script to each server, and so does a release. What the servers have counted beyond one round and
//! one release of each pair is further rounds, and what they took back. A client that connects asks each server once who
//! it is.

use std::time::Duration;

use leasehold::Client;

use super::harness::redis_quorum::RedisQuorum;
use super::yardstick::figure;
use super::{TTL, client, pair};

const PAIRS: usize = 2_000;
/// Clients that claim only once.
const FRESH: usize = 100;

pub(crate) async fn measure() {
    let quorum = RedisQuorum::start(3).await;
    let client = client(&quorum).await;
    let share = of(&quorum, PAIRS, 2, async |_| pair(&client, "one").await);
    figure(
        "quorum_one_round_percent_one_name",
        "percent",
        &[share.await],
    );
    let share = of(&quorum, PAIRS, 2, async |index| {
        pair(&client, &format!("name-{index}")).await;
    });
    figure(
        "quorum_one_round_percent_new_names",
        "percent",
        &[share.await],
    );
    let share = of(&quorum, FRESH, 3, async |index| {
        let builder = Client::builder().store(quorum.open()).ttl(TTL);
        let client = builder.build().await.expect("valid");
        pair(&client, &format!("first-{index}")).await;
        // The other servers get the release, too.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(client.shutdown(TTL).await);
    });
    figure(
        "quorum_one_round_percent_new_clients",
        "percent",
        &[share.await],
    );
}

/// Returns the percentage of so many pairs that took one round, at least: then each server gets so many scripts for one.
async fn of(
    quorum: &RedisQuorum,
    pairs: usize,
    scripts: usize,
    mut pair: impl AsyncFnMut(usize),
) -> f64 {
    let before = scripts_called(quorum).await;
    for index in 0..pairs {
        pair(index).await;
    }
    let after = scripts_called(quorum).await;
    let beyond = before.iter().zip(&after);
    let beyond = beyond.map(|(before, after)| after - before - (scripts * pairs) as f64);
    let beyond = beyond.fold(0.0, f64::max);
    (1.0 - beyond / pairs as f64) * 100.0
}

/// Returns how often each server was asked for a script.
async fn scripts_called(quorum: &RedisQuorum) -> Vec<f64> {
    // A grant and a release are told before the slowest server has them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut called = Vec::new();
    for server in &quorum.servers {
        let stats: String = server.told("INFO commandstats").await;
        let calls = stats.lines().find_map(|line| {
            let (_, rest) = line.split_once("cmdstat_evalsha:calls=")?;
            rest.split(',').next()?.parse().ok()
        });
        called.push(calls.expect("it was asked"));
    }
    called
}
