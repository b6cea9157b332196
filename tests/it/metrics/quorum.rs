//! What is counted of a quorum of servers.

use leasehold::Client;

use super::exporter::{Exporter, run};
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::times::STORED_TTL;
use crate::harness::wait::until_so;

#[test]
fn rounds_tries_that_were_taken_back_and_repairs_are_counted() {
    run(async |seen| contended(seen).await);
}

async fn contended(seen: Exporter) {
    let quorum = RedisQuorum::start(3).await;
    let client = async || {
        let builder = Client::builder().store(quorum.open()).ttl(STORED_TTL * 5);
        builder.build().await.unwrap()
    };
    let (holder, rival) = (client().await, client().await);
    let [taken_back, repairs] = [
        "leasehold_quorum_taken_back_total",
        "leasehold_quorum_repairs_total",
    ];
    let none = |value| value == 0.0;
    seen.shows(taken_back, &[], none).await;
    seen.shows(repairs, &[], none).await;
    let lease = holder.acquire("a").await.unwrap();
    seen.counts("leasehold_quorum_rounds_count", &["store=\"quorum\""])
        .await;
    seen.counts("leasehold_quorum_rounds_sum", &[]).await;
    // The claim may still be on its way to the third.
    let key = "leasehold:{a}".to_owned();
    for server in &quorum.servers {
        until_so("the lease at each member", async || {
            server.keys().await.contains(&key)
        })
        .await;
    }
    // One member has lost the lease: it takes the rival's token, which brings no grant, and then gets the lease back.
    let _: i64 = quorum.servers[2].told("DEL leasehold:{a}").await;
    // A new client knows no clock of a member, and its first proposal is refused by all.
    rival.try_acquire("b").await.unwrap();
    rival.try_acquire("a").await.unwrap();
    seen.counts(taken_back, &[]).await;
    seen.counts(repairs, &[]).await;
    until_so("the repair", async || {
        quorum.servers[2].keys().await.contains(&key)
    })
    .await;
    lease.release().await;
}
