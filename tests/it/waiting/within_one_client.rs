//! The order among the waiters of one client, over a store that counts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Held;
use leasehold::{Client, ErrorKind, Lease, OutagePolicy};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::leases::{client, take};
use crate::harness::times::{LONG, PATIENCE, TTL};
use crate::harness::wait::{soon, until_so};

/// Waits for "a" in a task of its own.
fn acquiring(client: &Client) -> JoinHandle<Lease> {
    let client = client.clone();
    tokio::spawn(async move { client.acquire("a").await.unwrap() })
}

/// Returns once the first waiter has polled twice, before and after its subscription, and so is asleep.
async fn asleep(store: &FaultyStore, claims: usize) {
    until_so("the first waiter's second poll", async || {
        store.answers() >= claims + 2
    })
    .await;
}

#[tokio::test]
async fn a_freed_name_reaches_its_waiter_by_the_notice() {
    let store = FaultyStore::new();
    let (first, second) = (client(&store).await, client(&store).await);
    let lease = first
        .request("a")
        .ttl(Duration::from_secs(60))
        .acquire()
        .await
        .unwrap();
    let before = store.claims();
    let waiter = acquiring(&second);
    asleep(&store, before).await;
    let released = Monotonic.now();
    lease.release().await;
    drop(soon(waiter).await.unwrap());
    let took = Monotonic.now().since(released);
    // A poll by time only would come after the cap of five seconds.
    assert!(took < Duration::from_secs(2), "{took:?}");
    // The notice is the grant.
    assert!(store.claims() <= before + 4);
}

#[tokio::test]
async fn a_client_has_one_subscription_for_all_names() {
    let store = FaultyStore::new();
    let (first, second) = (client(&store).await, client(&store).await);
    let names: Vec<String> = (0..50).map(|index| format!("n{index}")).collect();
    let mut leases = Vec::new();
    for name in &names {
        leases.push(take(&first, name).await);
    }
    let waiters: Vec<_> = names
        .iter()
        .map(|name| {
            let (client, name) = (second.clone(), name.clone());
            tokio::spawn(async move { client.acquire(name).await.unwrap() })
        })
        .collect();
    until_so("all to wait", async || store.answers() >= 150).await;
    drop(leases);
    for waiter in waiters {
        drop(soon(waiter).await.unwrap());
    }
    assert_eq!(store.subscriptions(), 1);
}

#[tokio::test]
async fn a_thousand_waiters_do_not_poll_a_thousand_times_when_the_lease_runs_out() {
    let store = FaultyStore::new();
    let (dead, client) = (client(&store).await, client(&store).await);
    // Its holder is told to end, but keeps its guard: the lease is neither renewed nor released.
    let dying = dead.request("a").max_hold(TTL / 2);
    let lease = dying.acquire().await.unwrap();
    let waiters: Vec<_> = (0..1_000).map(|_| acquiring(&client)).collect();
    let before = store.claims();
    until_so("a grant to a waiter", async || {
        waiters.iter().any(JoinHandle::is_finished)
    })
    .await;
    let polls = store.claims() - before;
    assert!(polls < 20, "{polls} polls for one grant");
    waiters.iter().for_each(JoinHandle::abort);
    drop(lease);
}

#[tokio::test]
async fn waiters_of_one_client_are_served_in_the_order_in_which_they_came() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for index in 0..100 {
        let (client, served) = (client.clone(), served.clone());
        waiters.push(tokio::spawn(async move {
            let lease = client.acquire("a").await.unwrap();
            served.lock().unwrap().push(index);
            lease.release().await;
        }));
        // On this runtime a task that is spawned runs up to its first wait at the next yield.
        tokio::task::yield_now().await;
    }
    let before = store.claims();
    lease.release().await;
    for waiter in waiters {
        soon(waiter).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..100).collect::<Vec<_>>());
    let claims = store.claims() - before;
    assert!(claims < 250, "{claims} claims for 100 grants");
}

