//! A line on which each answer takes longer than an attempt may: the server carries everything out.

use std::time::Duration;

use leasehold::OutagePolicy;

use crate::harness::leases::{client_at, take};
use crate::harness::proxy::Fault;
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::{at, now, soon};

/// A lease of this ttl is taken where each answer takes so long, lives for three ttls, and is released.
async fn lives_on(ttl: Duration, answers_take: Duration) {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let client = client_at(&proxy.url(), ttl).await;
    // The connections are there, and no other one is made in time: each has several answers to wait for.
    take(&client, "warm").await.release().await;
    proxy.set(move |_| Some(Fault::DelayReply(answers_take)));
    let request = client.request("a").on_outage(OutagePolicy::WaitOut);
    let lease = soon(request.acquire()).await.expect("taken");
    let end = now().after(ttl * 3);
    while now() < end {
        lease
            .check()
            .unwrap_or_else(|lost| panic!("ttl {ttl:?}, answers take {answers_take:?}: {lost}"));
        at(now().after(ttl / 100)).await;
    }
    lease.release().await;
    let left: i64 = server.told("EXISTS leasehold:{a}").await;
    assert_eq!(left, 0, "it was not released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_lives_on_a_line_whose_answers_come_after_each_limit() {
    let [second, millis] = [Duration::from_secs(1), Duration::from_millis(1)];
    tokio::join!(
        lives_on(3 * second, 600 * millis),
        lives_on(6 * second, 1_300 * millis),
        lives_on(30 * second, 2_500 * millis),
        // The control: within the limit.
        lives_on(6 * second, 500 * millis),
    );
}
