//! A cluster whose slots move and whose primaries are replaced.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::ErrorKind;
use leasehold::store::{Outcome, Release, Store as _};

use super::behind_nat::{outside, port_of};
use super::open;
use crate::conformance::check_at;
use crate::harness::asking::{asked, begin, chain, claim, granted, released, renewal, renewed};
use crate::harness::fake_server::{FakeNode, FakeServer};
use crate::harness::leases::{client_at, take};
use crate::harness::proxy::{Fault, Request};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_server::Setup;
use crate::harness::rivalry::Rivalry;
use crate::harness::times::{LIMIT, LONG, UNANSWERED};
use crate::harness::wait::{now, until_so};

/// Longer than a failover takes.
const TTL: Duration = Duration::from_secs(6);
/// Half more than the limit of a call of such a lease, and what a busy machine may add.
const WORST_CALL: Duration = Duration::from_millis(2_000);
const NAMES: usize = 60;

#[tokio::test]
async fn a_cluster_keeps_the_contract() {
    let cluster = RedisCluster::start().await;
    check_at(cluster.url()).await;
    for node in &cluster.nodes {
        node.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn a_killed_primary_costs_no_lease() {
    let mut cluster = RedisCluster::with_replicas().await;
    let rivalry = Rivalry::begin(&cluster.url(), &cluster.url(), NAMES, TTL).await;
    rivalry.renewed_or_lost().await;
    cluster.nodes[0].kill();
    cluster.promoted(3).await;
    rivalry.renewed_or_lost().await;
    rivalry.caller_succeeds().await;
    let ended = rivalry.end();
    assert_eq!((ended.lost, ended.granted), (0, 0), "{ended}");
    assert!(ended.calls.worst < WORST_CALL, "{ended}");
}

#[tokio::test]
async fn a_primary_that_hangs_costs_no_lease_of_another() {
    let cluster = RedisCluster::start().await;
    let client = client_at(&cluster.url(), Duration::from_secs(3)).await;
    let mut leases = Vec::new();
    for primary in 0..3 {
        leases.push(take(&client, &cluster.name_on(primary).await).await);
    }
    cluster.nodes[0].pause();
    leases[0].lost().await;
    for lease in &leases[1..] {
        let deadline = lease.term().expect("it is held").deadline();
        lease.renewed_past(deadline).await.expect("it is renewed");
    }
    cluster.nodes[0].resume();
    cluster.agree(3).await;
    let again = take(&client, leases[0].name().as_str()).await;
    again.check().expect("it is held");
}

#[tokio::test]
async fn after_a_redirection_the_slots_are_read_again_without_another_call() {
    let new = FakeNode::start(|words| {
        let is_script = words[0].eq_ignore_ascii_case("EVALSHA");
        is_script.then(|| "+granted 7\r\n".into())
    });
    let new = new.await;
    let moved = format!("-MOVED 7 {}\r\n", new.host());
    let old = FakeNode::start(move |words| {
        let is_script = words[0].eq_ignore_ascii_case("EVALSHA");
        is_script.then(|| moved.clone())
    });
    let old = old.await;
    let store = open(&old.url()).await;
    granted(&*store, &claim("a", LONG)).await;
    until_so("a later look", async || {
        old.count("SLOTS") + new.count("SLOTS") > 1
    })
    .await;
}

#[tokio::test]
async fn many_silent_seeds_hide_no_live_one() {
    let silent = (0..12).map(|_| FakeServer::answering(|_| (60_000, String::new())));
    let silent = join_all(silent).await;
    let node = FakeNode::start(|words| {
        let is_script = words[0].eq_ignore_ascii_case("EVALSHA");
        is_script.then(|| "+granted 7\r\n".into())
    });
    let node = node.await;
    let seeds: Vec<_> = silent.iter().map(FakeServer::host).collect();
    let url = format!("redis+cluster://{},{}", seeds.join(","), node.host());
    granted(&*open(&url).await, &claim("a", LONG)).await;
}

#[tokio::test]
async fn slots_that_move_cost_no_lease_and_no_call() {
    let cluster = RedisCluster::start().await;
    let rivalry = Rivalry::begin(&cluster.url(), &cluster.url(), NAMES, TTL).await;
    let mut slots = Vec::new();
    for index in 0..NAMES {
        let name = format!("rivalry-{index}");
        if cluster.primary_of(&name).await == 0 {
            slots.push(cluster.slot_of(&name).await);
        }
    }
    cluster.move_slots(&slots, 0, 1).await;
    rivalry.renewed_or_lost().await;
    rivalry.renewed_or_lost().await;
    let ended = rivalry.end();
    assert!(slots.len() > NAMES / 6, "{slots:?}");
    assert_eq!(
        (ended.lost, ended.granted, ended.calls.failed),
        (0, 0, 0),
        "{ended}"
    );
}

#[tokio::test]
async fn in_a_slot_that_stays_half_moved_leases_are_renewed_and_new_claims_wait() {
    let cluster = RedisCluster::start().await;
    let store = open(&cluster.url()).await;
    let name = cluster.name_on(0).await;
    let slot = cluster.slot_of(&name).await;
    let lease = claim(&name, LONG);
    granted(&*store, &lease).await;
    cluster.begin_move(slot, 0, 2).await;
    cluster.move_keys(slot, 0, 2).await;
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    let began_at = now();
    let error = asked(&*store, &claim(&name, LONG), UNANSWERED)
        .await
        .expect_err("half moved");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
    // The last word of the server that the slot leaves, or of the one to which it goes.
    let said = chain(&error);
    assert!(said.contains("TRYAGAIN") || said.contains("ASK "), "{said}");
    assert!(now().since(began_at) < 2 * UNANSWERED + LIMIT);
    cluster.end_move(slot, 0, 2).await;
    assert_eq!(released(&*store, &lease).await, Release::Released);
}

#[tokio::test]
async fn one_name_that_has_moved_does_not_cost_its_batch_a_renewal() {
    let cluster = RedisCluster::start().await;
    let store = open(&cluster.url()).await;
    let moving = cluster.name_on(0).await;
    let mut claims = vec![claim(&moving, LONG)];
    claims.extend((0..255).map(|index| claim(&format!("other-{index}"), LONG)));
    for claim in &claims {
        granted(&*store, claim).await;
    }
    let slot = cluster.slot_of(&moving).await;
    cluster.move_slots(&[slot], 0, 1).await;
    let batch: Vec<_> = claims.iter().map(renewal).collect();
    let outcomes = store.renew(&batch, LIMIT).await.outcomes;
    let renewed = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Renewed));
    assert_eq!(renewed.count(), 256, "{outcomes:?}");
}

