//! The queue of clients on a server: what a full server, the dead, the deaf, a clock and older versions do to those who wait.

use std::time::Duration;

use leasehold::store::redis::Redis;
use leasehold::store::{Answer, HeldState, Notice, Queued, Release, Store, Topic};

use super::wire::{HOLDER, lease_key, mark, queue, waiting};
use crate::harness::asking::{Asking, asked, claim, granted, held, next_token, queued, released};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{next_notice, now};

/// A store on a new server, and the holder of a name on it.
async fn held_name() -> (RedisServer, Redis, Asking) {
    let server = RedisServer::start().await;
    let store = Redis::open(&server.url()).unwrap();
    let holder = claim("a", LONG);
    granted(&store, &holder).await;
    (server, store, holder)
}

/// A claim whose place lasts for this long, of a client that says that it hears of a grant.
fn listening(term: Duration) -> Asking {
    let mut claim = queued("a", LONG);
    let mut asked = Queued::new(term).with_listens(true);
    asked.term = term;
    claim.ask.queued = Some(asked);
    claim
}

/// The number of clients before this one.
async fn ahead(store: &Redis, claim: &Asking) -> usize {
    held(store, claim).await.place.expect("a place").ahead
}

/// The holder of the name.
async fn by(store: &Redis, claim: &Asking) -> Option<leasehold::Holder> {
    let held = store.inspect(&claim.name, LIMIT).await.unwrap();
    held.and_then(|held| held.by)
}

async fn fill(server: &RedisServer) {
    let () = server.told("CONFIG SET maxmemory-policy noeviction").await;
    let () = server.told("CONFIG SET maxmemory 1").await;
}

#[tokio::test]
async fn a_full_server_sends_no_waiting_client_away() {
    let (server, store, first) = held_name().await;
    let (stands, comes) = (queued("a", LONG), queued("a", LONG));
    assert_eq!(ahead(&store, &stands).await, 0);
    fill(&server).await;
    assert_eq!(ahead(&store, &stands).await, 0, "it stands on");
    assert_eq!(ahead(&store, &comes).await, 1, "it joins");
    released(&store, &first).await;
    assert_eq!(by(&store, &first).await, Some(stands.holder), "handed over");
    granted(&store, &stands).await;
    let _: i64 = server.told("DEL leasehold:{a}").await;
    granted(&store, &comes).await;
    asked(&store, &claim("b", LONG), LIMIT)
        .await
        .expect_err("a claim that does not wait is refused");
    server.assert_all_keys_run_out().await;
}

/// Those of an older version have places that this one does not know of.
#[tokio::test]
async fn dead_clients_do_not_count_as_before_a_queued_one() {
    let (server, store, _first) = held_name().await;
    for place in 0..100 {
        let dead = format!("ZADD {} {place} dead{place}", queue("a"));
        let _: i64 = server.told(&dead).await;
    }
    let next = queued("a", LONG);
    held(&store, &next).await;
    assert_eq!(ahead(&store, &next).await, 0);
}

#[tokio::test]
async fn a_client_that_hears_nothing_is_passed_over_and_keeps_its_place() {
    let (server, store, first) = held_name().await;
    let (deaf, next) = (listening(LONG), queued("a", LONG));
    assert_eq!(ahead(&store, &deaf).await, 0);
    assert_eq!(ahead(&store, &next).await, 1);
    released(&store, &first).await;
    assert_eq!(by(&store, &first).await, Some(next.holder));
    assert_eq!(ahead(&store, &deaf).await, 0);
    released(&store, &next).await;
    assert_eq!(by(&store, &first).await, None, "nobody hears of it");
    granted(&store, &deaf).await;
    let other = queued("a", LONG);
    let again = listening(LONG);
    for claim in [&again, &other] {
        held(&store, claim).await;
    }
    let _: i64 = server.told("DEL leasehold:{a}").await;
    // Who asks need not be told.
    granted(&store, &again).await;
}

/// A node does not know who listens to the others.
#[tokio::test]
async fn no_client_is_passed_over_in_a_cluster() {
    let cluster = RedisCluster::start().await;
    let store = Redis::open(&cluster.url()).unwrap();
    let (first, deaf) = (claim("a", LONG), listening(LONG));
    granted(&store, &first).await;
    held(&store, &deaf).await;
    released(&store, &first).await;
    assert_eq!(by(&store, &first).await, Some(deaf.holder));
}

