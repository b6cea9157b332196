//! Clients that take turns, over a store that counts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Queued;
use leasehold::{Attempt, Client, Lease, LeaseRequest};
use tokio::task::{JoinHandle, JoinSet};

use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::leases::client;
use crate::harness::times::LONG;
use crate::harness::wait::{soon, until_so};

/// Far less than a client costs that is dead at its turn.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Waits for "a", in a task of its own.
fn waiter(client: &Client) -> JoinHandle<Lease> {
    waiter_by(client.request("a").ttl(LONG))
}

fn waiter_by(request: LeaseRequest) -> JoinHandle<Lease> {
    tokio::spawn(async move { request.acquire().await.unwrap() })
}

/// A holder, and so many clients that wait, each before the next.
async fn line_of<const N: usize>(store: &FaultyStore) -> (Lease, [(Client, JoinHandle<Lease>); N]) {
    let holder = client(store).await;
    let lease = holder.request("a").ttl(LONG).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..N {
        let client = client(store).await;
        let waiter = begin_to_wait(store, client.request("a").ttl(LONG)).await;
        waiters.push((client, waiter));
    }
    (lease, waiters.try_into().unwrap())
}

/// Begins to wait for "a". The client has a place, and hears of a grant at once.
async fn begin_to_wait(store: &FaultyStore, request: LeaseRequest) -> JoinHandle<Lease> {
    let answers = store.answers();
    let waiter = waiter_by(request);
    until_so("the client to wait", async || {
        store.answers() >= answers + 2
    })
    .await;
    waiter
}

/// Releases the lease. The waiter is granted the name at once.
async fn hand_over(lease: Lease, waiter: JoinHandle<Lease>) -> Lease {
    let started = Monotonic.now();
    lease.release().await;
    let next = soon(waiter).await.unwrap();
    let took = Monotonic.now().since(started);
    assert!(took < AT_ONCE, "nobody was passed over: {took:?}");
    next
}

#[tokio::test]
async fn clients_are_served_in_the_order_in_which_they_joined() {
    let store = FaultyStore::new();
    let (mut lease, waiters) = line_of::<5>(&store).await;
    for (_, waiter) in waiters {
        lease = hand_over(lease, waiter).await;
    }
}

#[tokio::test]
async fn a_name_that_is_handed_over_is_held_without_a_further_claim() {
    let store = FaultyStore::new();
    let (lease, [(_, waiter)]) = line_of(&store).await;
    (store.faults).plan_always(Call::Acquire, Fault::Unanswered);
    (store.faults).plan_always(Call::Renew, Fault::Wait);
    let lease = hand_over(lease, waiter).await;
    // For the rest of the term of its place, and then for its ttl.
    assert!(lease.remaining() <= Queued::LONGEST_TERM);
    (store.faults).heal(Call::Renew);
    until_so("its renewal", async || {
        lease.remaining() > Queued::LONGEST_TERM
    })
    .await;
    lease.check().unwrap();
}

#[tokio::test]
async fn a_request_that_is_to_be_confirmed_begins_with_its_whole_ttl() {
    let store = FaultyStore::new();
    let (lease, []) = line_of(&store).await;
    let other = client(&store).await;
    let request = other.request("a").ttl(LONG).confirmed();
    let waiting = begin_to_wait(&store, request).await;
    let lease = hand_over(lease, waiting).await;
    assert!(lease.remaining() > LONG / 2, "{:?}", lease.remaining());
}

#[tokio::test]
async fn a_client_whose_notices_are_no_proof_asks_before_it_holds() {
    let store = FaultyStore::new();
    let facts = store.own_facts().with_trusted_notices(false);
    let store = store.with_facts(facts);
    let (lease, [(_, waiter)]) = line_of(&store).await;
    let lease = hand_over(lease, waiter).await;
    assert!(lease.remaining() > LONG / 2, "{:?}", lease.remaining());
}

#[tokio::test]
async fn every_client_gets_its_share_however_many_wait_in_it() {
    let store = FaultyStore::new();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    let (lease, []) = line_of(&store).await;
    for (index, waiters) in [20, 5, 10].into_iter().enumerate() {
        let client = client(&store).await;
        for _ in 0..waiters {
            let (client, served) = (client.clone(), served.clone());
            tasks.spawn(async move {
                let request = client.request("a").ttl(LONG);
                let lease = request.acquire().await.unwrap();
                served.lock().unwrap().push(index);
                lease.release().await;
            });
        }
        clients.push(client);
    }
    until_so("all clients to stand in line", async || {
        store.answers() >= 7
    })
    .await;
    let claims = store.claims();
    lease.release().await;
    soon(tasks.join_all()).await;
    let served = served.lock().unwrap();
    // As long as all three wait, they take turns; the next caller of a client joins once the one before it was served.
    for index in 0..3 {
        let turns = served[..15].iter().filter(|turn| **turn == index).count();
        assert!(turns >= 3, "{index}: {served:?}");
    }
    // The claims that joined the queue again, and a few that waited.
    let claims = store.claims() - claims;
    assert!(claims < 60, "{claims} claims for 35 grants");
}

