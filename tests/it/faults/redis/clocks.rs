//! A cluster whose nodes have clocks that are apart.

use std::time::Duration;

use futures_util::future::join_all;

use crate::harness::leases::{client_at, renewed_times, take};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_server::Setup;
use crate::harness::wait::{at, now};
use crate::metrics::exporter::{Exporter, run};

const TTL: Duration = Duration::from_secs(6);
const JUMPS: &str = "leasehold_clock_jumps_total";

#[test]
fn clocks_that_are_apart_are_no_steps_and_the_step_of_one_node_loses_nothing() {
    run(async |seen| apart(seen).await);
}

async fn apart(seen: Exporter) {
    let cluster = RedisCluster::with(|| Setup::default().with_clock(), false).await;
    cluster.nodes[1].step_clock(5_000).await;
    cluster.nodes[2].step_clock(-5_000).await;
    let client = client_at(&cluster.url(), TTL).await;
    let mut leases = Vec::new();
    for node in 0..3 {
        leases.push(take(&client, &cluster.name_on(node).await).await);
    }
    // They are renewed at about the same time.
    for _ in 0..3 {
        for lease in &leases {
            let deadline = lease.term().expect("held").deadline();
            lease.renewed_past(deadline).await.expect("not lost");
        }
    }
    for kind in ["kind=\"forward\"", "kind=\"backward\""] {
        seen.shows(JUMPS, &[kind], |value| value == 0.0).await;
    }
    let others = leases[1..]
        .iter()
        .map(|lease| lease.term().expect("held").deadline());
    let others: Vec<_> = others.collect();
    cluster.nodes[0].step_clock(2_000).await;
    seen.counts(JUMPS, &["kind=\"forward\""]).await;
    for (lease, before) in leases[1..].iter().zip(others) {
        // What is taken off is that of the node whose clock stepped.
        assert!(lease.term().expect("held").deadline() >= before);
    }
    for lease in &leases {
        let deadline = lease.term().expect("held").deadline();
        lease.renewed_past(deadline).await.expect("not lost");
    }
    seen.shows(JUMPS, &["kind=\"forward\""], |value| value == 1.0)
        .await;
}

#[test]
fn nodes_with_clocks_apart_cost_no_lease_after_slots_have_moved() {
    run(async |seen| moved_to_another_clock(seen).await);
}

async fn moved_to_another_clock(seen: Exporter) {
    let cluster = RedisCluster::with(|| Setup::default().with_clock(), false).await;
    cluster.nodes[1].step_clock(5_000).await;
    let client = client_at(&cluster.url(), TTL).await;
    let names: Vec<_> = (0..100).map(|index| format!("n-{index}")).collect();
    let mut slots = cluster.slots_of(names).await;
    slots.retain(|_, slot| *slot < 5_461);
    let slots: Vec<_> = slots.into_iter().take(20).collect();
    assert_eq!(slots.len(), 20);
    let mut leases = Vec::new();
    for (name, _) in &slots {
        leases.push(take(&client, name).await);
    }
    join_all(leases.iter().map(|lease| renewed_times(lease, 2))).await;
    let moving: Vec<_> = slots[..10].iter().map(|(_, slot)| *slot).collect();
    cluster.move_slots(&moving, 0, 1).await;
    at(now().after(Duration::from_secs(15))).await;
    let lost = leases.iter().filter(|lease| lease.check().is_err()).count();
    println!("lost: {lost} of {}", leases.len());
    assert_eq!(lost, 0, "of {}", leases.len());
    for kind in ["kind=\"forward\"", "kind=\"backward\""] {
        seen.shows(JUMPS, &[kind], |value| value == 0.0).await;
    }
}