/// A late notice of an earlier grant would pass for one of this place.
#[tokio::test]
async fn the_height_is_the_mark_where_that_is_ahead_of_the_clock() {
    let (server, store, _first) = held_name().await;
    let ahead = 9_007_199_254_740_000_u64;
    let () = server.told(&format!("SET {} {ahead}", mark("a"))).await;
    let waits = queued("a", LONG);
    let height = async || held(&store, &waits).await.place.expect("a place").height;
    assert_eq!(height().await, ahead);
    let _: i64 = server.told(&format!("DEL {}", mark("a"))).await;
    let clock = u64::try_from(server.time_ms().await * 1_000).unwrap();
    assert!(height().await >= clock, "the clock at {clock}");
}

#[tokio::test]
async fn a_client_that_is_told_is_not_passed_over() {
    let (_server, store, first) = held_name().await;
    let (hears, other) = (listening(LONG), listening(LONG));
    let notices = store.notices().await.unwrap().expect("it has notices");
    let (name, client) = (hears.name.clone(), hears.holder.client());
    notices.follow(&Topic::Queue(name.clone(), client));
    assert_eq!(next_notice(&*notices).await, Notice::Freed(name));
    let height = held(&store, &hears).await.place.expect("a place").height;
    held(&store, &other).await;
    released(&store, &first).await;
    assert_eq!(by(&store, &first).await, Some(hears.holder));
    let Notice::Granted(handover) = next_notice(&*notices).await else {
        panic!("the notice of the grant");
    };
    assert_eq!(handover.holder, hears.holder);
    assert!(handover.token.get() > height);
}

