//! The disk of a server fills up: its log cannot grow.

use std::time::Duration;

use leasehold::store::Store;
use leasehold::{ErrorKind, LossReason};

use super::{TICK, quick};
use crate::harness::asking::{asked, claim, next_token};
use crate::harness::full_disk::Full;
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::times::LIMIT;
use crate::harness::wait::{lost, until, until_so};
use crate::harness::zookeeper_server::ZookeeperServer;
use crate::zookeeper::open;

const TTL: Duration = Duration::from_secs(3);

async fn fill_until_the_end(server: &ZookeeperServer, store: &dyn Store) {
    server.fill_disk(Full::Data);
    // The last block that the log has takes some more.
    until_so("the end of the server", async || {
        let _ = asked(store, &claim("filler", TTL), LIMIT).await;
        server.has_ended()
    })
    .await;
}

async fn start_again(server: &ZookeeperServer) {
    server.fill_disk(Full::Nothing);
    server.remove_empty_log();
    server.run();
    server.serving().await;
}

/// What it acknowledged is in the log: once there is room, it knows each name's last token and every lease.
#[tokio::test]
async fn on_a_full_log_the_server_ends_and_the_holder_is_told_by_its_deadline() {
    let server = ZookeeperServer::start_on_own_machine(TICK).await;
    let url = quick(&server.url(""));
    let store = open(&url);
    let client = client_at(&url, TTL).await;
    let lease = take_waiting(&client, "a").await;
    let long = claim("long", Duration::from_secs(600));
    asked(&*store, &long, LIMIT).await.expect("there is room");
    let token = next_token(&*store, "free").await;
    fill_until_the_end(&server, &*store).await;
    assert_eq!(lost(&lease).await, LossReason::Deadline);
    let refused = asked(&*store, &claim("b", TTL), LIMIT).await;
    let error = refused.expect_err("the server is down");
    assert!(
        [ErrorKind::Unavailable, ErrorKind::TimedOut].contains(&error.kind()),
        "{error:#}"
    );
    start_again(&server).await;
    // Now it has a log of which not even the head is there.
    fill_until_the_end(&server, &*store).await;
    start_again(&server).await;
    let next = until("a grant", async || client.acquire("a").await.ok()).await;
    assert!(next.token() > lease.token());
    assert!(next_token(&*store, "free").await > token);
    let held = store.inspect(&long.name, LIMIT).await.expect("answered");
    assert_eq!(held.and_then(|held| held.by), Some(long.holder));
    client.shutdown(LIMIT).await;
}
