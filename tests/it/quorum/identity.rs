//! Who is a member, and whether it still has what it took: servers that are promoted, exchanged, restored or counted
//! twice, and lists of members that differ.

use std::time::Duration;

use leasehold::store::quorum::Quorum;
use leasehold::store::redis::Redis;
use leasehold::store::{Eviction, Hazard, MemberState, Store as _};
use leasehold::{ClientId, Holder, Token};

use super::node::MemberRequest;
use super::raw::RawMember;
use super::rivals::{lead_nowhere, none_is_granted, over, states, ways};
use crate::harness::asking::{asked, claim, granted, next_token, released};
use crate::harness::proxy::Proxy;
use crate::harness::redis_quorum::{self, MAX_TTL, RedisQuorum};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG, UNANSWERED};

const TTL: Duration = LONG.checked_div(2).unwrap();

/// Connects the third member again and cuts off the second one, and finds that a rival is granted nothing. Returns the state of
/// the first one: what keeps the rival out is not that it cannot be reached.
async fn first_and_third_grant_nothing(quorum: &RedisQuorum, ways: &[Proxy]) -> MemberState {
    ways[2].lead_to(&quorum.servers[2].socket());
    lead_nowhere(&ways[1]);
    let rival = over(ways);
    none_is_granted(&rival, "a", TTL).await;
    let states = states(&rival).await;
    assert_eq!(states[2], MemberState::Up);
    states[0]
}

#[tokio::test]
async fn a_replica_that_is_promoted_in_place_of_a_member_helps_no_rival() {
    let mut quorum = RedisQuorum::with(3, Setup::default, MAX_TTL).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    next_token(&store, "warm").await;
    // Its own file is as good as a file can be.
    let replica = Setup::default()
        .with_port()
        .with(["--appendonly", "yes"])
        .with(["--appendfsync", "always"]);
    let replica = replica.start().await;
    replica.follow(&quorum.servers[0]).await;
    // It keeps what it has, and misses what follows.
    let () = replica.told("REPLICAOF 127.0.0.1 1").await;
    lead_nowhere(&ways[2]);
    granted(&store, &claim("a", TTL)).await;
    quorum.servers[0].kill();
    replica.promote().await;
    ways[0].lead_to(&replica.socket());
    let first = first_and_third_grant_nothing(&quorum, &ways).await;
    assert!(matches!(first, MemberState::Away { .. }), "{first:?}");
}

#[tokio::test]
async fn a_replica_at_the_address_of_a_member_helps_no_rival() {
    let quorum = RedisQuorum::with(3, Setup::default, MAX_TTL).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    next_token(&store, "warm").await;
    let replica = Setup::default().with_port().start().await;
    replica.follow(&quorum.servers[0]).await;
    let () = replica.told("REPLICAOF 127.0.0.1 1").await;
    lead_nowhere(&ways[2]);
    granted(&store, &claim("a", TTL)).await;
    ways[0].lead_to(&replica.socket());
    ways[0].cut();
    let first = first_and_third_grant_nothing(&quorum, &ways).await;
    assert_ne!(first, MemberState::Up);
}

#[tokio::test]
async fn a_replica_refuses_a_release_as_one_so_that_another_connection_is_made_for_it() {
    let quorum = RedisQuorum::with(3, || Setup::default().with_port(), MAX_TTL).await;
    let [master, ..] = &quorum.servers[..] else {
        panic!("there are three");
    };
    let replica = Setup::default().with_port().start().await;
    replica.follow(master).await;
    let [mut master, mut replica] = [RawMember::of(master).await, RawMember::of(&replica).await];
    let (node, ..) = master.node(&["look".into()]).await;
    let asked = MemberRequest {
        id: node.membership.expect("it was set up").id,
        holder: Holder::new(ClientId::from_u128(7), 1),
        token: Token::new(5).expect("a token"),
        ttl_us: 0,
    };
    let keys = ["leasehold:{a}", "leasehold:{1}:mark"];
    for word in ["release", "claim", "evict"] {
        let asked = MemberRequest {
            ttl_us: if word == "release" { 0 } else { 1_000 },
            ..asked
        };
        let refused = replica.ask(word, keys, &asked, None).await;
        let code = refused.expect_err("a replica").code().map(str::to_owned);
        assert_eq!(code.as_deref(), Some("READONLY"), "{word}");
    }
}

#[tokio::test]
async fn a_new_server_behind_the_address_of_a_member_helps_no_rival() {
    let quorum = RedisQuorum::start(3).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    lead_nowhere(&ways[2]);
    granted(&store, &claim("a", TTL)).await;
    let new = RedisServer::start().await;
    ways[0].lead_to(&new.socket());
    ways[0].cut();
    let first = first_and_third_grant_nothing(&quorum, &ways).await;
    assert!(matches!(first, MemberState::Away { .. }), "{first:?}");
}

#[tokio::test]
async fn a_member_with_a_replica_is_asked_for_no_keep_out_of_its_own() {
    let quorum = RedisQuorum::with(3, Setup::default, MAX_TTL).await;
    let replica = Setup::default().with_port().start().await;
    replica.follow(&quorum.servers[0]).await;
    let hazards = quorum.open().hazards(LIMIT).await.expect("answered");
    let is_one = |hazard: &Hazard| hazard.id == "redis-no-keep-out";
    assert!(!hazards.iter().any(is_one), "{hazards:?}");
}

