//! A server whose wall clock steps.

use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::{client, renewed_times, take};

#[tokio::test]
async fn a_step_forward_of_the_servers_clock_loses_nothing_that_can_be_renewed() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    *store.faults.ahead_ms.lock().unwrap() = Some(1_000_000);
    // The renewals of the one tell of the step; the other cannot be renewed for a while, so that what is taken off shows.
    let (teller, shown) = (take(&client, "teller").await, take(&client, "shown").await);
    tokio::join!(renewed_times(&teller, 1), renewed_times(&shown, 1));
    store
        .faults
        .poisoned
        .lock()
        .unwrap()
        .insert(shown.name().clone());
    let before = shown.term().expect("held").deadline();
    *store.faults.ahead_ms.lock().unwrap() = Some(1_000_000 + 150);
    renewed_times(&teller, 1).await;
    store.faults.poisoned.lock().unwrap().clear();
    let taken_off = before.since(shown.term().expect("held").deadline());
    assert!((150..200).contains(&taken_off.as_millis()), "{taken_off:?}");
    tokio::join!(renewed_times(&teller, 2), renewed_times(&shown, 2));
}

#[tokio::test]
async fn a_step_back_of_the_servers_clock_shortens_nothing() {
    let store = FaultyStore::new();
    let client = client(&store).await;
    *store.faults.ahead_ms.lock().unwrap() = Some(1_000_000);
    let lease = take(&client, "a").await;
    renewed_times(&lease, 1).await;
    *store.faults.ahead_ms.lock().unwrap() = Some(0);
    let mut deadline = lease.term().unwrap().deadline();
    for _ in 0..3 {
        let next = lease
            .renewed_past(deadline)
            .await
            .expect("not lost")
            .deadline();
        assert!(next > deadline);
        deadline = next;
    }
}
