//! Permits, shared names, leaders, jobs that run once, and the client without async, through the public API.
//!
//! `stores` has what holds on every store. The rest is tried in memory, where each request can be held back.

mod limits;
pub(crate) mod stores;
mod work;

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::rusqlite::Fence;
use leasehold::store::memory::Memory;
use leasehold::store::{self, Store};
use leasehold::{Attempt, Client, ErrorKind, Lease, LeaseRequest, Name, OutagePolicy};

use crate::harness::faulty_store::{Call, DOWN, Fault, FaultyStore};
use crate::harness::leases::{client, client_at, until_free};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LONG, PATIENCE};
use crate::harness::wait::{now, soon, until_so};

/// A client with leases that no test outlives.
async fn client_of(store: &(impl Store + Clone)) -> Client {
    let builder = Client::builder().store(store.clone()).ttl(LONG);
    builder.build().await.unwrap()
}

async fn try_take(request: LeaseRequest) -> Option<Lease> {
    match request.try_acquire().await.unwrap() {
        Attempt::Acquired(lease) => Some(lease),
        Attempt::Held(_) => None,
    }
}

#[tokio::test]
async fn a_try_takes_each_permit_that_is_free_and_then_says_who_has_one() {
    let client = client_of(&Memory::new()).await;
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(
            try_take(client.permits("gpu", 5))
                .await
                .expect("one is free"),
        );
    }
    permits.sort_unstable_by_key(Lease::permit);
    let names = permits.iter().map(|permit| permit.name().as_str());
    let names: Vec<_> = names.collect();
    assert_eq!(names, ["gpu#1", "gpu#2", "gpu#3", "gpu#4", "gpu#5"]);
    let numbers: Vec<_> = permits.iter().filter_map(Lease::permit).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let Attempt::Held(held) = client.permits("gpu", 5).try_acquire().await.unwrap() else {
        panic!("a sixth of five");
    };
    assert!(held.name.as_str().starts_with("gpu#"), "{held:?}");
}

#[tokio::test]
async fn a_try_does_not_overtake_a_client_that_waits() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let permit = first.permits("gpu", 1).acquire().await.unwrap();
    let waiting = tokio::spawn(second.permits("gpu", 1).acquire());
    until_so("the waiter to have the door", async || {
        let door = Name::new("gpu").unwrap();
        store.inspect(&door, PATIENCE).await.unwrap().is_some()
    })
    .await;
    assert!(try_take(first.permits("gpu", 1)).await.is_none());
    permit.release().await;
    assert!(try_take(first.permits("gpu", 1)).await.is_none());
    drop(soon(waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn an_uncontended_permit_costs_one_claim_and_leaves_the_door_alone() {
    let store = FaultyStore::new();
    let client = client_of(&store).await;
    let claims = store.claims();
    let permit = client.permits("gpu", 4).acquire().await.unwrap();
    assert_eq!(store.claims() - claims, 1);
    permit.release().await;
    until_free(&store, "gpu").await;
}

#[tokio::test]
async fn a_client_with_many_waiting_tasks_takes_as_many_permits_at_one_turn() {
    let store = FaultyStore::new();
    let (holder, waiting) = (client_of(&store).await, client_of(&store).await);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(holder.permits("gpu", 4).acquire().await.unwrap());
    }
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        tasks.spawn(waiting.permits("gpu", 4).acquire());
    }
    until_so("one of them to have the door", async || {
        store.held("gpu").await.is_some()
    })
    .await;
    // So that the check of the one that has the door finds all free.
    store.faults.plan_always(Call::Inspect, Fault::Wait);
    for permit in held {
        permit.release().await;
    }
    store.faults.heal(Call::Inspect);
    let permits = soon(tasks.join_all()).await;
    let names: std::collections::BTreeSet<_> = permits
        .iter()
        .map(|permit| permit.as_ref().unwrap().name().clone())
        .collect();
    assert_eq!(names.len(), 4);
}