#[tokio::test]
async fn a_member_that_waits_for_its_replica_is_reported_for_no_lag_of_it() {
    let quorum = RedisQuorum::with(3, Setup::default, MAX_TTL).await;
    let replica = Setup::default().with_port().start().await;
    replica.follow(&quorum.servers[0]).await;
    // A master alone is reported then: the replica may be 10 s behind it.
    let waiting = "CONFIG SET min-replicas-to-write 1";
    let () = quorum.servers[0].told(waiting).await;
    let hazards = quorum.open().hazards(LIMIT).await.expect("answered");
    let is_one = |hazard: &Hazard| hazard.id == "redis-replica-lag";
    assert!(!hazards.iter().any(is_one), "{hazards:?}");
}

#[tokio::test]
async fn the_hazards_name_a_member_behind_a_balancer() {
    let quorum = RedisQuorum::start(3).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    let ids = async || -> Vec<&'static str> {
        let hazards = store.hazards(LIMIT).await.expect("answered");
        hazards.iter().map(|hazard| hazard.id).collect()
    };
    assert!(!ids().await.contains(&"quorum-balancer"));
    // From now on a new connection ends at another server than those that are there.
    let other = RedisServer::start().await;
    ways[1].lead_to(&other.socket());
    assert!(ids().await.contains(&"quorum-balancer"));
}

/// A member that is restored from a copy that is older than the lease, and that flushes each write from then on or not.
async fn restored(is_flushing: bool) {
    let mut quorum = RedisQuorum::start(3).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    next_token(&store, "warm").await;
    let copy = quorum.servers[0].snapshot().await;
    lead_nowhere(&ways[2]);
    granted(&store, &claim("a", TTL)).await;
    quorum.servers[0].restart_from(&copy).await;
    if is_flushing {
        for setting in ["appendfsync always", "appendonly yes"] {
            let () = quorum.servers[0]
                .told(&format!("CONFIG SET {setting}"))
                .await;
        }
    }
    let first = first_and_third_grant_nothing(&quorum, &ways).await;
    assert!(matches!(first, MemberState::Away { .. }), "{first:?}");
}

#[tokio::test]
async fn a_member_that_is_restored_from_an_old_copy_helps_no_rival() {
    restored(false).await;
}

#[tokio::test]
async fn a_member_that_lost_a_write_and_flushes_each_since_then_helps_no_rival() {
    restored(true).await;
}

/// Returns a store on these servers, in this order.
fn quorum_on(servers: &[&RedisServer]) -> Quorum {
    redis_quorum::on(servers.iter().map(|server| server.url()), MAX_TTL)
}

#[tokio::test]
async fn clients_with_different_lists_of_members_never_hold_both() {
    let [quorum, other] = [RedisQuorum::start(3).await, RedisQuorum::start(3).await];
    let [a, b, c] = &quorum.servers[..] else {
        unreachable!()
    };
    let [x, y, _] = &other.servers[..] else {
        unreachable!()
    };
    let ways = ways(&quorum).await;
    lead_nowhere(&ways[2]);
    granted(&over(&ways), &claim("a", TTL)).await;
    // Three that are five in another's list; one that was replaced; two that were exchanged.
    b.pause();
    none_is_granted(&quorum_on(&[c, x, y, a, b]), "a", TTL).await;
    none_is_granted(&quorum_on(&[c, x, b]), "a", TTL).await;
    none_is_granted(&quorum_on(&[x, b, c]), "a", TTL).await;
    b.resume();
}

#[tokio::test]
async fn a_client_with_a_shorter_longest_ttl_ends_no_keep_out_early() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    granted(&store, &claim("a", TTL)).await;
    quorum.servers[0].restart_empty().await;
    quorum.servers[1].restart_empty().await;
    let short = Duration::from_secs(1);
    let hasty = quorum.open_with(short);
    none_is_granted(&hasty, "a", short).await;
    // With the right one a client finds that they are away still.
    let states = states(&quorum.open()).await;
    assert!(matches!(states[0], MemberState::Away { .. }), "{states:?}");
    none_is_granted(&quorum.open(), "a", TTL).await;
}

#[tokio::test]
async fn tokens_rise_after_the_clock_of_a_member_was_three_hours_ahead_for_a_moment() {
    let quorum = RedisQuorum::with(3, || Setup::default().with_clock(), MAX_TTL).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    let now_us = u64::try_from(quorum.servers[0].time_ms().await).expect("after 1970") * 1_000;
    let ahead = Token::new(now_us + 3_600_000_000).expect("a token");
    lead_nowhere(&ways[2]);
    let first = claim("a", TTL).with_floor(ahead);
    let token = granted(&store, &first).await;
    assert!(token > ahead, "{token}");
    released(&store, &first).await;
    quorum.servers[0].step_clock(3 * 3_600_000).await;
    // Whatever had an expiry is removed here.
    quorum.servers[0].keys().await;
    quorum.servers[0].step_clock(-3 * 3_600_000).await;
    ways[2].lead_to(&quorum.servers[2].socket());
    lead_nowhere(&ways[1]);
    assert!(granted(&over(&ways), &claim("a", TTL)).await > token);
}

#[tokio::test]
async fn a_plain_client_of_a_member_neither_takes_nor_ends_a_lease() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let lease = claim("a", TTL);
    granted(&store, &lease).await;
    for server in &quorum.servers {
        let plain = Redis::open(&server.url()).expect("a URL in order");
        asked(&plain, &claim("a", TTL), LIMIT)
            .await
            .expect_err("a member is no server alone");
        let evicted = plain.evict(&lease.name, Eviction::Now, LIMIT).await;
        assert!(evicted.is_err(), "{evicted:?}");
    }
    let answer = asked(&quorum.open(), &claim("a", TTL), UNANSWERED).await;
    let answer = answer.expect("answered");
    assert!(
        matches!(answer, leasehold::store::Answer::Held(_)),
        "{answer:?}"
    );
}
