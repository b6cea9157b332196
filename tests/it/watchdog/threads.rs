//! The watchdog's thread, when it does not start and when it dies.

use std::sync::atomic::Ordering;

use leasehold::{ErrorKind, Reason};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::unruly::Unruly;
use super::{alone, client, held};
use crate::harness::wait::lost;

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
    alone(
        "watchdog::threads::without_its_threads_nothing_is_acquired_and_later_it_is",
        || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            runtime.block_on(async {
                let client = client(&Unruly::new()).await;
                // Room for none of the two threads, and room for one.
                for megabytes in [1, 3] {
                    leave_memory(Some(megabytes << 20));
                    let error = client.try_acquire("a").await.unwrap_err();
                    leave_memory(None);
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    assert!(error.to_string().contains("did not start"), "{error}");
                }
                held(&client, "a").await.check().unwrap();
            });
        },
    );
}

#[tokio::test]
async fn a_thread_that_dies_cancels_every_holder_and_takes_no_more_in() {
    let store = Unruly::new();
    let client = client(&store).await;
    let leases = [held(&client, "a").await, held(&client, "b").await];
    store.manners.clock.is_cracked.store(true, Ordering::SeqCst);
    for lease in &leases {
        assert_eq!(lost(lease).await, Reason::WatchdogDied);
        assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::Lost);
    }
    let error = client.try_acquire("c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let [first, _second] = leases;
    first.release().await;
    assert!(client.try_acquire("a").await.is_err());
}

#[tokio::test]
async fn a_connection_that_panics_fails_the_acquire_and_not_the_client() {
    let store = Unruly::new();
    let client = client(&store).await;
    store
        .manners
        .panic_next_connections
        .store(1, Ordering::SeqCst);
    let error = client.try_acquire("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    held(&client, "a").await.check().unwrap();
}