#[tokio::test]
async fn a_waiter_behind_one_that_was_granted_at_once_is_woken_by_the_release() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    // From then on it listens, and so polls by time only every few seconds.
    let held = take(&client, "b").await;
    let waiting = client.acquire_within("b", TTL / 4).await;
    assert_eq!(waiting.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(held);
    let started = Monotonic.now();
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let request = client.request("a").ttl(Duration::from_secs(60));
            tokio::spawn(async move { request.acquire().await.unwrap().release().await })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
    let took = Monotonic.now().since(started);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_woken_waiter_that_goes_away_passes_the_wake_on() {
    let store = FaultyStore::new();
    let (holder, client) = (client(&store).await, client(&store).await);
    let long = holder.request("a").ttl(Duration::from_secs(60));
    let lease = long.acquire().await.unwrap();
    let before = store.answers();
    let mut first = Box::pin(client.acquire("a"));
    let polled = async {
        loop {
            tokio::select! {
                _ = &mut first => unreachable!(),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            if store.answers() >= before + 2 {
                return;
            }
        }
    };
    soon(polled).await;
    let second = acquiring(&client);
    tokio::task::yield_now().await;
    let released = Monotonic.now();
    // The first one is woken, but never polled again.
    lease.release().await;
    until_so("the release", async || store.held("a").await.is_none()).await;
    assert!(!second.is_finished());
    drop(first);
    drop(soon(second).await.unwrap());
    let took = Monotonic.now().since(released);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_lost_notice_costs_no_more_than_the_cap() {
    let store = FaultyStore::new();
    let (holder, client) = (client(&store).await, client(&store).await);
    let long = holder.request("a").ttl(Duration::from_secs(60));
    let lease = long.acquire().await.unwrap();
    let before = store.claims();
    let waiter = acquiring(&client);
    asleep(&store, before).await;
    (store.faults).plan_always(Call::Notice, Fault::Unanswered);
    let released = Monotonic.now();
    lease.release().await;
    drop(soon(waiter).await.unwrap());
    let took = Monotonic.now().since(released);
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(store.claims(), before + 3, "one poll by time");
}

#[tokio::test]
async fn without_rights_to_notices_waiters_poll_by_time() {
    let store = FaultyStore::new();
    let denied = Fault::Fail(ErrorKind::Denied);
    store.faults.plan_always(Call::Subscribe, denied);
    let (holder, client) = (client(&store).await, client(&store).await);
    let lease = take(&holder, "a").await;
    let waiters: Vec<_> = (0..20).map(|_| acquiring(&client)).collect();
    let before = store.claims();
    until_so("a poll by time", async || store.claims() > before + 2).await;
    drop(lease);
    for waiter in waiters {
        drop(soon(waiter).await.unwrap());
    }
    assert_eq!(store.subscriptions(), 1, "it is refused once");
}

/// As of a busy server: the first notice was late once, and the store took it that none arrive.
#[tokio::test]
async fn notices_that_did_not_arrive_once_are_tried_again() {
    let store = FaultyStore::new();
    store.faults.plan(Call::Subscribe, Fault::Unanswered, 1);
    let holder = Client::builder().store(store.clone()).ttl(LONG).build();
    let holder = holder.await.expect("settings in order");
    let client = client(&store).await;
    let lease = take(&holder, "a").await;
    let waiter = acquiring(&client);
    let polls_within_a_second = async || {
        let before = store.claims();
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.claims() - before
    };
    // Ten a second, and later the five that show that the client is alive.
    assert!(polls_within_a_second().await > 6, "by time");
    let end = Monotonic.now().after(Duration::from_secs(20));
    while store.subscriptions() < 2 {
        assert!(Monotonic.now() < end, "they are not tried again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    polls_within_a_second().await;
    assert!(polls_within_a_second().await <= 6, "it polls by time still");
    lease.release().await;
    drop(soon(waiter).await.unwrap());
}

#[tokio::test]
async fn a_limited_wait_behind_others_ends_in_time_and_tells_who_had_the_name() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let _first = acquiring(&client);
    let before = store.claims();
    asleep(&store, before).await;
    let polls = store.claims();
    let started = Monotonic.now();
    let error = client.acquire_within("a", TTL / 8).await.unwrap_err();
    assert!(Monotonic.now().since(started) < PATIENCE);
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let source = std::error::Error::source(&error).unwrap();
    let held = source.downcast_ref::<Held>().expect("the facts");
    assert_eq!(held.by, Some(lease.holder()));
    assert_eq!(store.claims(), polls, "the first in line polls for all");
}

#[tokio::test]
async fn a_limited_wait_tells_held_from_unreachable() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let held = client.acquire_within("a", TTL / 8).await.unwrap_err();
    assert_eq!(held.kind(), ErrorKind::TimedOut);
    store.set_down(true);
    let patient = client.request("a").on_outage(OutagePolicy::WaitOut);
    let error = patient.acquire_within(TTL / 8).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    drop(lease);
}

#[tokio::test]
async fn an_outage_fails_those_who_say_so_at_once_and_the_others_wait_it_out() {
    let store = FaultyStore::new();
    let (holder, client) = (client(&store).await, client(&store).await);
    let lease = take(&holder, "a").await;
    let wait = |outage| {
        let request = client.request("a").on_outage(outage);
        tokio::spawn(request.acquire())
    };
    let hasty: Vec<_> = (0..50).map(|_| wait(OutagePolicy::Fail)).collect();
    let patient = wait(OutagePolicy::WaitOut);
    let before = store.claims();
    asleep(&store, before).await;
    let before = store.claims();
    store.set_down(true);
    for hasty in hasty {
        let error = soon(hasty).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert!(store.claims() - before < 10, "one poll fails for all");
    assert!(!patient.is_finished());
    store.set_down(false);
    drop(lease);
    drop(soon(patient).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_shutdown_ends_every_wait() {
    let store = FaultyStore::new();
    let (holder, client) = (client(&store).await, client(&store).await);
    let _lease = take(&holder, "a").await;
    let before = store.claims();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.acquire("a").await })
        })
        .collect();
    asleep(&store, before).await;
    assert!(soon(client.shutdown(PATIENCE)).await);
    for waiter in waiters {
        let error = soon(waiter).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
}

#[test]
fn a_waiter_is_served_after_the_runtime_of_the_one_before_it_is_gone() {
    let store = FaultyStore::new();
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (short, long) = (runtime(), runtime());
    let (lease, client) = short.block_on(async {
        let (holder, client) = (client(&store).await, client(&store).await);
        let request = holder.request("a").ttl(Duration::from_secs(60));
        (request.acquire().await.unwrap(), client)
    });
    let before = store.claims();
    let gone = short.block_on(async {
        let gone = acquiring(&client);
        asleep(&store, before).await;
        [gone]
    });
    let second = {
        let _long = long.enter();
        acquiring(&client)
    };
    drop((short, gone));
    let released = Monotonic.now();
    drop(lease);
    drop(long.block_on(soon(second)).unwrap());
    let took = Monotonic.now().since(released);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_task_that_joins_those_who_wait_hears_at_once_what_was_found() {
    let store = FaultyStore::new();
    let (holding, waiting) = (client(&store).await, client(&store).await);
    let request = holding.request("a").label("blue").ttl(LONG);
    let _lease = request.acquire().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (polls, mut seen) = watch::channel(None);
        let request = waiting.request("a").report_to(polls);
        tasks.spawn(request.acquire());
        // Long before the next poll.
        let heard = tokio::time::timeout(Duration::from_secs(2), seen.changed()).await;
        heard.expect("at once").unwrap();
        let held = seen.borrow().clone().unwrap().unwrap();
        assert_eq!(held.info.label.as_deref(), Some("blue"));
    }
}