#[tokio::test]
async fn bad_numbers_of_permits_and_names_without_room_are_refused() {
    let client = client_of(&Memory::new()).await;
    for count in [0, 257] {
        let error = client.permits("gpu", count).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("1 to 256"), "{error}");
    }
    let long = "n".repeat(Name::MAX_BYTES);
    let error = client.shared(long).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_wait_for_a_permit_ends_at_its_limit_and_leaves_the_door() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let _permit = first.permits("gpu", 1).acquire().await.unwrap();
    let limit = Duration::from_millis(150);
    let error = second
        .permits("gpu", 1)
        .acquire_within(limit)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    until_free(&store, "gpu").await;
}

#[tokio::test]
async fn a_dead_waiter_frees_the_door_and_the_next_is_served() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let permit = first.permits("gpu", 1).acquire().await.unwrap();
    // It has the door, and its future is dropped.
    let dying = second
        .permits("gpu", 1)
        .acquire_within(Duration::from_secs(60));
    drop(tokio::time::timeout(Duration::from_millis(100), dying).await);
    permit.release().await;
    drop(soon(first.permits("gpu", 1).acquire()).await.unwrap());
}

/// Its claim behind the door fails, and then its caller does not poll it: its checks are in no other task's way.
#[tokio::test]
async fn a_taker_that_pauses_after_a_failure_is_in_no_other_tasks_way() {
    let store = FaultyStore::new();
    let (holder, client) = (client_of(&store).await, client_of(&store).await);
    let request = |client: &Client| {
        let request = client.permits("gpu", 2);
        request.on_outage(OutagePolicy::WaitOut).acquire()
    };
    let one = request(&holder).await.unwrap();
    let other = request(&holder).await.unwrap();
    let mut first = Box::pin(request(&client));
    let waits = tokio::time::timeout(Duration::from_millis(100), &mut first).await;
    waits.expect_err("both are taken");
    store.faults.plan(Call::Acquire, DOWN, 1);
    one.release().await;
    tokio::select! {
        taken = &mut first => panic!("{taken:?}"),
        () = until_so("its claim to fail", async || store.faults.met() > 0) => {}
    }
    until_free(&store, "gpu").await;
    let _one = soon(request(&holder)).await.unwrap();
    let second = tokio::spawn(request(&client));
    tokio::time::sleep(Duration::from_millis(100)).await;
    other.release().await;
    drop(soon(second).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_least_hold_of_a_permit_keeps_the_permit_and_not_the_door() {
    let store = Memory::new();
    let client = client_of(&store).await;
    let permit = client.permits("gpu", 1).hold_at_least(LONG);
    permit.acquire().await.unwrap().release().await;
    assert!(try_take(client.permits("gpu", 1)).await.is_none());
    assert!(try_take(client.request("gpu")).await.is_some());
}

#[tokio::test]
async fn readers_share_a_writer_waits_for_them_and_new_readers_wait_for_it() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let readers = [
        first.shared("config").acquire().await.unwrap(),
        second.shared("config").acquire().await.unwrap(),
    ];
    assert!(try_take(second.exclusive("config")).await.is_none());
    until_free(&store, "config").await;
    let writing = tokio::spawn(second.exclusive("config").acquire());
    until_so("the writer to have the door", async || {
        let door = Name::new("config").unwrap();
        store.inspect(&door, PATIENCE).await.unwrap().is_some()
    })
    .await;
    assert!(try_take(first.shared("config")).await.is_none());
    let [one, other] = readers;
    one.release().await;
    assert!(!writing.is_finished());
    other.release().await;
    let writer = soon(writing).await.unwrap().unwrap();
    assert_eq!(writer.name().as_str(), "config");
    assert_eq!(writer.permit(), None);
    let reading = tokio::spawn(first.shared("config").acquire());
    writer.release().await;
    drop(soon(reading).await.unwrap().unwrap());
}

/// The reader stands between its claim and its check of the door, while a writer comes in.
#[tokio::test]
async fn a_reader_that_is_paused_before_its_check_gives_way_to_a_writer() {
    let store = FaultyStore::new();
    let (one, other) = (client_of(&store).await, client_of(&store).await);
    store.faults.plan_always(Call::Inspect, Fault::Wait);
    let reading = tokio::spawn(one.shared("config").acquire());
    until_so("the reader's claim", async || store.answers() > 0).await;
    let writing = tokio::spawn(other.exclusive("config").acquire());
    until_so("the writer to have the door", async || store.answers() > 1).await;
    store.faults.heal(Call::Inspect);
    let writer = soon(writing).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!reading.is_finished(), "a reader beside a writer");
    writer.check().unwrap();
    writer.release().await;
    drop(soon(reading).await.unwrap().unwrap());
}

