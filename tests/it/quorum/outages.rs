//! Claims, renewals, repairs and releases go on while a minority of the members is away, down, slow or has a wrong
//! clock.

use std::time::Duration;

use leasehold::store::quorum::Quorum;
use leasehold::store::{Answer, MemberState, Outcome, Purpose, Store as _};
use leasehold::{Attempt, Client, Lease};
use tokio::runtime::{Builder, Runtime};

use super::rivals::{lead_nowhere, over, renewed_for, states, ways};
use crate::harness::asking::{Asking, asked, claim, granted, next_token, released, renewed};
use crate::harness::proxy::{Fault, Proxy};
use crate::harness::redis_quorum::{MAX_TTL, RedisQuorum};
use crate::harness::redis_server::Setup;
use crate::harness::times::{LIMIT, LONG, STORED_TTL};
use crate::harness::wait::{at, now, soon, until, until_so};

/// A lease that these tests outlive.
const TTL: Duration = Duration::from_secs(5);

fn is_renewed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Renewed)
}

/// Renews for longer than the ttl, which needs each of the members that are left.
async fn outlives_its_ttl(store: &Quorum, lease: &Asking) {
    let outcome = renewed_for(store, lease, TTL + TTL / 4).await;
    assert!(is_renewed(&outcome), "{outcome:?}");
}

#[tokio::test]
async fn a_lease_that_one_member_missed_outlives_the_death_of_another() {
    let mut quorum = RedisQuorum::start(3).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    next_token(&store, "warm").await;
    lead_nowhere(&ways[2]);
    let lease = claim("a", TTL);
    granted(&store, &lease).await;
    // No renewal reaches it before the other one is dead.
    quorum.servers[0].kill();
    ways[2].lead_to(&quorum.servers[2].socket());
    outlives_its_ttl(&store, &lease).await;
}

#[tokio::test]
async fn what_a_dead_client_left_on_a_member_bars_no_repair_after_its_ttl() {
    let mut quorum = RedisQuorum::start(3).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    next_token(&store, "warm").await;
    lead_nowhere(&ways[2]);
    let lease = claim("a", TTL);
    granted(&store, &lease).await;
    // Then a claim of another client arrives at the last member alone, and the client dies before it takes it back.
    let (dead_ways, short) = (super::rivals::ways(&quorum).await, Duration::from_secs(1));
    let dead_store = over(&dead_ways);
    next_token(&dead_store, "warm").await;
    let before = quorum.servers[2].keys().await;
    dead_ways[..2].iter().for_each(Proxy::stall);
    let dead = tokio::spawn(async move { asked(&dead_store, &claim("a", short), LIMIT).await });
    until_so("the claim at the last member", async || {
        let keys = quorum.servers[2].keys().await;
        keys.iter().any(|key| !before.contains(key))
    })
    .await;
    dead_ways[2].set(|_| Some(Fault::DropRequest));
    dead.abort();
    dead_ways.iter().for_each(lead_nowhere);
    ways[2].lead_to(&quorum.servers[2].socket());
    let outcome = renewed_for(&store, &lease, short * 3).await;
    assert!(is_renewed(&outcome), "{outcome:?}");
    quorum.servers[0].kill();
    outlives_its_ttl(&store, &lease).await;
}

#[tokio::test]
async fn what_an_earlier_claim_of_the_holder_left_on_a_member_bars_no_repair() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let lease = claim("a", LONG);
    let token = granted(&store, &lease).await;
    let held = format!(" {token} ");
    let last = &quorum.servers[2];
    let value = async || -> String { last.told("GET leasehold:{a}").await };
    until_so("it is at the last member", async || {
        let keys = last.keys().await;
        keys.contains(&"leasehold:{a}".into()) && value().await.contains(&held)
    })
    .await;
    // As if the last member had heard neither of this claim nor that an earlier one of the holder was taken back.
    let earlier = value()
        .await
        .replace(&held, &format!(" {} ", token.get() - 1));
    let mut connection = last.connect().await.expect("it is up");
    let mut left = deadpool_redis::redis::cmd("SET");
    left.arg("leasehold:{a}").arg(earlier).arg("KEEPTTL");
    let () = left.query_async(&mut connection).await.expect("set");
    until_so("the repair, long before its end", async || {
        assert!(is_renewed(&renewed(&store, &lease).await));
        value().await.contains(&held)
    })
    .await;
}

