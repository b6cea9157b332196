//! Faults of a cluster.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Lease;

use crate::harness::leases::{client_at, renewed_times, take};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::rivalry::Rivalry;
use crate::harness::wait::{at, now, soon, until_so};

/// Longer than a failover takes.
const TTL: Duration = Duration::from_secs(6);
const NAMES: usize = 60;

#[tokio::test]
async fn a_failover_of_a_primary_by_an_operator_costs_no_lease() {
    for how in ["", " TAKEOVER"] {
        let cluster = RedisCluster::with_replicas().await;
        let rivalry = Rivalry::begin(&cluster.url(), &cluster.url(), NAMES, TTL).await;
        rivalry.renewed_or_lost().await;
        let () = cluster.nodes[3]
            .told(&format!("CLUSTER FAILOVER{how}"))
            .await;
        cluster.promoted(3).await;
        rivalry.renewed_or_lost().await;
        rivalry.renewed_or_lost().await;
        rivalry.caller_succeeds().await;
        let ended = rivalry.end();
        assert_eq!((ended.lost, ended.granted), (0, 0), "{how}: {ended}");
        assert!(ended.calls.failed <= 30, "{how}: {ended}");
    }
}

#[tokio::test]
async fn a_primary_that_wakes_after_its_successor_was_made_grants_nothing() {
    let ttl = Duration::from_secs(9);
    let cluster = RedisCluster::with_replicas().await;
    let rivalry = Rivalry::begin(&cluster.url(), &cluster.url(), NAMES, ttl).await;
    rivalry.renewed_or_lost().await;
    cluster.nodes[0].pause();
    cluster.promoted(3).await;
    at(now().after(Duration::from_secs(4))).await;
    cluster.nodes[0].resume();
    rivalry.renewed_or_lost().await;
    rivalry.renewed_or_lost().await;
    rivalry.caller_succeeds().await;
    let ended = rivalry.end();
    assert_eq!((ended.lost, ended.granted), (0, 0), "{ended}");
    assert!(ended.calls.worst < ttl / 4, "{ended}");
}

