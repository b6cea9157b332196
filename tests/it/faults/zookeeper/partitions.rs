//! A server is cut off together with the clients beside it, and does not know.

use std::time::Duration;

use super::{TICK, TTL, quick};
use crate::faults::contender::Contender;
use crate::harness::alone::test_of;
use crate::harness::network::in_own_network;
use crate::harness::relay::Passing;
use crate::harness::wait::{at, now};
use crate::harness::zookeeper_server::peers::PeerNetwork;
use crate::harness::zookeeper_server::{ZookeeperEnsemble, ZookeeperServer};

/// How long an election and the ttl of a dead holder may take beside the ttl, on a busy machine.
const SLACK: Duration = Duration::from_secs(25);

/// The side of this server has the holder, the majority has the rival. The holder is told by its own deadline, before the
/// rival is granted; once the network is whole again, it waits for its turn as every client.
fn cut_off(what: &str, is_cut_off: impl Fn(&str) -> bool, ensemble: &ZookeeperEnsemble) {
    let is_it = |server: &&ZookeeperServer| server.mode().is_some_and(|mode| is_cut_off(&mode));
    let server = ensemble.servers.iter().find(is_it).expect("one of three");
    let url = quick(&ensemble.url(""));
    let mut holder = Contender::start_on(server.host(), &url, TTL);
    let mut rival = Contender::start(&url, TTL);
    holder.claim();
    let (first, _) = holder.granted();
    rival.claim();
    server.host().cut_off();
    let cut_off_at = now();
    let told = holder.lost();
    let (next, granted_at) = rival.granted();
    let (told_after, granted_after) = (told.at.since(cut_off_at), granted_at.since(cut_off_at));
    eprintln!("case={what} cut off: told_after={told_after:.1?} granted_after={granted_after:.1?}");
    assert_eq!(told.what, "Deadline");
    assert!(told.at < granted_at, "{told_after:?} and {granted_after:?}");
    assert!(next > first, "{next} after {first}");
    assert!(granted_after < 2 * TTL + SLACK, "{granted_after:?}");
    // What the cut-off side claims is not granted, though its server may still take it for connected.
    holder.claim();
    server.host().reconnect();
    let whole_at = now();
    rival.release();
    assert_eq!(rival.released().what, "Released");
    let (last, back_at) = holder.granted();
    eprintln!(
        "case={what} connected again: granted_after={:.1?}",
        back_at.since(whole_at)
    );
    assert!(last > next, "{last} after {next}");
}

/// Runs this closure of a test, which is its whole body, with three servers on three hosts.
fn on_three_hosts(body: impl FnOnce(&ZookeeperEnsemble)) {
    in_own_network(test_of(&body), |network| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let ensemble = runtime.block_on(ZookeeperEnsemble::on_hosts(TICK, network));
        body(&ensemble);
    });
}

#[test]
fn a_follower_that_is_cut_off_confirms_nothing_and_the_majority_grants() {
    on_three_hosts(|ensemble| cut_off("follower", |mode| mode == "follower", ensemble));
}

#[test]
fn a_leader_that_is_cut_off_confirms_nothing_and_its_successor_grants() {
    on_three_hosts(|ensemble| cut_off("leader", |mode| mode == "leader", ensemble));
}

/// No server has a majority: nothing is granted on any side, and all goes on once they meet again.
#[test]
fn three_servers_apart_grant_nothing() {
    on_three_hosts(|ensemble| {
        let url = quick(&ensemble.url(""));
        let mut clients: Vec<_> = ensemble
            .servers
            .iter()
            .map(|server| Contender::start_on(server.host(), &url, TTL))
            .collect();
        clients[0].claim();
        let (first, _) = clients[0].granted();
        ensemble
            .servers
            .iter()
            .for_each(|server| server.host().cut_off());
        let apart_at = now();
        let told = clients[0].lost();
        clients[1..].iter_mut().for_each(Contender::claim);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(at(apart_at.after(2 * TTL)));
        assert!(
            clients[1..].iter().all(Contender::is_silent),
            "granted without a majority"
        );
        ensemble
            .servers
            .iter()
            .for_each(|server| server.host().reconnect());
        let whole_at = now();
        let mut last = first;
        for client in &mut clients[1..] {
            client.release();
        }
        for client in &clients[1..] {
            let (token, granted_at) = client.granted();
            eprintln!(
                "case=all apart: told_after={:.1?} granted_after_meeting={:.1?}",
                told.at.since(apart_at),
                granted_at.since(whole_at)
            );
            assert_ne!(token, last);
            assert!(token > first);
            last = token;
        }
    });
}

/// The network between servers that runs without root, on which the campaign rests.
#[tokio::test]
async fn a_cut_off_leader_gives_up_and_all_serve_once_they_meet() {
    let (ensemble, between) = PeerNetwork::start(Duration::from_millis(500)).await;
    let is_leader = |server: &ZookeeperServer| server.mode().as_deref() == Some("leader");
    let old = ensemble.servers.iter().position(is_leader);
    let old = old.expect("there is a leader");
    between.pass(&[old], Passing::Nothing);
    let end = now().after(SLACK);
    while is_leader(&ensemble.servers[old]) {
        assert!(now() < end, "it goes on as if it had a majority");
        at(now().after(Duration::from_millis(20))).await;
    }
    between.pass(&[old], Passing::All);
    ensemble.serving().await;
}
