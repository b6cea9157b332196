//! What the store says against a server's set-up.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::clock::Timing;
use leasehold::store::{Severity, Store};

use super::open;
use super::rights::least_rights;
use crate::harness::asking::{chain, claim, granted};
use crate::harness::fake_server::FakeServer;
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_group::{RedisGroup, SentinelServer};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{until, until_so};

/// What concerns leases of the default ttl.
async fn hazards(store: &dyn Store) -> Vec<String> {
    hazards_of(store, Timing::DEFAULT_TTL).await
}

/// What concerns leases of this ttl.
async fn hazards_of(store: &dyn Store, ttl: Duration) -> Vec<String> {
    let hazards = store.hazards(LIMIT).await.expect("answered");
    let told = hazards.iter().filter(|hazard| hazard.concerns(ttl));
    told.map(ToString::to_string).collect()
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
async fn a_user_whose_claims_keep_out_would_deny_is_reported_beforehand() {
    let server = RedisServer::start().await;
    let () = server
        .told("ACL SETUSER worker on >secret ~* &* +@all -info")
        .await;
    let url = format!("{}?user=worker&pass=secret", server.url());
    let word = "keep-out needs the permission +info: no lease is granted to this user";
    let of_one = hazards(&*open(&url).await).await;
    assert!(!of_one.iter().any(|text| text.contains(word)), "{of_one:?}");
    let keeping = format!("{url}&max_ttl=60s");
    find(&hazards(&*open(&keeping).await).await, word);
    // It concerns every client once there is the key.
    let () = server
        .told("HSET leasehold:node keep_out 60000 ready 0")
        .await;
    find(&hazards(&*open(&url).await).await, word);
}

#[tokio::test]
async fn tokens_ahead_are_reported_to_a_user_with_the_least_rights() {
    const TWO_DAYS_MS: i64 = 48 * 3_600_000;
    let server = Setup::default().with_clock().start().await;
    let () = server.told(&least_rights()).await;
    server.step_clock(TWO_DAYS_MS).await;
    let url = format!("{}?user=leasehold&pass=secret", server.url());
    let store = open(&url).await;
    granted(&*store, &claim("a", LONG)).await;
    server.step_clock(-TWO_DAYS_MS).await;
    find(&hazards(&*store).await, "2days ahead");
}

#[tokio::test]
async fn marks_that_cannot_be_read_are_reported() {
    let server = RedisServer::start().await;
    let () = server
        .told("ACL SETUSER worker on >secret ~* &* +@all -get")
        .await;
    let url = format!("{}?user=worker&pass=secret", server.url());
    let hazards = hazards(&*open(&url).await).await;
    let told = find(&hazards, "a mark of the highest token cannot be read");
    assert!(told.contains("+get"), "{told}");
}

#[tokio::test]
async fn settings_that_cannot_be_read_are_not_shown() {
    let server = FakeServer::answering(|words| match &*words[0].to_uppercase() {
        "CONFIG" => (
            0,
            "*2\r\n$11\r\nrequirepass\r\n*1\r\n$6\r\ns3cret\r\n".into(),
        ),
        "HGET" => (0, "$-1\r\n".into()),
        _ => (0, ":0\r\n".into()),
    });
    let server = server.await;
    let hazards = open(&server.url()).await.hazards(LIMIT).await;
    let told = chain(&hazards.expect_err("an odd reply"));
    assert!(told.contains("to CONFIG GET"), "{told}");
    assert!(!told.contains("s3cret"), "{told}");
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

/// Returns once this word is among the hazards, with its hazard.
async fn until_told(store: &dyn Store, word: &str) -> String {
    until(word, async || {
        let hazards = hazards(store).await;
        hazards.into_iter().find(|hazard| hazard.contains(word))
    })
    .await
}

fn durable() -> Setup {
    Setup::default().with(["--appendonly", "yes"])
}

/// Otherwise those that must not replace the master take it for down after a minute.
async fn take_for_down_soon(sentinels: &[SentinelServer]) {
    for sentinel in sentinels {
        sentinel.take_for_down_after(500).await;
    }
}

#[tokio::test]
async fn a_group_that_acknowledges_everything_and_keeps_out_has_no_hazards() {
    let group = RedisGroup::with(durable).await;
    take_for_down_soon(&group.sentinels).await;
    let store = open(&format!("{}?acknowledged_by=2&max_ttl=60s", group.url())).await;
    assert_eq!(hazards(&*store).await, [""; 0]);
}

#[tokio::test]
async fn sentinels_that_replace_no_master_or_too_late_are_reported() {
    let group = RedisGroup::with(durable).await;
    take_for_down_soon(&group.sentinels).await;
    let store = open(&format!("{}?acknowledged_by=2&max_ttl=60s", group.url())).await;
    group.sentinels[0].take_for_down_after(30_000).await;
    let all = hazards(&*store).await;
    find(&all, "no lease of a ttl below 48 s survives it");
    let of_longer = hazards_of(&*store, Duration::from_secs(48)).await;
    assert_eq!(of_longer, [""; 0]);
    group.sentinels[0].take_for_down_after(5_000).await;
    assert_eq!(hazards_of(&*store, Duration::from_secs(11)).await, [""; 0]);
    let of_shorter = hazards_of(&*store, Duration::from_secs(10)).await;
    find(&of_shorter, "no lease of a ttl below 11 s survives it");
    group.sentinels[0].take_for_down_after(500).await;
    for sentinel in &group.sentinels[1..] {
        sentinel.pause();
    }
    until_told(&*store, "no server takes over when the master fails").await;
    let all = hazards(&*store).await;
    let silent = find(&all, "does not answer");
    for sentinel in &group.sentinels[1..] {
        assert!(silent.contains(&sentinel.host()), "{all:?}");
    }
}

#[tokio::test]
async fn a_replica_with_a_wrong_clock_or_policy_is_reported_by_its_address() {
    let group = RedisGroup::with(|| durable().with_clock()).await;
    let store = open(&group.url()).await;
    group.servers[1].step_clock(60_000).await;
    let () = group.servers[2]
        .told("CONFIG SET maxmemory-policy allkeys-lru")
        .await;
    let () = group.servers[0]
        .told("CONFIG SET min-replicas-to-write 1")
        .await;
    let all = hazards(&*store).await;
    for (word, server) in [
        ("ahead of this machine's", &group.servers[1]),
        ("maxmemory-policy is allkeys-lru", &group.servers[2]),
    ] {
        let address = format!(", on redis://127.0.0.1:{}/", server.port());
        assert!(find(&all, word).contains(&address), "{all:?}");
    }
    find(&all, "min-replicas-max-lag is 10 s");
    assert!(
        !all.iter().any(|hazard| hazard.contains("is a replica")),
        "{all:?}"
    );
}

#[tokio::test]
async fn what_makes_a_cluster_stand_still_or_slow_is_reported() {
    let cluster = RedisCluster::with(|| durable().with_clock(), false).await;
    let store = open(&cluster.url()).await;
    let sound = hazards(&*store).await;
    assert_eq!(sound.len(), 1, "{sound:?}");
    find(&sound, "a primary is without a replica: ");
    let node = &cluster.nodes[1];
    for setting in [
        "cluster-node-timeout 15000",
        "cluster-require-full-coverage yes",
        "maxmemory-policy volatile-lru",
    ] {
        let () = node.told(&format!("CONFIG SET {setting}")).await;
    }
    cluster.begin_move(7, 0, 2).await;
    node.step_clock(60_000).await;
    let all = hazards(&*store).await;
    find(&all, "no lease of a ttl below 37 s survives it");
    find(&all, "cluster-require-full-coverage is yes");
    find(
        &all,
        "slots in the middle of a move: 1, the first is 7, on redis://",
    );
    let address = format!(", on redis://127.0.0.1:{}/", node.port());
    for word in [
        "maxmemory-policy is volatile-lru",
        "ahead of this machine's",
    ] {
        assert!(find(&all, word).contains(&address), "{all:?}");
    }
}

#[tokio::test]
async fn a_clusters_replica_with_a_wrong_policy_is_reported_by_its_address() {
    let cluster = RedisCluster::with(durable, true).await;
    let store = open(&cluster.url()).await;
    let replica = &cluster.nodes[4];
    let () = replica
        .told("CONFIG SET maxmemory-policy allkeys-lru")
        .await;
    // The nodes name a replica once it has data.
    for primary in 0..3 {
        let name = cluster.name_on(primary).await;
        granted(&*store, &claim(&name, LONG)).await;
    }
    let policy = until_told(&*store, "maxmemory-policy is allkeys-lru").await;
    let address = format!(", on redis://127.0.0.1:{}/", replica.port());
    assert!(policy.contains(&address), "{policy}");
    until_so("every replica is named", async || {
        let all = hazards(&*store).await;
        !all.iter()
            .any(|hazard| hazard.contains("without a replica"))
    })
    .await;
}

#[tokio::test]
async fn a_url_that_names_one_sentinel_is_reported() {
    let group = RedisGroup::start().await;
    let one = format!("redis+sentinel://{}/main", group.sentinels[0].host());
    find(
        &hazards(&*open(&one).await).await,
        "the URL names one Sentinel",
    );
    let all = hazards(&*open(&group.url()).await).await;
    assert!(
        !all.iter().any(|text| text.contains("names one Sentinel")),
        "{all:?}"
    );
}
