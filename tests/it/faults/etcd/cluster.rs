//! Three members, of which some are killed or stand still.

use std::time::Duration;

use leasehold::{Attempt, Client, ErrorKind, Lease, LossReason, Name};

use crate::conformance::check_at;
use crate::etcd::open;
use crate::harness::asking::{next_token, refused};
use crate::harness::etcd_server::EtcdCluster;
use crate::harness::leases::{client_at, renewed_times, take};
use crate::harness::times::LONG;
use crate::harness::wait::{lost, now, pause, soon, until};

const TTL: Duration = Duration::from_secs(6);
const LEASES: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_contract() {
    check_at(EtcdCluster::start().await.url()).await;
}

async fn take_many(client: &Client) -> Vec<Lease> {
    let mut leases = Vec::new();
    for index in 0..LEASES {
        leases.push(take(client, &format!("n{index}")).await);
    }
    leases
}

async fn are_held(leases: &[Lease], rival: &Client) {
    for lease in leases {
        renewed_times(lease, 1).await;
        assert!(lease.check().is_ok());
        let attempt = rival.try_acquire(lease.name().as_str()).await;
        assert!(matches!(attempt, Ok(Attempt::Held(_))), "{attempt:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lease_is_lost_when_the_leader_is_killed_and_waiting_clients_go_on() {
    let mut cluster = EtcdCluster::start().await;
    let url = cluster.url();
    let (holder, rival) = (client_at(&url, TTL).await, client_at(&url, TTL).await);
    let leases = take_many(&holder).await;
    let last = take(&holder, "last").await;
    let token = last.token();
    let waiting = tokio::spawn({
        let request = rival.request("last");
        let request = request.on_outage(leasehold::OutagePolicy::WaitOut);
        async move { request.acquire().await }
    });
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let begun = now();
        cluster.servers[leader].kill();
        let elected = cluster.leader().await;
        assert_ne!(elected, leader);
        eprintln!(
            "case=a leader of etcd killed: another after={:.1?}",
            now().since(begun)
        );
        // Longer than a lease lasts without a renewal.
        pause(TTL + TTL / 2).await;
        are_held(&leases, &rival).await;
        cluster.servers[leader].run();
        pause(TTL / 2).await;
    }
    assert!(!waiting.is_finished());
    last.release().await;
    let next = soon(waiting).await.expect("no panic").expect("granted");
    assert!(next.token() > token);
    eprintln!("case=three leaders of etcd killed: lost=0 of={LEASES} ttl={TTL:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stands_still_is_left_for_another_and_ends_no_lease_when_it_wakes() {
    let cluster = EtcdCluster::start().await;
    let leader = cluster.leader().await;
    // Each client is on the first of the servers of its URL.
    let url = cluster.url_from(leader);
    let (holder, rival) = (client_at(&url, TTL).await, client_at(&url, TTL).await);
    let leases = take_many(&holder).await;
    cluster.servers[leader].pause();
    pause(TTL + TTL / 2).await;
    for lease in &leases {
        assert!(lease.check().is_ok(), "{:?}", lease.state());
    }
    let begun = now();
    next_token(&*open(&url).await, "new").await;
    let took = now().since(begun);
    eprintln!("case=a client of etcd whose first server stands still: took={took:.1?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    cluster.servers[leader].resume();
    are_held(&leases, &rival).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_goes_to_another_server_while_an_earlier_one_is_unanswered() {
    let cluster = EtcdCluster::start().await;
    let follower = (cluster.leader().await + 1) % 3;
    let store = open(&cluster.url_from(follower)).await;
    next_token(&*store, "a").await;
    cluster.servers[follower].pause();
    let unanswered = tokio::spawn({
        let (store, name) = (store.clone(), Name::new("a").expect("a name"));
        async move { store.inspect(&name, LONG).await }
    });
    pause(Duration::from_secs(1)).await;
    let begun = now();
    let name = Name::new("b").expect("a name");
    store.inspect(&name, LONG).await.expect("answered");
    let took = now().since(begun);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(!unanswered.is_finished());
    cluster.servers[follower].resume();
    let late = soon(unanswered).await.expect("no panic");
    late.expect("the server has it still");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_granted_and_holders_are_told_in_time() {
    let mut cluster = EtcdCluster::start().await;
    let url = cluster.url();
    let client = client_at(&url, TTL).await;
    let lease = take(&client, "a").await;
    cluster.servers[0].kill();
    cluster.servers[1].kill();
    assert_eq!(lost(&lease).await, LossReason::Deadline);
    drop(lease);
    // Once the member that is left knows that it has no leader.
    let alone = url.replace(&url[7..url.rfind(',').expect("three") + 1], "");
    refused(
        &alone,
        ErrorKind::Unavailable,
        "the members have no majority",
    )
    .await;
    cluster.servers[0].run();
    let store = open(&url).await;
    until("a grant", async || {
        let lease = crate::harness::asking::claim("b", LONG);
        let asked = crate::harness::asking::asked(&*store, &lease, TTL).await;
        asked.is_ok().then_some(())
    })
    .await;
}