#[tokio::test]
async fn scripts_that_one_node_has_forgotten_are_loaded_and_all_is_renewed() {
    let cluster = RedisCluster::start().await;
    let store = open(&cluster.url()).await;
    let claims: Vec<_> = (0..60)
        .map(|index| claim(&format!("n-{index}"), LONG))
        .collect();
    for claim in &claims {
        granted(&*store, claim).await;
    }
    let at_first = cluster.nodes[1].scripts_loaded().await;
    let () = cluster.nodes[1].told("SCRIPT FLUSH").await;
    let () = cluster.nodes[1].told("CONFIG RESETSTAT").await;
    let batch: Vec<_> = claims.iter().map(renewal).collect();
    let outcomes = store.renew(&batch, LIMIT).await.outcomes;
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Renewed)),
        "{outcomes:?}"
    );
    let loaded = cluster.nodes[1].scripts_loaded().await;
    assert_eq!(loaded, at_first, "each once");
}

#[tokio::test]
async fn a_list_has_the_names_of_every_node_once() {
    let cluster = RedisCluster::start().await;
    let store = open(&cluster.url()).await;
    for index in 0..30 {
        granted(&*store, &claim(&format!("list-{index}"), LONG)).await;
    }
    granted(&*store, &claim("other", LONG)).await;
    let listed = store.list("list-", LIMIT).await.expect("answered");
    assert_eq!(listed.len(), 30, "{listed:?}");
    assert!(listed.is_sorted_by(|one, next| one.name < next.name));
    assert_eq!(store.members(LIMIT).await.expect("answered").len(), 3);
}

#[tokio::test]
async fn a_url_of_the_other_kind_is_said() {
    let cluster = RedisCluster::start().await;
    let name = cluster.name_on(1).await;
    let one = format!("redis://127.0.0.1:{}", cluster.nodes[0].port());
    let error = asked(&*open(&one).await, &claim(&name, LONG), LIMIT)
        .await
        .expect_err("elsewhere");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        chain(&error).contains("redis+cluster://"),
        "{}",
        chain(&error)
    );
    let single = Setup::default().with_port().start().await;
    let url = format!("redis+cluster://127.0.0.1:{}", single.port());
    let error = asked(&*open(&url).await, &claim(&name, LONG), LIMIT)
        .await
        .expect_err("no cluster");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(chain(&error).contains("redis://"), "{}", chain(&error));
}

#[tokio::test]
async fn a_slot_that_nobody_serves_costs_no_lease_of_its_batch() {
    let cluster = RedisCluster::start().await;
    let store = open(&cluster.url()).await;
    let unserved = cluster.name_on(0).await;
    let slot = cluster.slot_of(&unserved).await;
    let mut claims = vec![claim(&unserved, LONG)];
    claims.extend((0..20).map(|index| claim(&format!("other-{index}"), LONG)));
    for claim in &claims {
        granted(&*store, claim).await;
    }
    for node in &cluster.nodes {
        let () = node.told(&format!("CLUSTER DELSLOTS {slot}")).await;
    }
    let batch: Vec<_> = claims.iter().map(renewal).collect();
    // The second finds no node for the slot in the map.
    for _ in 0..2 {
        let outcomes = store.renew(&batch, LIMIT).await.outcomes;
        assert!(matches!(outcomes[0], Outcome::Unknown(_)), "{outcomes:?}");
        let others = &outcomes[1..];
        assert!(
            others
                .iter()
                .all(|outcome| matches!(outcome, Outcome::Renewed)),
            "{outcomes:?}"
        );
    }
}

