//! The watchdog's thread, when it does not start and when it dies.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::store::{Eviction, Store};
use leasehold::{Client, ErrorKind, Lease, LossReason};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::runtime;
use crate::harness::alone::alone;
use crate::harness::asking::{claim, granted};
use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::leases::{client, take};
use crate::harness::times::{LONG, PATIENCE};
use crate::harness::wait::{lost, soon, until};

/// Lets this process map only so much more memory; a thread needs two megabytes for its stack.
fn leave_memory(more: Option<u64>) {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    let current = more.map(|more| pages * 4_096 + more);
    let maximum = before.maximum;
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

#[test]
fn without_its_threads_nothing_is_acquired_and_later_it_is() {
    alone(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async {
            let client = client(&FaultyStore::new()).await;
            // Room for none of the two threads, and room for one.
            for megabytes in [1, 3] {
                leave_memory(Some(megabytes << 20));
                let error = client.try_acquire("a").await.unwrap_err();
                leave_memory(None);
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("did not start"), "{error}");
            }
            take(&client, "a").await.check().unwrap();
        });
    });
}

#[tokio::test]
async fn a_thread_that_dies_cancels_every_holder_and_takes_no_more_in() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    let leases = [take(&client, "a").await, take(&client, "b").await];
    store.faults.clock.is_cracked.store(true, Ordering::SeqCst);
    for lease in &leases {
        assert_eq!(lost(lease).await, LossReason::WatchdogDied);
        assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::Lost);
    }
    let error = client.try_acquire("c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let [first, _second] = leases;
    first.release().await;
    assert!(client.try_acquire("a").await.is_err());
}

#[tokio::test]
async fn a_thread_that_dies_ends_the_waits_for_a_held_name() {
    let store = FaultyStore::new();
    granted(&store, &claim("a", LONG)).await;
    let client = client(&store).await;
    // The thread looks at the clock when it renews this one.
    let lease = take(&client, "b").await;
    let waits = [(); 2].map(|()| {
        let request = client.request("a");
        tokio::spawn(request.acquire())
    });
    until_asleep().await;
    store.faults.clock.is_cracked.store(true, Ordering::SeqCst);
    assert_eq!(lost(&lease).await, LossReason::WatchdogDied);
    for wait in waits {
        let error = soon(wait).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_panics_fails_the_acquire_and_not_the_client() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    store.faults.plan(Call::Connect, Fault::Panic, 1);
    let error = client.try_acquire("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    take(&client, "a").await.check().unwrap();
}

/// A client and a lease of it that an operator has taken away.
async fn refused(store: &FaultyStore) -> (Client, Lease) {
    let client = client(store).await;
    let lease = take(&client, "a").await;
    store
        .evict(lease.name(), Eviction::Now, PATIENCE)
        .await
        .unwrap();
    assert_eq!(lost(&lease).await, LossReason::Refused);
    (client, lease)
}

/// Waits until no watchdog of this process lives.
async fn until_no_watchdog_lives() {
    let none_lives = async || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        // The kernel keeps fifteen letters.
        let is_watchdog = |name: &String| name.trim_end() == "leasehold-watch";
        (!names.flatten().any(|name| is_watchdog(&name))).then_some(())
    };
    until("the end of the watchdog's thread", none_lives).await;
}

/// Gives the loop time to see that its client is gone, and to sleep on. Were this too short, the test would only see less.
async fn until_asleep() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[test]
fn the_thread_ends_after_the_guard_of_a_refused_lease() {
    alone(|| {
        runtime().block_on(async {
            let (client, dropped) = refused(&FaultyStore::new()).await;
            drop(client);
            until_asleep().await;
            drop(dropped);
            until_no_watchdog_lives().await;
            let (client, released) = refused(&FaultyStore::new()).await;
            drop(client);
            until_asleep().await;
            released.release().await;
            until_no_watchdog_lives().await;
        });
    });
}

#[test]
fn the_thread_ends_after_the_last_guard_of_a_client_that_was_shut_down() {
    alone(|| {
        runtime().block_on(async {
            let (client, refused) = refused(&FaultyStore::new()).await;
            assert!(!client.shutdown(Duration::from_millis(50)).await);
            drop(refused);
            until_no_watchdog_lives().await;
            assert!(client.shutdown(PATIENCE).await);
        });
    });
}
