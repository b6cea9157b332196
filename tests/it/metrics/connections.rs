//! The connections to a server of Postgres or ZooKeeper, as they are lost and made again. Those of Redis are in `servers`.

use std::time::Duration;

use leasehold::store::TableSettings;
use leasehold::{Client, Name, OutagePolicy};

use super::exporter::{Exporter, run};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::PATIENCE;
use crate::harness::wait::until;
use crate::harness::zookeeper_server::ZookeeperServer;

/// A connection to Postgres is seen to be lost when a renewal fails.
const TTL: Duration = Duration::from_secs(6);

/// A holder, and a waiter for the sake of its subscription.
async fn hold_and_wait(seen: &Exporter, url: &str) -> Client {
    let builder = Client::builder().store_url(url).ttl(TTL);
    let client = builder.build().await.unwrap();
    let lease = client.acquire("a").await.unwrap();
    tokio::spawn({
        let request = client.request("a").on_outage(OutagePolicy::WaitOut);
        let waiting = request.acquire();
        async move {
            let next = waiting.await.unwrap();
            drop(lease);
            next.lost().await;
        }
    });
    for purpose in PURPOSES {
        seen.counts("leasehold_store_connected", &[purpose]).await;
    }
    client
}

const PURPOSES: [&str; 2] = ["purpose=\"watchdog\"", "purpose=\"notices\""];

async fn are_lost(seen: &Exporter) {
    for purpose in PURPOSES {
        let is_down = |value| value == 0.0;
        seen.shows("leasehold_store_connected", &[purpose], is_down)
            .await;
    }
}

async fn are_made_again(seen: &Exporter, client: &Client) {
    let name = Name::new("a").unwrap();
    let answer = async || client.store().inspect(&name, PATIENCE).await.ok();
    until("an answer", answer).await;
    for purpose in PURPOSES {
        // A connection may be made only when it is needed.
        let is_back = async || {
            let _ = client.store().inspect(&name, PATIENCE).await;
            leasehold::metrics::update();
            let connected = seen.value("leasehold_store_connected", &[purpose]);
            let again = seen.value("leasehold_store_reconnects_total", &[purpose]);
            (connected == Some(1.0) && again >= Some(1.0)).then_some(())
        };
        until(purpose, is_back).await;
    }
}

#[test]
fn those_of_postgres_are_seen_lost_and_made_again() {
    run(async |seen| {
        let server = PostgresServer::start(&["fsync=off"]).await;
        let url = server.database_named("postgres").url();
        leasehold::store::init(&url, TableSettings::default(), PATIENCE)
            .await
            .unwrap();
        let client = hold_and_wait(&seen, &url).await;
        server.end("INT").await;
        are_lost(&seen).await;
        server.start_again().await;
        are_made_again(&seen, &client).await;
    });
}

#[test]
fn those_of_zookeeper_are_seen_lost_and_made_again() {
    run(async |seen| {
        let server = ZookeeperServer::start(Duration::from_secs(2)).await;
        let client = hold_and_wait(&seen, &server.url("")).await;
        server.kill();
        are_lost(&seen).await;
        server.run();
        server.serving().await;
        are_made_again(&seen, &client).await;
    });
}