#[tokio::test]
async fn what_is_held_is_listed_although_no_replica_acknowledges_anything() {
    let cluster = RedisCluster::start().await;
    for index in 0..5 {
        let claim = claim(&format!("list-{index}"), LONG);
        granted(&*open(&cluster.url()).await, &claim).await;
    }
    let store = open(&format!("{}?acknowledged_by=1", cluster.url())).await;
    let listed = store.list("list-", LIMIT).await.expect("answered");
    assert_eq!(listed.len(), 5, "{listed:?}");
}

#[tokio::test]
async fn a_primary_that_hangs_at_the_first_contact_delays_only_its_own_names() {
    let cluster = RedisCluster::start().await;
    let name = cluster.name_on(1).await;
    cluster.nodes[0].pause();
    let client = client_at(&cluster.url(), LONG).await;
    let began_at = now();
    let lease = client.acquire_within(&name, Duration::from_secs(1)).await;
    let took = now().since(began_at);
    drop(lease.expect("its node is well"));
    assert!(took < Duration::from_secs(1), "{took:?}");
    cluster.nodes[0].resume();
}

#[tokio::test]
async fn a_slot_that_stays_half_moved_is_listed_with_the_rest() {
    let cluster = RedisCluster::start().await;
    let store = open(&cluster.url()).await;
    let moving = cluster.name_on(0).await;
    let slot = cluster.slot_of(&moving).await;
    let names = [moving, cluster.name_on(1).await, cluster.name_on(2).await];
    for name in &names {
        granted(&*store, &claim(name, LONG)).await;
    }
    let listed = async || {
        let listed = store.list("", LIMIT).await.expect("listed");
        let mut listed: Vec<_> = listed.iter().map(|held| held.name.to_string()).collect();
        listed.sort();
        listed
    };
    let mut all = names.to_vec();
    all.sort();
    cluster.begin_move(slot, 0, 2).await;
    assert_eq!(listed().await, all, "before the key is moved");
    cluster.move_keys(slot, 0, 2).await;
    assert_eq!(listed().await, all, "after it");
    let moving = claim(&names[0], LONG).claim.name;
    let seen = store.inspect(&moving, LIMIT).await.expect("answered");
    assert!(seen.is_some());
    cluster.end_move(slot, 0, 2).await;
    assert_eq!(listed().await, all, "after the move");
}

#[tokio::test]
async fn a_list_fails_while_a_node_loads_its_data() {
    let node = FakeNode::start(|words| match &*words[0].to_uppercase() {
        "SCAN" => Some("*2\r\n$1\r\n0\r\n*1\r\n$13\r\nleasehold:{a}\r\n".into()),
        "EVALSHA" => Some("-LOADING Redis is loading the dataset in memory\r\n".into()),
        _ => None,
    });
    let node = node.await;
    let listed = open(&node.url()).await.list("", LIMIT).await;
    let error = listed.expect_err("the name may have a lease");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(chain(&error).contains("LOADING"), "{}", chain(&error));
}

#[tokio::test]
async fn an_answer_about_a_slot_that_its_node_has_lost_meanwhile_does_not_count() {
    let cluster = RedisCluster::start().await;
    let mut proxies = Vec::new();
    for node in &cluster.nodes {
        proxies.push(node.proxy().await);
    }
    let url = format!("redis+cluster://127.0.0.1:{}", port_of(&proxies[0]));
    let store = outside(&url, &cluster.nodes, &proxies);
    let moving = cluster.name_on(0).await;
    let slot = cluster.slot_of(&moving).await;
    let mut staying = None;
    for index in 0.. {
        let name = format!("staying-{index}");
        let is_other = cluster.slot_of(&name).await != slot;
        if is_other && cluster.primary_of(&name).await == 0 {
            staying = Some(name);
            break;
        }
    }
    let claims = [claim(&moving, LONG), claim(&staying.expect("one"), LONG)];
    for claim in &claims {
        granted(&store, claim).await;
    }
    let late = Fault::DelayReply(Duration::from_secs(2));
    proxies[0].once(Request::is_script, late);
    let batch = claims.each_ref().map(renewal);
    let mut renewing = store.renew(&batch, LIMIT);
    begin(&mut renewing).await;
    until_so("it has arrived", async || proxies[0].faults().len() == 1).await;
    cluster.move_slots(&[slot], 0, 1).await;
    let outcomes = renewing.await.outcomes;
    assert!(matches!(outcomes[0], Outcome::Unknown(_)), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Renewed), "{outcomes:?}");
}