#[tokio::test]
async fn members_that_are_down_and_those_that_are_out_are_reported_together() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let reported = async || {
        let hazards = store.hazards(LIMIT).await.expect("answered");
        let mut found = hazards.iter();
        let found = found.find(|hazard| hazard.id == "quorum-members-down");
        found.map(ToString::to_string)
    };
    next_token(&store, "warm").await;
    assert_eq!(reported().await, None);
    quorum.servers[2].restart_empty().await;
    let told = reported().await.expect("one is away");
    assert!(told.contains("1 of 3 members"), "{told}");
    assert!(told.contains("once 1 more"), "{told}");
    quorum.servers[0].kill();
    let told = reported().await.expect("one is away, one is down");
    assert!(told.contains("2 of 3 members"), "{told}");
    assert!(
        told.contains("nothing is granted or renewed until"),
        "{told}"
    );
}

#[tokio::test]
async fn one_clock_hours_ahead_and_one_a_little_behind_stop_no_claims() {
    let quorum = RedisQuorum::with(3, || Setup::default().with_clock(), MAX_TTL).await;
    quorum.servers[0].step_clock(3 * 3_600_000).await;
    quorum.servers[1].step_clock(-200).await;
    let store = quorum.open();
    for number in 0..30 {
        granted(&store, &claim(&format!("a{number}"), LONG)).await;
    }
}

/// Sets a quorum up while the clock of one member is so far ahead, which its tokens then are.
async fn set_up_ahead(by_ms: i64) -> RedisQuorum {
    let mut quorum = RedisQuorum {
        servers: Vec::new(),
    };
    for _ in 0..3 {
        let setup = Setup::default().with_port().with_clock();
        quorum.servers.push(setup.start().await);
    }
    quorum.servers[1].step_clock(by_ms).await;
    quorum.set_up(MAX_TTL).await
}

#[tokio::test]
async fn a_new_quorum_with_a_clock_a_minute_ahead_grants_at_once() {
    let quorum = set_up_ahead(60_000).await;
    for number in 0..30 {
        granted(&quorum.open(), &claim(&format!("a{number}"), LONG)).await;
    }
}

#[tokio::test]
async fn a_new_process_takes_the_last_token_as_its_floor_however_far_ahead_it_is() {
    let quorum = set_up_ahead(48 * 3_600_000).await;
    let token = next_token(&quorum.open(), "a").await;
    let next = claim("a", LONG).with_floor(token);
    assert!(granted(&quorum.open(), &next).await > token);
}

#[tokio::test]
async fn tokens_that_are_ahead_of_the_clock_are_reported() {
    for (by_ms, is_reported) in [(1_000, false), (48 * 3_600_000, true)] {
        let quorum = set_up_ahead(by_ms).await;
        let hazards = quorum.open().hazards(LIMIT).await.expect("answered");
        let mut ids = hazards.iter().map(|hazard| hazard.id);
        let found = ids.any(|id| id == "quorum-tokens-ahead");
        assert_eq!(found, is_reported, "{hazards:?}");
    }
}

#[tokio::test]
async fn a_member_that_came_back_comes_in_though_only_renewals_are_sent() {
    let mut quorum = RedisQuorum::with(3, Setup::default, STORED_TTL).await;
    let store = quorum.open_with(STORED_TTL);
    let lease = claim("a", STORED_TTL);
    granted(&store, &lease).await;
    let other = quorum.open_with(STORED_TTL);
    quorum.servers[0].restart_empty().await;
    let outcome = renewed_for(&store, &lease, STORED_TTL * 2).await;
    assert!(is_renewed(&outcome), "{outcome:?}");
    quorum.servers[1].kill();
    // A client that has sent nothing so far: nothing began with it.
    granted(&other, &claim("b", STORED_TTL)).await;
    let outcome = renewed_for(&store, &lease, STORED_TTL * 2).await;
    assert!(is_renewed(&outcome), "{outcome:?}");
}

#[tokio::test]
async fn the_first_claim_after_a_keep_out_takes_the_members_in() {
    let mut quorum = RedisQuorum::with(3, Setup::default, STORED_TTL).await;
    for member in [0, 1] {
        quorum.servers[member].restart_empty().await;
    }
    // Seen by a client that ends, and its tasks with it.
    let store = quorum.open();
    let of_short_life = tokio::task::spawn_blocking(move || {
        let runtime = Runtime::new().expect("a runtime");
        runtime.block_on(async { asked(&store, &claim("a", STORED_TTL), LIMIT).await })
    });
    let first = of_short_life.await.expect("no panic");
    assert!(!matches!(first, Ok(Answer::Granted(_))), "{first:?}");
    at(now().after(STORED_TTL * 21 / 20)).await;
    granted(&quorum.open(), &claim("a", STORED_TTL)).await;
}

