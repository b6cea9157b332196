//! Calls to acquire, leases and their ends, on a store in memory.

use std::time::Duration;

use leasehold::store::memory::Memory;
use leasehold::store::{Eviction, Facts, Store};
use leasehold::{Attempt, Client, Name, ReleaseOutcome};

use super::exporter::{Exporter, run};
use crate::harness::alone::alone;
use crate::harness::faulty_store::FaultyStore;
use crate::harness::leases::take;
use crate::harness::times::PATIENCE;
use crate::harness::wait::until_so;

async fn client_of_group(store: &(impl Store + Clone), group: &str) -> Client {
    let builder = Client::builder().store(store.clone()).group(group);
    builder.names_in_metrics(1).build().await.unwrap()
}

#[test]
fn each_end_of_a_call_to_acquire_is_counted_once() {
    run(async |seen| {
        let store = Memory::new();
        let client = client_of_group(&store, "calls").await;
        let lease = take(&client, "a").await;
        assert!(matches!(
            client.try_acquire("a").await,
            Ok(Attempt::Held(_))
        ));
        let short = Duration::from_millis(20);
        client.acquire_within("a", short).await.unwrap_err();
        let dropped = tokio::time::timeout(short, client.acquire("a")).await;
        dropped.unwrap_err();
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.acquire("a").await.unwrap() }
        });
        seen.counts("leasehold_waiters", &["group=\"calls\""]).await;
        lease.release().await;
        waiting.await.unwrap().release().await;
        client.shutdown(PATIENCE).await;
        client.try_acquire("a").await.unwrap_err();
        leasehold::metrics::update();
        let total = |outcome: &str| {
            let label = format!("outcome=\"{outcome}\"");
            let total = seen.value("leasehold_acquisitions_total", &[&label]);
            let waits = seen.value("leasehold_acquire_wait_seconds_count", &[&label]);
            assert_eq!(total.filter(|total| *total > 0.0), waits, "{outcome}");
            total.unwrap()
        };
        assert_eq!(total("acquired"), 2.0);
        assert_eq!(total("held"), 1.0);
        assert_eq!(total("timed_out"), 1.0);
        assert_eq!(total("cancelled"), 1.0);
        // A client that was shut down refuses before a call begins.
        assert_eq!(total("refused"), 0.0);
        assert_eq!(total("failed"), 0.0);
        assert_eq!(
            seen.value("leasehold_waiters", &["group=\"calls\""]),
            Some(0.0)
        );
    });
}

#[test]
fn attempts_tell_what_caused_them_and_notices_what_became_of_them() {
    run(async |seen| {
        // In a queue, a client that does not wait hears nothing.
        let facts = Facts::new("memory").with_notices();
        let store = FaultyStore::new().with_facts(facts);
        let client = client_of_group(&store, "attempts").await;
        let lease = take(&client, "a").await;
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.acquire("a").await.unwrap() }
        });
        seen.counts("leasehold_waiters", &["group=\"attempts\""])
            .await;
        // Until the waiter has looked, and listens.
        tokio::time::sleep(Duration::from_millis(100)).await;
        lease.release().await;
        let lease = waiting.await.unwrap();
        let by_notice = ["trigger=\"notice\""];
        seen.counts("leasehold_acquire_attempts_total", &by_notice)
            .await;
        let first = ["trigger=\"first\""];
        let value = |value| value == 2.0;
        seen.shows("leasehold_acquire_attempts_total", &first, value)
            .await;
        // At the limit of a wait the store is asked once more.
        let short = Duration::from_millis(20);
        client.acquire_within("a", short).await.unwrap_err();
        let by_timer = ["trigger=\"timer\""];
        seen.counts("leasehold_acquire_attempts_total", &by_timer)
            .await;
        let delivered = ["store=\"memory\"", "outcome=\"delivered\""];
        seen.counts("leasehold_notices_total", &delivered).await;
        // The name is still followed, and no caller waits for it.
        lease.release().await;
        let unwanted = ["store=\"memory\"", "outcome=\"unwanted\""];
        seen.counts("leasehold_notices_total", &unwanted).await;
    });
}

#[test]
fn each_end_of_a_guard_is_counted_once() {
    run(async |seen| {
        let store = Memory::new();
        let client = client_of_group(&store, "ends").await;
        take(&client, "a").await.release().await;
        drop(take(&client, "a").await);
        let lost = take(&client, "b").await;
        assert!(!client.shutdown(Duration::ZERO).await);
        lost.lost().await;
        drop(lost);
        assert!(client.shutdown(PATIENCE).await);
        for (outcome, count) in [
            ("released", 1.0),
            ("dropped", 1.0),
            ("already_lost", 1.0),
            ("unknown", 0.0),
        ] {
            let label = format!("outcome=\"{outcome}\"");
            let is_right = |value| value == count;
            seen.shows("leasehold_releases_total", &[&label], is_right)
                .await;
        }
        for end in ["released", "dropped", "lost"] {
            let label = format!("end=\"{end}\"");
            let is_right = |value| value == 1.0;
            seen.shows("leasehold_hold_duration_seconds_count", &[&label], is_right)
                .await;
        }
        let shutdown = ["reason=\"shutdown\""];
        seen.counts("leasehold_leases_lost_total", &shutdown).await;
        seen.counts("leasehold_loss_overrun_seconds_count", &["group=\"ends\""])
            .await;
    });
}

