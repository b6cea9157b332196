//! Grants of a quorum of real servers: contention, outages, losses of data.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::quorum::Quorum;
use leasehold::store::{Answer, Eviction, MemberState, Outcome, Purpose, Release, Store};
use leasehold::{ErrorKind, Token};
use tokio::task::JoinSet;

use super::rivals::states;
use crate::harness::asking::{Asking, asked, claim, granted, held, next_token, released, renewed};
use crate::harness::redis_quorum::{MAX_TTL, RedisQuorum, end_keep_out};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG, STORED_TTL, UNANSWERED};
use crate::harness::wait::{at, now, until};

/// Renews a lease. On a busy machine the claim may not have reached every member, and a renewal is unknown at first.
async fn renewed_in_the_end(store: &Quorum, claim: &Asking) {
    until("a renewal", async || {
        matches!(renewed(store, claim).await, Outcome::Renewed).then_some(())
    })
    .await;
}

/// Acquires a name that all members have given then: on a busy machine a claim can come too late for one of them.
async fn granted_by_all(quorum: &RedisQuorum, store: &Quorum, ttl: Duration) -> (Asking, Token) {
    for number in 0_u32.. {
        let claim = claim(&format!("wanted-by-all-{number}"), ttl);
        let token = granted(store, &claim).await;
        if is_had_by_all(quorum, &claim).await {
            return (claim, token);
        }
    }
    unreachable!("there is always another name")
}

/// Whether all members have this lease soon.
async fn is_had_by_all(quorum: &RedisQuorum, claim: &Asking) -> bool {
    let key = format!("leasehold:{{{}}}", claim.name);
    let mut others = quorum.servers.iter().peekable();
    let end = now().after(LIMIT);
    while let Some(server) = others.peek()
        && now() < end
    {
        match server.keys().await.contains(&key) {
            true => drop(others.next()),
            false => at(now().after(Duration::from_millis(5))).await,
        }
    }
    others.peek().is_none()
}

#[tokio::test]
async fn a_member_that_hears_of_a_claim_late_takes_it_all_the_same() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    next_token(&store, "warm").await;
    // A busy machine may let it sleep for longer than that.
    for number in 0..5 {
        quorum.servers[2].pause();
        let claim = claim(&format!("late-{number}"), LONG);
        granted(&store, &claim).await;
        at(now().after(Duration::from_millis(100))).await;
        quorum.servers[2].resume();
        if is_had_by_all(&quorum, &claim).await {
            return;
        }
    }
    panic!("it never took a claim that came a tenth of a second late");
}

#[tokio::test]
async fn of_32_claims_at_once_exactly_one_is_granted() {
    let quorum = RedisQuorum::start(3).await;
    // Each from a store of its own, as from a process of its own.
    for round in 0..5 {
        let name = format!("contended-{round}");
        let mut asking = JoinSet::new();
        for _ in 0..32 {
            let (store, claim) = (quorum.open(), claim(&name, LONG));
            asking.spawn(async move { (asked(&store, &claim, LIMIT * 2).await, store, claim) });
        }
        let answers = asking.join_all().await;
        let granted = answers
            .iter()
            .filter(|(answer, ..)| matches!(answer, Ok(Answer::Granted(_))));
        let told: Vec<_> = answers.iter().map(|(answer, ..)| answer).collect();
        assert_eq!(granted.count(), 1, "{told:?}");
        assert!(told.iter().all(|answer| answer.is_ok()), "{told:?}");
    }
}

/// Returns how often this server was asked for a script, since the statistics were reset.
async fn scripts_called(server: &RedisServer) -> u64 {
    let stats: String = server.told("INFO commandstats").await;
    let calls = stats.lines().find_map(|line| {
        let (_, rest) = line.split_once("cmdstat_evalsha:calls=")?;
        rest.split(',').next()?.parse().ok()
    });
    calls.unwrap_or_default()
}

