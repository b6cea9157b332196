//! What many waiting clients and many leases cost the servers.

use std::time::Duration;

use leasehold::{Client, OutagePolicy};

use super::{Contest, LIMIT};
use crate::harness::wait::{at, now};
use crate::harness::zookeeper_server::ZookeeperServer;

/// How many leases are held.
const HELD: usize = 10_000;

#[expect(clippy::cast_precision_loss, reason = "counts of a minute")]
fn per(count: u64, of: f64) -> f64 {
    count as f64 / of
}

/// Writes for each grant of a name that so many clients take in turns.
async fn writes_per_grant(server: &ZookeeperServer, clients: usize) -> f64 {
    let mut contest = Contest::begin(&server.url(""), clients).await;
    contest.advance(clients + 20).await;
    let (before, grants) = (server.written(), contest.grants());
    contest.advance(150).await;
    let (written, granted) = (server.written() - before, contest.grants() - grants);
    contest.end(&format!("{clients} clients in turns")).await;
    per(written, per(u64::try_from(granted).unwrap(), 1.0))
}

#[tokio::test]
async fn a_turn_costs_no_more_writes_with_many_waiting_clients() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let few = writes_per_grant(&server, 6).await;
    let many = writes_per_grant(&server, 60).await;
    eprintln!("case=writes per grant few={few:.1} many={many:.1}");
    assert!(
        many < few * 1.5 + 1.0,
        "{few} with 6 clients, {many} with 60"
    );
}

#[tokio::test]
async fn ten_thousand_leases_are_renewed_in_few_writes() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let builder = Client::builder().store_url(server.url(""));
    let client = builder.ttl(Duration::from_secs(30)).build().await;
    let client = client.expect("a client");
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..50 {
        let client = client.clone();
        tasks.spawn(async move {
            let mut leases = Vec::new();
            for index in 0..HELD / 50 {
                let request = client.request(format!("{part}-{index}"));
                // A busy machine may answer late.
                let lease = request.on_outage(OutagePolicy::WaitOut).acquire().await;
                leases.push(lease.expect("it is free"));
            }
            leases
        });
    }
    let leases: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let (before, begun) = (server.written(), now());
    at(begun.after(Duration::from_secs(25))).await;
    let rate = per(server.written() - before, now().since(begun).as_secs_f64());
    eprintln!("case=10000 held writes_per_s={rate:.1}");
    assert!(leases.iter().all(|lease| lease.check().is_ok()));
    // One by one it would be more than a thousand: each lease is renewed every nine seconds or so.
    assert!(rate < 100.0, "{rate} writes in a second");
    drop(leases);
    client.shutdown(6 * LIMIT).await;
}