#[test]
fn a_member_that_came_back_comes_in_though_the_callers_runtime_stands_still() {
    let servers = Runtime::new().expect("a runtime");
    let mut quorum = servers.block_on(RedisQuorum::with(3, Setup::default, STORED_TTL));
    let caller = Builder::new_current_thread().enable_all().build();
    let caller = caller.expect("a runtime");
    let store = quorum.open_with(STORED_TTL);
    let watchdogs = servers.block_on(store.on_own_connection(Purpose::Watchdog));
    let watchdogs = watchdogs.expect("a connection");
    servers.block_on(quorum.servers[0].restart_empty());
    let lease = claim("a", STORED_TTL);
    // The caller's connections meet the member that is away. From then on the caller's runtime does nothing.
    caller.block_on(async {
        granted(&store, &lease).await;
        granted(&store, &claim("b", STORED_TTL)).await;
        at(now().after(Duration::from_millis(200))).await;
    });
    servers.block_on(until_so("it is in", async || {
        renewed(&*watchdogs, &lease).await;
        let ask = "HGET leasehold:node incarnation";
        let incarnation: Option<String> = quorum.servers[0].told(ask).await;
        incarnation.is_some()
    }));
}

#[tokio::test]
async fn a_member_first_seen_with_its_clock_ahead_is_in_after_one_keep_out() {
    let setup = || Setup::default().with_clock();
    let mut quorum = RedisQuorum::with(3, setup, STORED_TTL).await;
    let store = quorum.open_with(STORED_TTL);
    const DAY: i64 = 24 * 3_600_000;
    quorum.servers[0].step_clock(DAY).await;
    quorum.servers[0].restart_empty().await;
    granted(&store, &claim("a", STORED_TTL)).await;
    until_so("it was seen", async || {
        matches!(states(&store).await[0], MemberState::Away { .. })
    })
    .await;
    quorum.servers[0].step_clock(-DAY).await;
    until_so("it is in", async || {
        states(&store).await == [MemberState::Up; 3]
    })
    .await;
}

#[tokio::test]
async fn a_release_reaches_a_member_that_was_silent_a_moment_ago() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    next_token(&store, "warm").await;
    let lease = claim("a", LONG / 2);
    granted(&store, &lease).await;
    let outcome = renewed_for(&store, &lease, Duration::from_millis(500)).await;
    assert!(is_renewed(&outcome), "{outcome:?}");
    quorum.servers[2].pause();
    let outcome = renewed_for(&store, &lease, LIMIT).await;
    assert!(is_renewed(&outcome), "{outcome:?}");
    quorum.servers[2].resume();
    released(&store, &lease).await;
    quorum.servers[0].kill();
    let begun = now();
    until_so("the next grant", async || {
        let answer = asked(&quorum.open(), &claim("a", LONG / 2), LIMIT).await;
        matches!(answer, Ok(Answer::Granted(_)))
    })
    .await;
    let took = now().since(begun);
    assert!(took < LONG / 10, "{took:?}");
}

#[tokio::test]
async fn claims_that_are_dropped_at_any_moment_leave_nothing() {
    let quorum = RedisQuorum::start(3).await;
    let (one, other) = (quorum_client(&quorum).await, quorum_client(&quorum).await);
    for number in 0..150_u64 {
        let moment = Duration::from_micros(20 * number);
        let dropped = tokio::time::timeout(moment, one.try_acquire("a")).await;
        drop(dropped);
        // Far below the ttl.
        let next = tokio::time::timeout(LIMIT, other.acquire("a")).await;
        let next = next.unwrap_or_else(|_| panic!("dropped after {moment:?}"));
        next.expect("granted").release().await;
    }
}

/// Returns a client of all members.
async fn quorum_client(quorum: &RedisQuorum) -> Client {
    let client = Client::builder().store(quorum.open()).build();
    client.await.expect("a client")
}