#[tokio::test]
async fn the_first_claim_of_a_connected_client_takes_one_round() {
    let quorum = RedisQuorum::start(3).await;
    // Scripts are loaded by an earlier client, so that no call is made twice for that.
    granted_by_all(&quorum, &quorum.open(), LONG).await;
    // On a busy machine a clock may be read late.
    for number in 0..5 {
        let store = quorum.open();
        // As the watchdog does before the first claim.
        let own = store.on_own_connection(Purpose::Watchdog).await;
        let _own = own.expect("connected");
        for server in &quorum.servers {
            let () = server.told("CONFIG RESETSTAT").await;
        }
        let first = claim(&format!("first-{number}"), LONG);
        granted(&store, &first).await;
        let is_had = is_had_by_all(&quorum, &first).await;
        let mut calls = Vec::new();
        for server in &quorum.servers {
            calls.push(scripts_called(server).await);
        }
        if is_had && calls == [1; 3] {
            return;
        }
    }
    panic!("no first claim took one call to each member");
}

#[tokio::test]
async fn a_dead_member_keeps_no_one_from_a_lease() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let (first, token) = granted_by_all(&quorum, &store, LONG).await;
    let name = first.name.as_str();
    quorum.servers[1].kill();
    renewed_in_the_end(&store, &first).await;
    assert_eq!(
        held(&store, &claim(name, LONG)).await.by,
        Some(first.holder)
    );
    assert_eq!(released(&store, &first).await, Release::Released);
    assert!(next_token(&store, name).await > token);
    assert_eq!(
        states(&store).await,
        [MemberState::Up, MemberState::Down, MemberState::Up]
    );
}

#[tokio::test]
async fn a_holder_without_its_lease_is_granted_anew_though_a_member_is_dead() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    quorum.servers[1].kill();
    for round in 0..10 {
        let first = claim(&format!("a{round}"), LONG);
        let token = granted(&store, &first).await;
        let evicted = store.evict(&first.name, Eviction::Now, LIMIT).await;
        assert!(evicted.expect("answered"));
        assert!(granted(&store, &first).await > token);
    }
}

#[tokio::test]
async fn an_eviction_that_a_minority_carried_out_is_no_success() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let (first, token) = granted_by_all(&quorum, &store, LONG).await;
    // At one member an older claim of another client is left, and one is dead.
    let key = format!("leasehold:{{{}}}", first.name);
    let value: String = quorum.servers[2].told(&format!("GET {key}")).await;
    let other = claim("a", LONG).holder.to_string();
    let value = value
        .replace(&first.holder.to_string(), &other)
        .replace(&token.to_string(), &(token.get() - 1).to_string());
    let mut connection = quorum.servers[2].connect().await.expect("it is up");
    let mut left = deadpool_redis::redis::cmd("SET");
    left.arg(&key).arg(value).arg("KEEPTTL");
    let () = left.query_async(&mut connection).await.expect("set");
    quorum.servers[1].kill();
    let evicted = store.evict(&first.name, Eviction::Marked, LIMIT).await;
    let error = evicted.expect_err("one of three carried it out");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
}

#[tokio::test]
async fn without_a_majority_nothing_is_granted_and_the_error_says_why() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let first = claim("a", LONG);
    granted(&store, &first).await;
    quorum.servers[0].kill();
    quorum.servers[2].kill();
    let error = asked(&store, &claim("b", LONG), LIMIT)
        .await
        .expect_err("no majority");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let why = std::error::Error::source(&error)
        .expect("it says why")
        .to_string();
    assert!(why.contains("1 of 3 members answered"), "{why}");
    assert!(matches!(renewed(&store, &first).await, Outcome::Unknown(_)));
    // What the one member took was taken back.
    let list = quorum.servers[1].keys().await;
    assert!(!list.contains(&"leasehold:{b}".into()), "{list:?}");
}

#[tokio::test]
async fn a_hung_member_never_sets_the_latency() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    next_token(&store, "warm").await;
    quorum.servers[2].pause();
    let clock = store.clock();
    let begun = clock.now();
    // More claims than would fit into the limit if each waited for the hung member.
    for round in 0..20 {
        let first = claim(&format!("a{round}"), LONG);
        granted(&store, &first).await;
        renewed_in_the_end(&store, &first).await;
        held(&store, &claim(&format!("a{round}"), LONG)).await;
        assert_eq!(released(&store, &first).await, Release::Released);
    }
    let took = clock.now().since(begun);
    quorum.servers[2].resume();
    // 80 calls of 5 s each would take 400 s.
    assert!(took < LIMIT * 4, "{took:?}");
}