/// The writer loses its door while it waits for a reader: its checks from before do not count.
#[tokio::test]
async fn a_writer_whose_door_is_lost_begins_again() {
    let store = FaultyStore::new();
    let (one, other) = (client_of(&store).await, client(&store).await);
    let reader = one.shared("config").acquire().await.unwrap();
    let request = other.exclusive("config").acquire();
    let writing = tokio::spawn(request);
    until_so("the writer to have the door", async || {
        store.held("config").await.is_some()
    })
    .await;
    let door = store.held("config").await.and_then(|held| held.token);
    // As a pause past its ttl does: no renewal is confirmed in time.
    store.faults.plan_always(Call::Renew, Fault::Hang);
    until_so("the door to be lost and granted again", async || {
        let held = store.held("config").await;
        held.is_some_and(|held| held.token != door)
    })
    .await;
    store.faults.heal(Call::Renew);
    reader.release().await;
    let writer = soon(writing).await.unwrap().unwrap();
    writer.check().unwrap();
    assert!(try_take(one.shared("config")).await.is_none());
}

#[tokio::test]
async fn a_fenced_reader_leaves_the_door_to_the_next() {
    let store = Memory::new();
    let client = client_of(&store).await;
    let fenced = || client.request("config").shared_fenced();
    let one = fenced().acquire().await.unwrap();
    let other = fenced().acquire().await.unwrap();
    assert!(other.pass().unwrap().token > one.pass().unwrap().token);
    assert_ne!(one.name(), other.name());
    until_free(&store, "config").await;
    assert!(try_take(client.exclusive("config")).await.is_none());
}

/// The later reader has the greater token, so the earlier one is refused if it raises after it. No earlier writer can
/// write from then on, so it reads all the same.
#[tokio::test]
async fn a_fenced_reader_refused_for_a_later_one_is_as_safe_from_late_writers() {
    let client = client_of(&Memory::new()).await;
    for (name, order) in [("in-turn", [0, 1]), ("overtaken", [1, 0])] {
        let mut database = rusqlite::Connection::open_in_memory().unwrap();
        let fence = Fence::new(name).unwrap();
        fence.create_table(&database).unwrap();
        let writer = client.exclusive(name).acquire().await.unwrap();
        let late = writer.pass().unwrap();
        writer.release().await;
        let fenced = || client.request(name).shared_fenced().acquire();
        let readers = [fenced().await.unwrap(), fenced().await.unwrap()];
        for reader in order {
            let raised = fence.begin(&mut database, &readers[reader]);
            let refused = raised.map(|raised| raised.commit().unwrap()).err();
            let refused = refused.map(|error| error.kind());
            assert_eq!(refused, (reader < order[0]).then_some(ErrorKind::Stale));
            readers[reader].check().unwrap();
        }
        let refused = fence.begin(&mut database, &late).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Stale);
    }
}