#[tokio::test]
async fn a_waiting_client_is_woken_though_one_member_is_out() {
    let mut quorum = RedisQuorum::start(3).await;
    let (one, other) = (quorum_client(&quorum).await, quorum_client(&quorum).await);
    quorum.servers[2].restart_empty().await;
    let lease = one.acquire("a").await.expect("it is free");
    let waiting = tokio::spawn(async move { other.acquire("a").await.expect("it is freed") });
    at(now().after(Duration::from_millis(300))).await;
    lease.release().await;
    let begun = now();
    let next: Lease = soon(waiting).await.expect("no panic");
    // By a notice: it would ask by itself much later.
    let took = now().since(begun);
    assert!(took < Duration::from_secs(2), "{took:?}");
    next.release().await;
}

#[tokio::test]
async fn a_lease_with_a_short_ttl_survives_members_that_stop_in_turn() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let lease = claim("a", STORED_TTL);
    granted(&store, &lease).await;
    for round in 0..9 {
        let server = &quorum.servers[round % 3];
        server.pause();
        let outcome = renewed_for(&store, &lease, Duration::from_millis(300)).await;
        server.resume();
        assert!(is_renewed(&outcome), "{outcome:?}");
        until("a renewal", async || {
            is_renewed(&renewed(&store, &lease).await).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_claim_whose_grant_came_too_late_is_granted_afterwards() {
    let quorum = RedisQuorum::start(3).await;
    let ways = ways(&quorum).await;
    let store = over(&ways);
    next_token(&store, "warm").await;
    let ttl = Duration::from_millis(400);
    for way in &ways {
        way.once(|request| request.is_script(), Fault::DelayReply(ttl * 2));
    }
    until_so("a grant", async || {
        let answer = asked(&store, &claim("a", ttl), LIMIT).await;
        matches!(answer, Ok(Answer::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn a_rolling_restart_forgets_no_name_that_is_kept_taken() {
    let on_disk = || Setup::default().with(["--appendonly", "yes", "--appendfsync", "always"]);
    let mut quorum = RedisQuorum::with(3, on_disk, STORED_TTL).await;
    let client = async || {
        let builder = Client::builder().store(quorum.open_with(STORED_TTL));
        builder.ttl(STORED_TTL).build().await.expect("a client")
    };
    let (holder, rival) = (client().await, client().await);
    let request = holder.request("kept").hold_at_least(LONG * 60);
    request.acquire().await.expect("free").release().await;
    // The control: what is not kept is free after the restarts.
    holder.acquire("freed").await.expect("free").release().await;
    let watcher = quorum.open_with(STORED_TTL);
    for member in 0..3 {
        quorum.servers[member].kill();
        quorum.servers[member].start_again().await;
        until_so("it is in", async || {
            states(&watcher).await == [MemberState::Up; 3]
        })
        .await;
    }
    let kept = rival.try_acquire("kept").await.expect("answered");
    assert!(matches!(kept, Attempt::Held(_)), "{kept:?}");
    let freed = rival.try_acquire("freed").await.expect("answered");
    assert!(matches!(freed, Attempt::Acquired(_)), "{freed:?}");
}

#[tokio::test]
async fn a_rolling_restart_loses_no_lease_though_a_rival_waits() {
    let mut quorum = RedisQuorum::with(3, Setup::default, STORED_TTL).await;
    let client = async || {
        let builder = Client::builder().store(quorum.open_with(STORED_TTL));
        builder.ttl(STORED_TTL).build().await.expect("a client")
    };
    let (holder, rival) = (client().await, client().await);
    let mut leases = Vec::new();
    for number in 0..8 {
        leases.push(holder.acquire(format!("a{number}")).await.expect("free"));
    }
    let waiting = tokio::spawn(async move { rival.acquire("a0").await.expect("it is freed") });
    let watcher = quorum.open_with(STORED_TTL);
    for member in 0..3 {
        quorum.servers[member].restart_empty().await;
        until_so("it is in", async || {
            states(&watcher).await == [MemberState::Up; 3]
        })
        .await;
        // Each lease is renewed once more, which puts it on the member that came in.
        at(now().after(STORED_TTL / 2)).await;
        for lease in &leases {
            lease
                .check()
                .unwrap_or_else(|loss| panic!("{member}: {loss}"));
        }
    }
    let token = leases[0].token();
    assert!(!waiting.is_finished());
    drop(leases);
    assert!(soon(waiting).await.expect("no panic").token() > token);
}