#[tokio::test]
async fn a_new_quorum_grants_nothing_before_init_and_at_once_after_it() {
    let quorum = RedisQuorum::start_new(3).await;
    let error = asked(&quorum.open(), &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("it was not set up");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(
        error.to_string().contains("leasehold init --store"),
        "{error}"
    );
    let quorum = quorum.set_up(MAX_TTL).await;
    granted(&quorum.open(), &claim("a", LONG)).await;
    assert_eq!(states(&quorum.open()).await, [MemberState::Up; 3]);
}

#[tokio::test]
async fn an_emptied_member_does_not_help_a_rival_and_gets_the_lease_back() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let (first, token) = granted_by_all(&quorum, &store, LONG / 2).await;
    let key = format!("leasehold:{{{}}}", first.name);
    quorum.servers[0].restart_empty().await;
    // Another process, which sees only that member and one that has the lease.
    quorum.servers[2].pause();
    let rival = quorum.open();
    let claim = claim(first.name.as_str(), LONG / 2);
    let answer = asked(&rival, &claim, UNANSWERED).await;
    assert!(!matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
    quorum.servers[2].resume();
    // As if the keep-out were over.
    end_keep_out(&quorum.servers[0]).await;
    until("the repair", async || {
        renewed_in_the_end(&store, &first).await;
        let keys = quorum.servers[0].keys().await;
        keys.contains(&key).then_some(())
    })
    .await;
    let shown: String = quorum.servers[0].told(&format!("GET {key}")).await;
    assert!(shown.contains(&format!(" {token} ")), "{shown}");
}

#[tokio::test]
async fn tokens_rise_through_the_loss_of_one_member_and_of_two() {
    let mut quorum = RedisQuorum::start_new(3).await.set_up(STORED_TTL).await;
    let stores: Vec<Arc<Quorum>> = (0..3)
        .map(|_| Arc::new(quorum.open_with(STORED_TTL)))
        .collect();
    let mut last = None;
    for lost in [&[][..], &[0], &[1], &[2, 0], &[1, 2]] {
        for member in lost {
            quorum.servers[*member].restart_empty().await;
        }
        for store in &stores {
            let token = until("a grant", async || {
                let claim = claim("a", STORED_TTL);
                match asked(&**store, &claim, LIMIT).await {
                    Ok(Answer::Granted(grant)) => {
                        released(&**store, &claim).await;
                        Some(grant.token)
                    }
                    _ => None,
                }
            });
            let token = Some(token.await);
            assert!(token > last, "{token:?} after {last:?} lost={lost:?}");
            last = token;
        }
    }
}

#[tokio::test]
async fn a_waiting_client_is_woken_by_a_release() {
    let mut quorum = RedisQuorum::start(3).await;
    // Also with a dead member.
    quorum.servers[1].kill();
    let client = async || {
        let store = quorum.open();
        leasehold::Client::builder()
            .store(store)
            .build()
            .await
            .expect("a client")
    };
    let (one, other) = (client().await, client().await);
    let lease = one.acquire("a").await.expect("it is free");
    let waiting = tokio::spawn(async move {
        let lease = other.acquire("a").await.expect("it is freed");
        let token = lease.token();
        lease.release().await;
        token
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let token = lease.token();
    lease.release().await;
    let next = tokio::time::timeout(LIMIT * 2, waiting).await;
    assert!(next.expect("woken").expect("no panic") > token);
}

/// Every later token of the client would come after it, on all members.
#[tokio::test]
async fn a_mark_of_one_member_that_is_far_ahead_lifts_no_token_beside_a_grant() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    next_token(&store, "a").await;
    let odd = &quorum.servers[2];
    let keys = odd.keys().await;
    let mark = keys.iter().find(|key| key.ends_with(":mark"));
    let mark = mark.expect("the mark of the slot");
    let ahead = 1_u64 << 52;
    let _: String = odd.told(&format!("SET {mark} {ahead}")).await;
    for _ in 0..20 {
        next_token(&store, "a").await;
    }
    let token = next_token(&store, "b").await;
    assert!(token.get() < ahead, "{token}");
}
