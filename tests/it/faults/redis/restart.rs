//! A server that forgets everything while thousands of leases are held on it.

use std::time::Duration;

use leasehold::{Client, Lease, LossReason, ReleaseOutcome};
use tokio::task::JoinSet;

use crate::harness::alone::alone;
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::{lost, now};
use crate::metrics::exporter::Exporter;

const LEASES: u64 = 10_000;
/// Leases that are taken at the same time.
const AT_ONCE: u64 = 100;
/// A third of it is what the test takes; a busy machine has the rest.
const TTL: Duration = Duration::from_secs(6);

async fn take_all(client: &Client) -> Vec<Lease> {
    let mut takers = JoinSet::new();
    for taker in 0..AT_ONCE {
        let client = client.clone();
        takers.spawn(async move {
            let mut leases = Vec::new();
            for index in (taker..LEASES).step_by(AT_ONCE as usize) {
                leases.push(client.acquire(format!("n{index}")).await.unwrap());
            }
            leases
        });
    }
    takers.join_all().await.into_iter().flatten().collect()
}

async fn each_lease_is_lost_once(seen: Exporter) {
    let mut server = RedisServer::start().await;
    let builder = Client::builder().store_url(server.url()).ttl(TTL);
    let client = builder.build().await.expect("a URL in order");
    let leases = take_all(&client).await;
    let tokens: Vec<_> = leases.iter().map(Lease::cancellation_token).collect();
    let deadlines: Vec<_> = leases
        .iter()
        .map(|lease| lease.term().expect("held").deadline())
        .collect();
    server.restart_empty().await;
    for (lease, deadline) in leases.iter().zip(deadlines) {
        assert_eq!(lost(lease).await, LossReason::Refused, "{}", lease.name());
        assert!(now() < deadline, "told by the deadline, not by a renewal");
    }
    for token in tokens {
        let told = tokio::time::timeout(TTL, token.cancelled()).await;
        told.expect("the token follows the loss");
    }
    for lease in leases {
        assert_eq!(lease.release().await, ReleaseOutcome::AlreadyLost);
    }
    // Nothing was created anew by a renewal.
    assert_eq!(server.keys().await, [""; 0]);

    // The reporter has come to everything before this.
    drop(client.acquire("last").await.unwrap());
    seen.counts("leasehold_releases_total", &["outcome=\"dropped\""])
        .await;
    let lost = |reason: &str| {
        let reason = format!("reason=\"{reason}\"");
        seen.value("leasehold_leases_lost_total", &[&reason])
    };
    assert_eq!(lost("refused"), Some(LEASES as f64));
    assert_eq!(lost("deadline"), Some(0.0));
}

#[test]
fn a_server_that_restarts_empty_loses_each_of_10000_leases_once() {
    alone(|| {
        let seen = Exporter::install();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(each_lease_is_lost_once(seen));
    });
}
