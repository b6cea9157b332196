//! What the metrics tell of a watchdog that cannot keep up, and of a store that went back in time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::leases::{client, renewed_times, take};
use crate::harness::times::PATIENCE;
use crate::metrics::exporter::run;

/// More leases than the batches in flight take up.
const MANY: usize = 1_100;

#[test]
fn renewals_that_cannot_be_sent_are_seen_as_a_backlog() {
    run(async |seen| {
        let store = FaultyStore::new();
        (store.faults).plan_always(Call::Renew, Fault::Hang);
        let client = client(&store).await;
        let mut leases = Vec::new();
        for index in 0..MANY {
            let request = client.request(format!("n{index}"));
            leases.push(request.ttl(PATIENCE).acquire().await.unwrap());
        }
        seen.counts("leasehold_watchdog_backlog", &[]).await;
    });
}

#[test]
fn a_watchdog_that_oversleeps_is_seen_while_it_sleeps_and_afterwards() {
    run(async |seen| {
        let store = FaultyStore::new();
        let client = client(&store).await;
        let request = client.request("a").ttl(PATIENCE);
        let _lease = request.acquire().await.unwrap();
        let asleep = |value| value == 0.0;
        seen.shows("leasehold_watchdog_overdue_seconds", &[], asleep)
            .await;
        let is_slow = &store.faults.clock.is_slow;
        is_slow.store(true, Ordering::SeqCst);
        let overdue = |value| value > 0.5;
        seen.shows("leasehold_watchdog_overdue_seconds", &[], overdue)
            .await;
        is_slow.store(false, Ordering::SeqCst);
        seen.counts("leasehold_watchdog_lag_seconds_count", &[])
            .await;
        seen.shows("leasehold_watchdog_overdue_seconds", &[], asleep)
            .await;
    });
}

#[test]
fn a_store_that_went_back_in_time_is_counted() {
    run(async |seen| {
        let store = FaultyStore::new();
        *store.faults.ahead_ms.lock().unwrap() = Some(1_000_000);
        let client = client(&store).await;
        let lease = take(&client, "a").await;
        renewed_times(&lease, 1).await;
        *store.faults.ahead_ms.lock().unwrap() = Some(1_000_000 - 500);
        let backward = ["kind=\"backward\""];
        seen.counts("leasehold_clock_jumps_total", &backward).await;
        lease.release().await;
        (store.faults).plan_always(Call::Acquire, Fault::FirstToken);
        let fallen = client.try_acquire("a").await.unwrap_err();
        assert!(fallen.to_string().contains("token fell"), "{fallen}");
        seen.counts("leasehold_tokens_fallen_total", &[]).await;
        let refused = ["outcome=\"refused\"", "group="];
        seen.counts("leasehold_acquisitions_total", &refused).await;
        assert!(client.shutdown(Duration::from_secs(5)).await);
    });
}
