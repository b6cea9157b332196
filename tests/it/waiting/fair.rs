//! Clients that take turns, over a store that counts.

use std::sync::{Arc, Mutex};

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Queued;
use leasehold::{Attempt, Client, Lease, WaitOrder};
use tokio::task::{JoinHandle, JoinSet};

use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::leases::client;
use crate::harness::times::LONG;
use crate::harness::wait::{soon, until_so};

/// Waits for "a" in turn, in a task of its own.
fn fair_waiter(client: &Client) -> JoinHandle<Lease> {
    let request = client.request("a").order(WaitOrder::Fair).ttl(LONG);
    tokio::spawn(async move { request.acquire().await.unwrap() })
}

/// A holder, and so many clients that wait in turn, each before the next.
async fn line_of<const N: usize>(store: &FaultyStore) -> (Lease, [(Client, JoinHandle<Lease>); N]) {
    let holder = client(store).await;
    let lease = holder.request("a").ttl(LONG).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..N {
        let client = client(store).await;
        let claims = store.claims();
        let waiter = fair_waiter(&client);
        until_so("the client to wait", async || store.claims() >= claims + 2).await;
        waiters.push((client, waiter));
    }
    (lease, waiters.try_into().unwrap())
}

#[tokio::test]
async fn clients_are_served_in_the_order_in_which_they_joined() {
    let store = FaultyStore::new();
    let (mut lease, waiters) = line_of::<5>(&store).await;
    for (_, waiter) in waiters {
        let started = Monotonic.now();
        lease.release().await;
        lease = soon(waiter).await.unwrap();
        let took = Monotonic.now().since(started);
        assert!(took < Queued::OFFER, "nobody was passed over: {took:?}");
    }
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
                let request = client.request("a").order(WaitOrder::Fair).ttl(LONG);
                let lease = request.acquire().await.unwrap();
                served.lock().unwrap().push(index);
                lease.release().await;
            });
        }
        clients.push(client);
    }
    until_so("all clients to stand in line", async || store.claims() >= 7).await;
    let claims = store.claims();
    lease.release().await;
    soon(tasks.join_all()).await;
    let served = served.lock().unwrap();
    // As long as all three wait, they take turns.
    for turn in served[..15].chunks_exact(3) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2], "{served:?}");
    }
    // The claims that took the turns, and a few that waited.
    let claims = store.claims() - claims;
    assert!(claims < 60, "{claims} claims for 35 grants");
}

#[tokio::test]
async fn neither_a_try_nor_a_plain_wait_overtakes_a_queued_client() {
    let store = FaultyStore::new();
    let (lease, [(_, first)]) = line_of(&store).await;
    let other = client(&store).await;
    let plain = tokio::spawn({
        let other = other.clone();
        async move { other.acquire("a").await.unwrap() }
    });
    let before = store.claims();
    let hammering = tokio::spawn(async move {
        loop {
            if let Attempt::Acquired(lease) = other.try_acquire("a").await.unwrap() {
                return lease;
            }
        }
    });
    until_so("a hundred tries", async || store.claims() > before + 100).await;
    lease.release().await;
    let lease = soon(first).await.unwrap();
    assert!(!plain.is_finished() && !hammering.is_finished());
    lease.check().unwrap();
    plain.abort();
    lease.release().await;
    drop(soon(hammering).await.unwrap());
}

#[tokio::test]
async fn a_waiter_that_joins_while_its_client_leaves_the_queue_is_in_it_at_once() {
    let store = FaultyStore::new();
    let (lease, [(client, gone)]) = line_of(&store).await;
    (store.faults).plan_always(Call::Leave, Fault::Wait);
    gone.abort();
    until_so("its leaving to begin", async || store.leaves_begun() == 1).await;
    let answers = store.answers();
    let joined = fair_waiter(&client);
    until_so("the client to wait again", async || {
        store.answers() > answers
    })
    .await;
    // The client is taken out of the line, and who joined with it.
    store.faults.heal(Call::Leave);
    until_so("its leaving", async || store.leaves() == 1).await;
    let started = Monotonic.now();
    lease.release().await;
    drop(soon(joined).await.unwrap());
    let took = Monotonic.now().since(started);
    assert!(took < Queued::OFFER, "not by its patience: {took:?}");
}

#[tokio::test]
async fn a_client_whose_last_waiter_goes_away_leaves_the_queue() {
    let store = FaultyStore::new();
    let (lease, [(_, gone), (_, second)]) = line_of(&store).await;
    gone.abort();
    until_so("its leaving", async || store.leaves() == 1).await;
    let started = Monotonic.now();
    lease.release().await;
    drop(soon(second).await.unwrap());
    let took = Monotonic.now().since(started);
    assert!(took < Queued::OFFER, "{took:?}");
}

#[tokio::test]
async fn a_waiter_that_leaves_at_its_turn_passes_it_to_its_clients_next() {
    let store = FaultyStore::new();
    let (lease, [(client, gone), (_, other)]) = line_of(&store).await;
    let second = fair_waiter(&client);
    tokio::task::yield_now().await;
    gone.abort();
    tokio::task::yield_now().await;
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
    assert_eq!(store.leaves(), 1, "the process may end now");
    let started = Monotonic.now();
    lease.release().await;
    drop(soon(second).await.unwrap());
    let took = Monotonic.now().since(started);
    assert!(took < Queued::OFFER, "{took:?}");
}

#[tokio::test]
async fn a_queued_client_that_hears_nothing_is_served_all_the_same() {
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
    let given_up = fair_waiter(&gone);
    until_so("its claim to be carried out", async || {
        store.withheld() == 1
    })
    .await;
    given_up.abort();
    store.faults.heal(Call::Acquire);
    until_so("the line to be left", async || store.leaves() == 1).await;
    let next = client(&store).await;
    let claims = store.claims();
    let waiting = fair_waiter(&next);
    until_so("the next to wait", async || store.claims() >= claims + 2).await;
    let started = Monotonic.now();
    lease.release().await;
    drop(soon(waiting).await.unwrap());
    let took = Monotonic.now().since(started);
    assert!(took < Queued::OFFER, "a ghost was offered it: {took:?}");
}