/// The server forgets both leases while the writer waits for the reader. It keeps out, so neither is told for a while.
#[tokio::test]
async fn a_writer_is_not_alone_when_the_server_forgot_its_door_and_the_reader() {
    let mut server = RedisServer::start().await;
    let url = format!("{}?max_ttl=60s", server.url());
    let one = client_at(&url, LONG).await;
    let kept_out = one.try_acquire("config").await.unwrap();
    assert!(matches!(kept_out, Attempt::Held(_)));
    let _: i64 = server.told("HSET leasehold:node ready 0").await;
    let reader = one.shared("config").acquire().await.unwrap();
    let store = FaultyStore::over(store::open(&url).await.unwrap());
    let other = client_of(&store).await;
    let request = other.exclusive("config").on_outage(OutagePolicy::WaitOut);
    store.faults.plan_always(Call::Inspect, Fault::Wait);
    let mut writing = tokio::spawn(request.acquire());
    until_so("the writer to check", async || store.faults.met() > 0).await;
    server.restart_empty().await;
    store.faults.heal(Call::Inspect);
    let alone = tokio::time::timeout(Duration::from_secs(2), &mut writing).await;
    reader.check().unwrap();
    assert!(alone.is_err(), "a reader beside a writer: {alone:?}");
    writing.abort();
}

/// The four kinds of requests in a pool whose callers wait.
const KINDS: [&str; 4] = ["permit", "share", "fenced share", "alone"];

fn of_kind(client: &Client, kind: &str) -> LeaseRequest {
    match kind {
        "permit" => client.permits("gpu", 64),
        "share" => client.shared("gpu"),
        "fenced share" => client.request("gpu").shared_fenced(),
        _ => client.exclusive("gpu"),
    }
}

/// A store each of whose answers takes this long.
fn slow(memory: Memory, by_ms: u64) -> FaultyStore {
    let store = FaultyStore::over(Arc::new(memory));
    for call in [Call::Acquire, Call::Inspect, Call::Release] {
        store.faults.plan_always(call, Fault::Slow(by_ms));
    }
    store
}

#[tokio::test]
async fn a_call_of_a_pool_ends_at_its_limit_though_its_store_is_silent() {
    for call in [Call::Acquire, Call::Inspect] {
        for kind in KINDS {
            let store = FaultyStore::new();
            let client = client_of(&store).await;
            store.faults.plan_always(call, Fault::Hang);
            let began = now();
            let limit = Duration::from_millis(300);
            let acquired = of_kind(&client, kind).acquire_within(limit).await;
            let took = now().since(began);
            assert_eq!(
                acquired.unwrap_err().kind(),
                ErrorKind::TimedOut,
                "{kind} {call:?}"
            );
            assert!(
                took < limit + Duration::from_millis(500),
                "{kind} {call:?}: {took:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_call_of_a_full_pool_on_a_slow_store_ends_at_its_limit() {
    let memory = Memory::new();
    let holder = client_of(&memory).await;
    let mut permits = Vec::new();
    for _ in 0..64 {
        permits.push(try_take(holder.permits("gpu", 64)).await.expect("free"));
    }
    let limit = Duration::from_millis(500);
    let store = slow(memory, 200);
    let client = client_of(&store).await;
    let began = now();
    let refused = client
        .permits("gpu", 64)
        .acquire_within(limit)
        .await
        .unwrap_err();
    let took = now().since(began);
    assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused:?}");
    let source = std::error::Error::source(&refused).expect("the holder");
    assert!(source.is::<store::Held>(), "{refused:?}");
    assert!(took < limit + Duration::from_millis(500), "{took:?}");
}

#[tokio::test]
async fn a_limit_of_zero_grants_what_is_free() {
    for kind in KINDS {
        let store = slow(Memory::new(), 10);
        let client = client_of(&store).await;
        let acquired = of_kind(&client, kind).acquire_within(Duration::ZERO).await;
        let lease = acquired.unwrap_or_else(|error| panic!("{kind}: {error}"));
        lease.release().await;
    }
}
