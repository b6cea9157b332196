//! Renewals, failures and connections, on a real server that goes away and comes back.

use std::time::Duration;

use leasehold::{Client, Lease, Name};

use super::exporter::{Exporter, run};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::PATIENCE;
use crate::harness::wait::until;
use crate::harness::zookeeper_server::{TWO_HOLDERS, ZookeeperServer};

const TTL: Duration = Duration::from_secs(6);

async fn acquired_at_last(client: &Client, name: &str) -> Lease {
    until("a lease", async || client.acquire(name).await.ok()).await
}

#[test]
fn an_outage_of_the_server_is_seen_from_its_first_failed_renewal_to_its_end() {
    run(async |seen| outage(seen).await);
}

async fn outage(seen: Exporter) {
    let mut server = RedisServer::start().await;
    let builder = Client::builder().store_url(server.url()).ttl(TTL);
    let client = builder.build().await.unwrap();
    let lease = client.acquire("a").await.unwrap();
    // A waiter, for the sake of its subscription.
    let waiting = tokio::spawn({
        let request = client.request("a");
        let request = request.on_outage(leasehold::OutagePolicy::WaitOut);
        request.acquire()
    });
    healthy(&seen).await;
    let members = client.store().members(PATIENCE).await.unwrap();
    assert_eq!(members.len(), 1);
    seen.counts("leasehold_store_members", &["state=\"up\""])
        .await;

    server.kill();
    let unknown = ["outcome=\"unknown\""];
    seen.counts("leasehold_renewals_total", &unknown).await;
    seen.counts("leasehold_consecutive_renewal_failures", &[])
        .await;
    let unavailable = ["op=\"renew\"", "kind=\"unavailable\""];
    seen.counts("leasehold_store_errors_total", &unavailable)
        .await;
    let is_down = |value| value == 0.0;
    for purpose in ["purpose=\"watchdog\"", "purpose=\"notices\""] {
        seen.shows("leasehold_store_connected", &[purpose], is_down)
            .await;
    }
    seen.counts("leasehold_at_risk_leases", &[]).await;
    lease.lost().await;
    let deadline = ["reason=\"deadline\""];
    seen.counts("leasehold_leases_lost_total", &deadline).await;
    drop(lease);

    server.start_again().await;
    let next = waiting.await.unwrap().unwrap();
    let retried = ["trigger=\"retry\""];
    seen.counts("leasehold_acquire_attempts_total", &retried)
        .await;
    for purpose in ["watchdog", "notices", "requests"] {
        let purpose = format!("purpose=\"{purpose}\"");
        seen.counts("leasehold_store_connected", &[&purpose]).await;
        seen.counts("leasehold_store_reconnects_total", &[&purpose])
            .await;
    }
    let missed = ["outcome=\"missed\""];
    seen.counts("leasehold_notices_total", &missed).await;
    next.release().await;
    acquired_at_last(&client, "b").await.release().await;
}

/// What is to be seen while all is well.
async fn healthy(seen: &Exporter) {
    let renewed = ["outcome=\"renewed\""];
    seen.counts("leasehold_renewals_total", &renewed).await;
    seen.counts("leasehold_renewal_duration_seconds_count", &[])
        .await;
    seen.counts("leasehold_renewal_margin_ratio_count", &[])
        .await;
    seen.counts("leasehold_watchdog_batch_size_count", &[])
        .await;
    let renew = ["store=\"redis\"", "op=\"renew\""];
    let requests = "leasehold_store_request_duration_seconds_count";
    seen.counts(requests, &renew).await;
    for purpose in ["requests", "watchdog", "notices"] {
        let purpose = format!("purpose=\"{purpose}\"");
        seen.counts("leasehold_store_connected", &[&purpose]).await;
    }
    let none = |value| value == 0.0;
    seen.shows("leasehold_at_risk_leases", &[], none).await;
}

#[test]
fn a_name_with_two_holders_in_zookeeper_is_counted() {
    run(async |seen| two_holders(seen).await);
}

async fn two_holders(seen: Exporter) {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let client = Client::builder().store_url(server.url("")).build().await;
    let client = client.unwrap();
    acquired_at_last(&client, "a").await.release().await;
    let counted = "leasehold_two_holders_total";
    seen.shows(counted, &[], |value| value == 0.0).await;
    server.plant("/leasehold/2c/a", &TWO_HOLDERS, b"60000");
    let name = Name::new("a").unwrap();
    let shown = client.store().inspect(&name, PATIENCE).await;
    shown.unwrap_err();
    seen.counts(counted, &[]).await;
}

#[test]
fn grants_and_renewals_are_counted_by_whether_replicas_have_them() {
    run(async |seen| acknowledged(seen).await);
}

async fn acknowledged(seen: Exporter) {
    let master = Setup::default().with_port().start().await;
    let url = format!("{}?acknowledged_by=1", master.url());
    let builder = Client::builder().store_url(url).ttl(TTL);
    let client = builder.build().await.unwrap();
    client.try_acquire("a").await.unwrap_err();
    let acks = "leasehold_replica_acks_total";
    let [acknowledged, missing] = ["outcome=\"acknowledged\"", "outcome=\"missing\""];
    seen.counts(acks, &["store=\"redis\"", missing]).await;
    let none = |value| value == 0.0;
    seen.shows(acks, &[acknowledged], none).await;
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    let lease = acquired_at_last(&client, "b").await;
    seen.counts(acks, &[acknowledged]).await;
    lease.release().await;
}