#[tokio::test]
async fn no_try_overtakes_a_client_that_waits() {
    let store = FaultyStore::new();
    let (lease, [(_, first)]) = line_of(&store).await;
    let other = client(&store).await;
    let before = store.claims();
    let hammering = tokio::spawn(async move {
        loop {
            let attempt = other.request("a").ttl(LONG).try_acquire();
            if let Attempt::Acquired(lease) = attempt.await.unwrap() {
                return lease;
            }
        }
    });
    until_so("a hundred tries", async || store.claims() > before + 100).await;
    lease.release().await;
    let lease = soon(first).await.unwrap();
    assert!(!hammering.is_finished());
    lease.check().unwrap();
    lease.release().await;
    drop(soon(hammering).await.unwrap());
}

#[tokio::test]
async fn a_caller_that_joins_while_its_client_leaves_keeps_the_place() {
    let store = FaultyStore::new();
    let (lease, [(client, gone), (_, other)]) = line_of(&store).await;
    (store.faults).plan_always(Call::Release, Fault::Wait);
    gone.abort();
    until_so("its release to begin", async || store.faults.met() > 0).await;
    let answers = store.answers();
    let joined = waiter(&client);
    until_so("the client to wait again", async || {
        store.answers() > answers
    })
    .await;
    store.faults.heal(Call::Release);
    let lease = hand_over(lease, joined).await;
    assert!(!other.is_finished());
    drop(lease);
    drop(soon(other).await.unwrap());
}

#[tokio::test]
async fn a_client_whose_last_waiter_goes_away_leaves_the_queue() {
    let store = FaultyStore::new();
    let (lease, [(_, gone), (_, second)]) = line_of(&store).await;
    gone.abort();
    until_so("one client to be left", async || {
        waiting(&lease, &store).await == 1
    })
    .await;
    drop(hand_over(lease, second).await);
}

/// How many clients wait.
async fn waiting(lease: &Lease, store: &FaultyStore) -> usize {
    let held = leasehold::store::Store::inspect(store, lease.name(), LONG).await;
    held.unwrap().unwrap().waiting.unwrap()
}

#[tokio::test]
async fn a_waiter_that_leaves_at_its_turn_passes_it_to_its_clients_next() {
    let store = FaultyStore::new();
    let (lease, [(client, gone), (_, other)]) = line_of(&store).await;
    let second = waiter(&client);
    tokio::task::yield_now().await;
    let answers = store.answers();
    gone.abort();
    until_so("the next to take the place", async || {
        store.answers() > answers
    })
    .await;
    lease.release().await;
    let lease = soon(second).await.unwrap();
    assert!(!other.is_finished());
    lease.release().await;
    drop(soon(other).await.unwrap());
}

#[tokio::test]
async fn a_shutdown_leaves_the_queue() {
    let store = FaultyStore::new();
    let (lease, [(gone, _waiter), (_, second)]) = line_of(&store).await;
    assert!(soon(gone.shutdown(LONG)).await);
    assert_eq!(waiting(&lease, &store).await, 1, "the process may end now");
    drop(hand_over(lease, second).await);
}

#[tokio::test]
async fn a_client_in_the_queue_that_hears_nothing_is_served_all_the_same() {
    let store = FaultyStore::new();
    let (lease, [(_, first)]) = line_of(&store).await;
    (store.faults).plan_always(Call::Notice, Fault::Unanswered);
    lease.release().await;
    drop(soon(first).await.unwrap());
}

#[tokio::test]
async fn a_wait_that_is_given_up_before_its_first_answer_leaves_the_queue() {
    let store = FaultyStore::new();
    let (lease, []) = line_of(&store).await;
    let gone = client(&store).await;
    (store.faults).plan_always(Call::Acquire, Fault::Unanswered);
    let given_up = waiter(&gone);
    until_so("its claim to be carried out", async || {
        store.withheld() == 1
    })
    .await;
    given_up.abort();
    store.faults.heal(Call::Acquire);
    until_so("the queue to be left", async || {
        waiting(&lease, &store).await == 0
    })
    .await;
    let next = client(&store).await;
    let waiting = begin_to_wait(&store, next.request("a").ttl(LONG)).await;
    drop(hand_over(lease, waiting).await);
}
