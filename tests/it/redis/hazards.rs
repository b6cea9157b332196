//! What the store says against a server's set-up.

use leasehold::ErrorKind;
use leasehold::store::{Severity, Store};

use super::open;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::LIMIT;

async fn hazards(store: &dyn Store) -> Vec<String> {
    let hazards = store.hazards(LIMIT).await.expect("answered");
    hazards.iter().map(ToString::to_string).collect()
}

/// The one that speaks of this.
fn find<'a>(hazards: &'a [String], word: &str) -> &'a str {
    let found = hazards.iter().find(|text| text.contains(word));
    found.unwrap_or_else(|| panic!("nothing about {word:?} in {hazards:?}"))
}

#[tokio::test]
async fn a_durable_server_has_no_hazards() {
    let setup = Setup::default().with(["--appendonly", "yes"]);
    let server = setup.start().await;
    assert_eq!(hazards(&*open(&server.url()).await).await, [""; 0]);
}

#[tokio::test]
async fn a_server_that_can_lose_data_is_reported() {
    let setup = Setup::default()
        .with(["--maxmemory", "100mb"])
        .with(["--maxmemory-policy", "allkeys-lru"]);
    let server = setup.start().await;
    let hazards = hazards(&*open(&server.url()).await).await;
    find(&hazards, "maxmemory-policy is allkeys-lru");
    find(&hazards, "nothing is written to disk");
}

#[tokio::test]
async fn a_replica_and_a_master_that_does_not_wait_for_it_are_reported() {
    let master = Setup::default().with_port().start().await;
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    let of_replica = hazards(&*open(&replica.url()).await).await;
    find(&of_replica, "is a replica: it grants no leases");
    let of_master = hazards(&*open(&master.url()).await).await;
    find(&of_master, "min-replicas-to-write");
}

#[tokio::test]
async fn a_server_clock_that_is_wrong_is_reported() {
    let server = Setup::default().with_clock().start().await;
    server.step_clock(60_000).await;
    let hazards = hazards(&*open(&server.url()).await).await;
    find(&hazards, "ahead of this machine's");
}

#[tokio::test]
async fn a_check_without_permission_is_reported() {
    let server = RedisServer::start().await;
    let () = server
        .told("ACL SETUSER worker on >secret ~* &* +@all -config -info")
        .await;
    let store = open(&format!("{}?user=worker&pass=secret", server.url())).await;
    let hazards = hazards(&*store).await;
    find(&hazards, "INFO is refused");
    find(&hazards, "CONFIG is refused");
}

#[tokio::test]
async fn a_server_that_is_down_has_no_hazards_but_an_error() {
    let mut server = RedisServer::start().await;
    let store = open(&server.url()).await;
    server.kill();
    let error = store.hazards(LIMIT).await.expect_err("it is down");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn each_weakness_has_a_name_of_its_own() {
    let master = Setup::default().with_port().start().await;
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    let hazards = open(&master.url()).await.hazards(LIMIT).await;
    let hazards = hazards.expect("answered");
    let mut names: Vec<_> = hazards.iter().map(|hazard| hazard.id).collect();
    names.dedup();
    assert_eq!(names.len(), hazards.len(), "{hazards:?}");
    assert!(names.contains(&"redis-asynchronous-replicas"), "{names:?}");
    assert!(
        hazards
            .iter()
            .all(|hazard| hazard.severity >= Severity::Warning),
        "{hazards:?}"
    );
}
