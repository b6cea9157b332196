//! A server whose clock is not that of its clients.

use std::time::Duration;

use leasehold::store::{Answer, Eviction};

use crate::harness::asking::{asked, claim, granted, held, next_token};
use crate::harness::mysql_server::MysqlServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};
use crate::mysql::open;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_lasts_its_ttl_whatever_the_servers_clock_shows() {
    for hours in [-3, 3] {
        let (server, clock) = MysqlServer::start_with_clock().await;
        clock.step(hours * HOUR_MS);
        let url = server.url().await;
        let store = open(&url).await;
        next_token(&*store, "a").await;
        let ttl = Duration::from_secs(2);
        let begun = now();
        granted(&*store, &claim("a", ttl)).await;
        let next = claim("a", LONG);
        held(&*open(&url).await, &next).await;
        until("the end of the lease", async || {
            let answer = asked(&*open(&url).await, &next, LIMIT).await;
            matches!(answer.expect("answered"), Answer::Granted(_)).then_some(())
        })
        .await;
        let after = now().since(begun);
        assert!(after >= ttl && after < 3 * ttl, "{hours} h: {after:?}");
        let hazards = store.hazards(LIMIT).await.expect("answered");
        let ids: Vec<_> = hazards.iter().map(|hazard| hazard.id).collect();
        assert_eq!(ids, ["mysql-clock"], "{hours} h");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_though_the_servers_clock_goes_back() {
    let (server, clock) = MysqlServer::start_with_clock().await;
    let url = server.url().await;
    let mut last = next_token(&*open(&url).await, "a").await;
    for step in [-HOUR_MS, 2 * HOUR_MS, -2 * HOUR_MS] {
        clock.step(step);
        let store = open(&url).await;
        let lease = claim("a", LONG);
        let token = granted(&*store, &lease).await;
        assert!(token > last, "{token} after {last}");
        last = token;
        let evicted = store.evict(&lease.claim.name, Eviction::Now, LIMIT).await;
        assert!(evicted.expect("answered"));
    }
}