#[tokio::test]
async fn without_a_majority_of_primaries_leases_end_by_their_deadline_and_the_cluster_comes_back() {
    let cluster = RedisCluster::start().await;
    let rivalry = Rivalry::begin(&cluster.url(), &cluster.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    cluster.nodes[1..].iter().for_each(|node| node.pause());
    at(now().after(TTL + TTL / 3)).await;
    cluster.nodes[1..].iter().for_each(|node| node.resume());
    cluster.agree(3).await;
    rivalry.rival_has_all().await;
    rivalry.caller_succeeds().await;
    let ended = rivalry.end();
    assert_eq!((ended.granted, ended.overlaps.len()), (NAMES, 0), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_costs_none_of_the_thousands_of_leases_of_the_others() {
    let cluster = RedisCluster::start().await;
    let client = client_at(&cluster.url(), Duration::from_secs(10)).await;
    let mut leases = Vec::new();
    for block in 0..30 {
        let names: Vec<_> = (0..1_000)
            .map(|index| format!("n-{block}-{index}"))
            .collect();
        leases.extend(join_all(names.iter().map(|name| take(&client, name))).await);
    }
    let names = leases.iter().map(|lease| lease.name().to_string());
    let slots = cluster.slots_of(names.collect()).await;
    let mut on_hung = Vec::new();
    let mut on_others = Vec::new();
    for lease in leases {
        match slots.get(lease.name().as_str()) {
            Some(slot) if *slot < 5_461 => on_hung.push(lease),
            _ => on_others.push(lease),
        }
    }
    cluster.nodes[0].pause();
    at(now().after(Duration::from_secs(14))).await;
    cluster.nodes[0].resume();
    let lost = on_others
        .iter()
        .filter(|lease| lease.check().is_err())
        .count();
    assert_eq!(lost, 0, "of {}", on_others.len());
    for lease in &on_hung {
        soon(lease.lost()).await;
    }
    assert!(on_hung.len() > 8_000, "{}", on_hung.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_cost_none_of_1000_leases_and_hardly_a_call() {
    let mut cluster = RedisCluster::start().await;
    // Long enough for a renewal on a machine on which everything is moved meanwhile.
    let ttl = Duration::from_secs(15);
    let rivalry = Rivalry::without_rival(&cluster.url(), 1_000, ttl, 8).await;
    cluster.reshard(2_000, 0, 1).await;
    rivalry.renewed_or_lost().await;
    let resharded = rivalry.calls();
    let added = cluster.add().await;
    cluster.rebalance().await;
    assert!(cluster.slot_count(added).await > 4_000);
    rivalry.renewed_or_lost().await;
    let rebalanced = rivalry.calls();
    cluster.empty(added).await;
    cluster.remove_last().await;
    rivalry.renewed_or_lost().await;
    rivalry.renewed_or_lost().await;
    eprintln!("resharded: {resharded:?}\nrebalanced: {rebalanced:?}");
    let ended = rivalry.end();
    assert_eq!(ended.lost, 0, "{ended}");
    // A call is given up if its slot is known to be elsewhere while it waits: the old server may have carried it out.
    let why = ended.calls.failure.as_deref().unwrap_or_default();
    assert!(
        why.is_empty() || why.contains("another server has taken over"),
        "{ended}"
    );
    assert!(ended.calls.failed * 1_000 <= ended.calls.made, "{ended}");
}

#[tokio::test]
async fn a_node_that_is_added_and_removed_costs_no_lease_and_no_call() {
    let mut cluster = RedisCluster::start().await;
    let rivalry = Rivalry::begin(&cluster.url(), &cluster.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    let names = (0..NAMES).map(|index| format!("rivalry-{index}"));
    let slots = cluster.slots_of(names.collect()).await;
    let mut slots: Vec<_> = slots.into_values().filter(|slot| *slot < 5_461).collect();
    slots.sort_unstable();
    slots.dedup();
    assert!(slots.len() > NAMES / 6, "{slots:?}");
    let added = cluster.add().await;
    cluster.move_slots(&slots, 0, added).await;
    rivalry.renewed_or_lost().await;
    cluster.move_slots(&slots, added, 0).await;
    cluster.remove_last().await;
    rivalry.renewed_or_lost().await;
    rivalry.renewed_or_lost().await;
    let ended = rivalry.end();
    assert_eq!(
        (ended.lost, ended.granted, ended.calls.failed),
        (0, 0, 0),
        "{ended}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_costs_no_lease_of_another_after_slots_have_moved() {
    let cluster = RedisCluster::start().await;
    let client = client_at(&cluster.url(), Duration::from_secs(10)).await;
    let names: Vec<_> = (0..36_000).map(|index| format!("n-{index}")).collect();
    let mut slots = cluster.slots_of(names).await;
    slots.retain(|_, slot| *slot < 5_461);
    let names: Vec<_> = slots.keys().take(12_000).collect();
    let mut leases = Vec::new();
    for block in names.chunks(250) {
        leases.extend(join_all(block.iter().map(|name| take(&client, name))).await);
    }
    cluster.reshard(2_730, 0, 1).await;
    let lost = |leases: &[&Lease]| leases.iter().filter(|lease| lease.check().is_err()).count();
    assert_eq!(lost(&leases.iter().collect::<Vec<_>>()), 0, "by the move");
    let moved = cluster.slots_on(1).await;
    let is_moved = |lease: &&Lease| moved.contains(&slots[lease.name().as_str()]);
    let (on_hung, on_other): (Vec<_>, Vec<_>) = leases.iter().partition(is_moved);
    cluster.nodes[1].pause();
    at(now().after(Duration::from_secs(14))).await;
    cluster.nodes[1].resume();
    let (of_hung, of_other) = (lost(&on_hung), lost(&on_other));
    println!(
        "lost: {of_hung} of {} on the node that hung, {of_other} of {} on the other",
        on_hung.len(),
        on_other.len()
    );
    assert_eq!(of_other, 0, "of {}", on_other.len());
    assert_eq!(of_hung, on_hung.len());
    assert!(on_hung.len() > 5_000, "{}", on_hung.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_delays_no_release_of_another_after_slots_have_moved() {
    let cluster = RedisCluster::start().await;
    let client = client_at(&cluster.url(), Duration::from_secs(20)).await;
    let names: Vec<_> = (0..3_000).map(|index| format!("n-{index}")).collect();
    let mut slots = cluster.slots_of(names).await;
    slots.retain(|_, slot| *slot < 5_461);
    let mut leases = join_all(slots.keys().map(|name| take(&client, name))).await;
    cluster.reshard(2_730, 0, 1).await;
    join_all(leases.iter().map(|lease| renewed_times(lease, 2))).await;
    let moved = cluster.slots_on(1).await;
    let is_moved = |lease: &Lease| moved.contains(&slots[lease.name().as_str()]);
    // The releases that wait for the node that hangs are begun first.
    leases.sort_by_key(|lease| !is_moved(lease));
    let on_other = leases.iter().filter(|lease| !is_moved(lease)).count();
    assert!(
        on_other > 300 && leases.len() - on_other > 300,
        "{on_other}"
    );
    cluster.nodes[1].pause();
    let begun = now();
    drop(leases);
    until_so("the names of the other are free", async || {
        let keys = cluster.nodes[0].keys().await;
        !keys.iter().any(|key| key.starts_with("leasehold:{n-"))
    })
    .await;
    let took = now().since(begun);
    cluster.nodes[1].resume();
    println!("{on_other} releases in {took:.1?}");
    // A release waits for up to two seconds for a node that hangs.
    assert!(took < Duration::from_millis(1_500), "{took:?}");
}