#[tokio::test]
async fn a_thousand_dead_clients_are_passed_in_under_a_second() {
    for is_over in [false, true] {
        let (server, store, first) = held_name().await;
        let term = if is_over {
            Duration::from_millis(1)
        } else {
            LONG
        };
        for _ in 0..1_000 {
            held(&store, &listening(term)).await;
        }
        let next = queued("a", LONG);
        held(&store, &next).await;
        let begun = now();
        released(&store, &first).await;
        let took = now().since(begun);
        println!("passed in {took:?}, over: {is_over}");
        assert_eq!(by(&store, &first).await, Some(next.holder));
        assert!(took < Duration::from_secs(1), "{took:?}");
        server.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn a_client_whose_place_is_over_joins_the_end() {
    let (_server, store, _first) = held_name().await;
    let short = Duration::from_millis(50);
    let (late, other) = (listening(short), queued("a", LONG));
    assert_eq!(ahead(&store, &late).await, 0);
    assert_eq!(ahead(&store, &other).await, 1);
    tokio::time::sleep(short * 2).await;
    assert_eq!(ahead(&store, &late).await, 1);
}

/// A busy name would collect what each client that gave up left behind.
#[tokio::test]
async fn clients_that_give_up_leave_nothing_behind_on_a_busy_name() {
    let (server, store, _first) = held_name().await;
    let stays = queued("a", LONG);
    for _ in 0..50 {
        let leaves = listening(Duration::from_millis(1));
        held(&store, &stays).await;
        held(&store, &leaves).await;
        assert_eq!(released(&store, &leaves).await, Release::NotHeld);
    }
    for count in [
        format!("HLEN {}", waiting("a")),
        format!("ZCARD {}", queue("a")),
    ] {
        let left: i64 = server.told(&count).await;
        assert!(left < 5, "{count}: {left}");
    }
}

/// What it was granted for is counted from now on, also by a clock that was set back.
#[tokio::test]
async fn a_dead_client_costs_its_term_when_the_clock_was_set_back() {
    let server = Setup::default().with_clock().start().await;
    let store = Redis::open(&server.url()).unwrap();
    let (first, mut dead, next) = (claim("a", LONG), queued("a", LONG), queued("a", LONG));
    dead.ask.queued = Some(leasehold::store::Queued::new(LONG));
    granted(&store, &first).await;
    held(&store, &dead).await;
    server.step_clock(-3_600_000).await;
    held(&store, &next).await;
    let _: i64 = server.told("DEL leasehold:{a}").await;
    assert_eq!(held(&store, &next).await.by, Some(dead.holder));
    let left: i64 = server.told("PTTL leasehold:{a}").await;
    let term = dead.ask.queued.expect("it waits").term;
    assert!(left <= term.as_millis() as i64, "{left} ms of {term:?}");
}

#[tokio::test]
async fn who_may_not_publish_hands_over_all_the_same() {
    let (server, _store, first) = held_name().await;
    let () = server
        .told("ACL SETUSER worker on >secret ~leasehold:* +@all resetchannels")
        .await;
    let worker = Redis::open(&format!("{}?user=worker&pass=secret", server.url())).unwrap();
    let next = listening(LONG);
    held(&worker, &next).await;
    assert_eq!(released(&worker, &first).await, Release::Released);
    assert_eq!(by(&worker, &first).await, Some(next.holder));
}

/// The place waits for a claim with another floor, which the client has by then.
#[tokio::test]
async fn a_claim_whose_floor_is_refused_is_told_so_and_holds_no_other_up() {
    let (server, store, first) = held_name().await;
    let next = queued("a", LONG);
    let years_ahead = leasehold::Token::new(9_000_000_000_000_000).unwrap();
    let refused = queued("a", LONG).with_floor(years_ahead);
    held(&store, &refused).await;
    held(&store, &next).await;
    released(&store, &first).await;
    assert_eq!(by(&store, &first).await, Some(next.holder));
    released(&store, &next).await;
    asked(&store, &refused, LIMIT)
        .await
        .expect_err("a floor years ahead");
    granted(&store, &claim("a", LONG)).await;
    server.assert_all_keys_run_out().await;
}

/// Leases exclude; turns do not: each version knows only of its own clients that wait.
#[tokio::test]
async fn leases_of_the_first_version_and_of_this_one_exclude_each_other() {
    let (server, store, first) = held_name().await;
    let taken = format!("{HOLDER} 7 {{\"host\":\"h\",\"pid\":1}}");
    let set = |value: &str| {
        format!(
            "SET {} {} NX PX 30000",
            lease_key("a"),
            value.replace(' ', "_")
        )
    };
    let refused: Option<String> = server.told(&set(&taken)).await;
    assert_eq!(
        refused, None,
        "the first version finds a lease in its own form"
    );
    let next = queued("a", LONG);
    held(&store, &next).await;
    let client = &HOLDER[..32];
    for line in [
        format!("ZADD {} 1 {client}", queue("a")),
        format!("HSET leasehold:{{a}}:alive {client} 9999999999999"),
    ] {
        let _: i64 = server.told(&line).await;
    }
    released(&store, &first).await;
    assert_eq!(by(&store, &first).await, Some(next.holder), "of its own");
    released(&store, &next).await;

    let mut connection = server.connect().await.unwrap();
    let mut write = async |value: &str| {
        let mut set = deadpool_redis::redis::cmd("SET");
        set.arg(lease_key("a")).arg(value).arg("PX").arg(30_000);
        let () = set.query_async(&mut connection).await.unwrap();
    };
    write(&taken).await;
    let refused = held(&store, &claim("a", LONG)).await;
    assert_eq!(refused.by.map(|by| by.to_string()).as_deref(), Some(HOLDER));
    assert!(store.inspect(&first.name, LIMIT).await.unwrap().is_some());
    assert_eq!(released(&store, &claim("a", LONG)).await, Release::NotHeld);

    // What it keeps for one of its waiting clients is no lease.
    write(&format!("offer {client}")).await;
    assert!(store.inspect(&first.name, LIMIT).await.unwrap().is_none());
    assert_eq!(released(&store, &first).await, Release::NotHeld);
    next_token(&store, "a").await;
}

/// A server that keeps out grants a name only to who asks.
#[tokio::test]
async fn a_release_on_a_server_that_keeps_out_has_the_first_client_ask() {
    let (server, store, first) = held_name().await;
    let _: i64 = server
        .told("HSET leasehold:node keep_out 60000 ready 0")
        .await;
    let (deaf, hears) = (listening(LONG), listening(LONG));
    let notices = store.notices().await.unwrap().expect("it has notices");
    let name = first.name.clone();
    notices.follow(&Topic::Queue(name.clone(), hears.holder.client()));
    assert_eq!(next_notice(&*notices).await, Notice::Freed(name.clone()));
    for claim in [&deaf, &hears] {
        let held = held(&store, claim).await;
        // The first claim finds out that the server may have lost its data.
        assert_eq!(held.state, HeldState::KeepOut);
    }
    released(&store, &first).await;
    assert_eq!(by(&store, &first).await, None);
    assert_eq!(next_notice(&*notices).await, Notice::Freed(name));
    let _: i64 = server.told("HSET leasehold:node ready 0").await;
    let answer = asked(&store, &hears, LIMIT).await.unwrap();
    assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
}