#[test]
fn each_reason_of_a_loss_is_counted() {
    run(async |seen| {
        const TTL: Duration = Duration::from_secs(6);
        const BRIEF: Duration = Duration::from_secs(1);
        let store = Memory::new();
        let client = client_of_group(&store, "reasons").await;
        let request = |name: &str| client.request(name).ttl(TTL);
        let evicted = request("a").acquire().await.unwrap();
        let freed = request("b").acquire().await.unwrap();
        let leases = [
            request("c").max_hold(BRIEF).acquire().await.unwrap(),
            request("d").progress_within(BRIEF).acquire().await.unwrap(),
        ];
        let how = [(&evicted, Eviction::Marked), (&freed, Eviction::Now)];
        for (lease, how) in how {
            assert!(store.evict(lease.name(), how, PATIENCE).await.unwrap());
        }
        for reason in ["evicted", "refused", "max_hold", "no_progress"] {
            let label = format!("reason=\"{reason}\"");
            seen.counts("leasehold_leases_lost_total", &[&label]).await;
        }
        let refused = ["outcome=\"refused\"", "group=\"reasons\""];
        seen.counts("leasehold_renewals_total", &refused).await;
        drop((evicted, freed, leases));
    });
}

#[test]
fn calls_that_the_store_fails_are_counted_as_failed() {
    run(async |seen| {
        let store = FaultyStore::new();
        let builder = Client::builder().store(store.clone());
        let client = builder.build().await.unwrap();
        let lease = take(&client, "a").await;
        store.set_down(true);
        client.try_acquire("b").await.unwrap_err();
        let failed = ["outcome=\"failed\""];
        seen.counts("leasehold_acquisitions_total", &failed).await;
        assert_eq!(lease.release().await, ReleaseOutcome::Unknown);
        let unknown = ["outcome=\"unknown\""];
        seen.counts("leasehold_releases_total", &unknown).await;
        for op in ["op=\"acquire\"", "op=\"release\""] {
            let labels = [op, "kind=\"unavailable\""];
            seen.counts("leasehold_store_errors_total", &labels).await;
        }
    });
}

#[test]
fn an_exporter_that_comes_after_two_clients_shows_the_leases_of_both() {
    alone(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Memory::new();
            let [one, two] = [
                client_of_group(&store, "both").await,
                client_of_group(&store, "both").await,
            ];
            let leases = [take(&one, "a").await, take(&one, "b").await];
            let last = take(&two, "c").await;
            let seen = Exporter::install();
            let group = ["group=\"both\""];
            let is = |count| move |value| value == count;
            seen.is_told("leasehold_held_leases", &group, is(3.0)).await;
            let acquired = ["group=\"both\"", "outcome=\"acquired\""];
            seen.is_told("leasehold_acquisitions_total", &acquired, is(3.0))
                .await;
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
            let soon = |value| value > now && value < now + 30.0;
            seen.is_told("leasehold_soonest_deadline_timestamp_seconds", &group, soon)
                .await;
            // A survey that had begun before the exporter came told values, and the next one describes them.
            let is_described = async || seen.text().contains("# HELP leasehold_held_leases ");
            until_so("the description", is_described).await;
            drop(leases);
            seen.is_told("leasehold_held_leases", &group, is(1.0)).await;
            drop(last);
            seen.is_told("leasehold_held_leases", &group, is(0.0)).await;
            let none = |value: f64| value.is_nan();
            seen.is_told("leasehold_soonest_deadline_timestamp_seconds", &group, none)
                .await;
        });
    });
}

#[test]
fn names_have_series_up_to_the_limit_and_keep_them() {
    run(async |seen| {
        let client = client_of_group(&Memory::new(), "named").await;
        let lease = take(&client, "a").await;
        let a = ["group=\"named\"", "name=\"a\""];
        seen.counts("leasehold_lease_held", &a).await;
        let known = |value: f64| value > 0.0;
        let deadline = "leasehold_lease_deadline_timestamp_seconds";
        seen.shows(deadline, &a, known).await;
        lease.release().await;
        seen.shows("leasehold_lease_held", &a, |value| value == 0.0)
            .await;
        seen.shows(deadline, &a, f64::is_nan).await;
        let _second = take(&client, "b").await;
        seen.counts("leasehold_label_overflow_total", &[]).await;
        assert_eq!(seen.value("leasehold_lease_held", &["name=\"b\""]), None);
    });
}

#[test]
fn calls_to_a_store_are_timed_by_what_they_do() {
    run(async |seen| {
        let client = client_of_group(&Memory::new(), "ops").await;
        let held = take(&client, "a").await;
        let (store, name) = (client.store(), Name::new("a").unwrap());
        store.inspect(&name, PATIENCE).await.unwrap();
        store.list("", PATIENCE).await.unwrap();
        let waiting = client.acquire("a");
        let waited = tokio::time::timeout(Duration::from_millis(100), waiting).await;
        waited.unwrap_err();
        store
            .evict(&name, Eviction::Marked, PATIENCE)
            .await
            .unwrap();
        held.release().await;
        for op in ["acquire", "release", "inspect", "list", "evict"] {
            let labels = ["store=\"memory\"", &format!("op=\"{op}\"")];
            seen.counts("leasehold_store_request_duration_seconds_count", &labels)
                .await;
        }
    });
}
