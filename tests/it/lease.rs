//! What the holder of a lease sees, over the store in memory.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::memory::Memory;
use leasehold::store::{Eviction, HeldState, MAX_KEEP, Store};
use leasehold::{Attempt, ErrorKind, Lease, LeaseState, LossReason, Name, ReleaseOutcome, Token};

use crate::harness::leases::{client, take, until_free};
use crate::harness::times::{PATIENCE, TTL};
use crate::harness::wait::{lost, soon, until_so};

#[tokio::test]
async fn a_lease_is_renewed_while_its_guard_lives() {
    let store = Memory::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let mut term = lease.term().unwrap();
    for _ in 0..4 {
        term = lease.renewed_past(term.deadline()).await.unwrap();
    }
    lease.check().unwrap();
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(matches!(
        client.try_acquire("a").await.unwrap(),
        Attempt::Held(_)
    ));
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    assert!(matches!(
        client.try_acquire("a").await.unwrap(),
        Attempt::Acquired(_)
    ));
}

#[tokio::test]
async fn dropping_a_lease_releases_it() {
    let store = Memory::new();
    let client = client(&store).await;
    drop(take(&client, "a").await);
    until_free(&store, "a").await;
}

#[test]
fn a_lease_dropped_without_a_runtime_is_released() {
    let store = Memory::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lease = runtime.block_on(async { take(&client(&store).await, "a").await });
    drop(runtime);
    lease.check().unwrap();
    drop(lease);
    let other = tokio::runtime::Runtime::new().unwrap();
    other.block_on(until_free(&store, "a"));
}

#[tokio::test]
async fn a_lease_outlives_the_client_that_acquired_it() {
    let store = Memory::new();
    let lease = take(&client(&store).await, "a").await;
    let term = lease.term().unwrap();
    let next = lease.renewed_past(term.deadline()).await;
    lease.renewed_past(next.unwrap().deadline()).await.unwrap();
    drop(lease);
    until_free(&store, "a").await;
}

#[tokio::test]
async fn tokens_rise_from_grant_to_grant() {
    let client = client(&Memory::new()).await;
    let mut last = None;
    for _ in 0..50 {
        let lease = client.acquire("a").await.unwrap();
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        lease.release().await;
    }
}

#[tokio::test]
async fn an_evicted_holder_is_told_and_the_name_stays_taken() {
    let store = Memory::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    assert!(
        store
            .evict(lease.name(), Eviction::Marked, PATIENCE)
            .await
            .unwrap()
    );
    let cancelled = lease.cancellation_token();
    assert_eq!(lost(&lease).await, LossReason::Evicted);
    assert!(cancelled.is_cancelled());
    assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::Lost);
    assert!(matches!(
        client.try_acquire("a").await.unwrap(),
        Attempt::Held(_)
    ));
    drop(lease);
    until_free(&store, "a").await;
}

#[tokio::test]
async fn a_holder_whose_name_was_freed_by_force_is_told_as_refused() {
    let store = Memory::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    assert!(
        store
            .evict(lease.name(), Eviction::Now, PATIENCE)
            .await
            .unwrap()
    );
    assert_eq!(lost(&lease).await, LossReason::Refused);
    assert_eq!(lease.release().await, ReleaseOutcome::AlreadyLost);
}

#[tokio::test]
async fn a_lease_ends_at_max_hold_and_is_released_when_its_guard_is_dropped() {
    let store = Memory::new();
    let client = client(&store).await;
    let request = client.request("a").max_hold(TTL * 2);
    let lease = request.acquire().await.unwrap();
    assert_eq!(lost(&lease).await, LossReason::MaxHold);
    assert!(
        store
            .inspect(lease.name(), PATIENCE)
            .await
            .unwrap()
            .is_some()
    );
    drop(lease);
    until_free(&store, "a").await;
}

#[tokio::test]
async fn a_lease_without_progress_is_lost_and_one_with_progress_is_not() {
    let client = client(&Memory::new()).await;
    let watched = |name| client.request(name).progress_within(TTL);
    let idle = watched("idle").acquire().await.unwrap();
    let busy = watched("busy").acquire().await.unwrap();
    let ticking = async {
        loop {
            busy.progress();
            tokio::time::sleep(TTL / 20).await;
        }
    };
    tokio::select! {
        reason = idle.lost() => assert_eq!(reason, LossReason::NoProgress),
        () = ticking => unreachable!(),
    }
    busy.check().unwrap();
}

#[tokio::test]
async fn a_wait_ends_when_the_holder_leaves() {
    let client = client(&Memory::new()).await;
    let first = take(&client, "a").await;
    let token = first.token();
    let waiter = tokio::spawn({
        let client = client.clone();
        async move { client.acquire("a").await }
    });
    let term = first.term().unwrap();
    first.renewed_past(term.deadline()).await.unwrap();
    assert!(!waiter.is_finished());
    first.release().await;
    let second = tokio::time::timeout(PATIENCE, waiter).await.unwrap();
    assert!(second.unwrap().unwrap().token() > token);
}

#[tokio::test]
async fn a_limited_wait_tells_who_held_the_name() {
    let client = client(&Memory::new()).await;
    let first = take(&client, "a").await;
    let error = client.acquire_within("a", TTL / 4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let source = std::error::Error::source(&error).unwrap();
    let facts = source.downcast_ref::<leasehold::store::Held>().unwrap();
    assert_eq!(facts.by, Some(first.holder()));
}

#[tokio::test]
async fn run_releases_and_keeps_the_works_own_error_apart() {
    let store = Memory::new();
    let client = client(&store).await;
    let ended: Result<Result<(), &str>, _> = client.run("a", async |_| Err("its own")).await;
    assert_eq!(ended.unwrap(), Err("its own"));
    let name = leasehold::Name::new("a").unwrap();
    assert!(store.inspect(&name, PATIENCE).await.unwrap().is_none());
}

#[tokio::test]
async fn run_drops_the_work_when_the_lease_is_lost() {
    struct Flag(Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let store = Memory::new();
    let client = client(&store).await;
    let dropped = Arc::<std::sync::atomic::AtomicBool>::default();
    let flag = Flag(dropped.clone());
    let working = client.run("a", async |lease: &Lease| {
        let _flag = flag;
        store
            .evict(lease.name(), Eviction::Now, PATIENCE)
            .await
            .unwrap();
        std::future::pending::<()>().await;
    });
    let error = working.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(dropped.load(std::sync::atomic::Ordering::SeqCst));
}

#[tokio::test]
async fn run_passes_a_panic_on_after_the_release() {
    let store = Memory::new();
    let client = client(&store).await;
    let working = tokio::spawn({
        let client = client.clone();
        async move { client.run("a", async |_| panic!("the work's own")).await }
    });
    let ended: Result<Result<(), _>, _> = working.await;
    assert!(ended.unwrap_err().is_panic());
    let name = leasehold::Name::new("a").unwrap();
    assert!(store.inspect(&name, PATIENCE).await.unwrap().is_none());
}

#[tokio::test]
async fn shutdown_cancels_the_holder_waits_for_its_guard_and_releases() {
    let store = Memory::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let holder = tokio::spawn({
        let store = store.clone();
        async move {
            let reason = lost(&lease).await;
            let is_kept = store
                .inspect(lease.name(), PATIENCE)
                .await
                .unwrap()
                .is_some();
            (reason, is_kept)
        }
    });
    assert!(client.shutdown(PATIENCE).await);
    assert_eq!(holder.await.unwrap(), (LossReason::Shutdown, true));
    let name = leasehold::Name::new("a").unwrap();
    assert!(store.inspect(&name, PATIENCE).await.unwrap().is_none());
    let error = client.try_acquire("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn shutdown_takes_no_longer_than_its_limit() {
    let client = client(&Memory::new()).await;
    let lease = take(&client, "a").await;
    let clock = Monotonic;
    let started = clock.now();
    assert!(!client.shutdown(Duration::from_millis(50)).await);
    assert!(clock.now().since(started) < PATIENCE);
    assert_eq!(lease.state(), LeaseState::Lost(LossReason::Shutdown));
}

#[tokio::test]
async fn bad_values_are_refused_with_the_value() {
    let client = client(&Memory::new()).await;
    for (request, shown) in [
        (client.request(""), "\"\""),
        (client.request("a{b}"), "a{b}"),
        (client.request("a").ttl(Duration::from_millis(999)), "999ms"),
        (client.request("a").ttl(TTL).margin(TTL), "600ms"),
        (client.request("a").label("x".repeat(201)), "xxx"),
        (client.request("a").max_hold(Duration::ZERO), "0s"),
    ] {
        let error = request.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(shown), "{error}");
    }
}

/// The ways in which a guard ends.
#[derive(Debug)]
enum End {
    Release,
    Drop,
    QuestionMark,
    Panic,
    Run,
}

async fn end(request: leasehold::LeaseRequest, end: &End) {
    let failing = async |_: &Lease| panic!("as planned");
    match end {
        End::Release => {
            let lease = request.acquire().await.unwrap();
            lease.release().await;
        }
        End::Drop => drop(request.acquire().await.unwrap()),
        End::QuestionMark => {
            let job = async || {
                let _lease = request.acquire().await?;
                "nothing".parse::<Token>()
            };
            job().await.unwrap_err();
        }
        End::Panic => {
            let running = tokio::spawn(request.run(failing));
            assert!(running.await.unwrap_err().is_panic());
        }
        End::Run => request.run(async |_| ()).await.unwrap(),
    }
}

#[tokio::test]
async fn a_name_is_kept_for_the_time_that_was_asked_however_its_guard_ends() {
    let store = Memory::new();
    let client = client(&store).await;
    for way in [
        End::Release,
        End::Drop,
        End::QuestionMark,
        End::Panic,
        End::Run,
    ] {
        let name = Name::new(format!("{way:?}")).unwrap();
        let least = TTL * 100;
        end(client.request(name.as_str()).hold_at_least(least), &way).await;
        until_so("the name is kept", async || {
            let held = store.inspect(&name, PATIENCE).await.unwrap();
            let held = held.unwrap_or_else(|| panic!("{way:?}: it is free"));
            held.state == HeldState::Kept && held.remaining <= Some(least)
        })
        .await;
    }
}

#[tokio::test]
async fn a_name_is_kept_where_the_client_itself_ended_the_lease() {
    for reason in [
        LossReason::Shutdown,
        LossReason::MaxHold,
        LossReason::NoProgress,
    ] {
        let store = Memory::new();
        let client = client(&store).await;
        let request = client.request("a").hold_at_least(TTL * 100);
        let request = match reason {
            LossReason::MaxHold => request.max_hold(TTL / 10),
            LossReason::NoProgress => request.progress_within(TTL / 10),
            _ => request,
        };
        let lease = request.acquire().await.unwrap();
        let closing = async {
            if reason == LossReason::Shutdown {
                client.shutdown(PATIENCE).await;
            }
        };
        let ending = async {
            assert_eq!(lost(&lease).await, reason);
            drop(lease);
        };
        tokio::join!(closing, ending);
        let name = Name::new("a").unwrap();
        until_so("the name is kept", async || {
            let held = store.inspect(&name, PATIENCE).await.unwrap();
            let held = held.unwrap_or_else(|| panic!("{reason}: it is free"));
            held.state == HeldState::Kept
        })
        .await;
    }
}

#[tokio::test]
async fn a_job_that_is_longer_than_its_least_hold_frees_the_name() {
    let store = Memory::new();
    let client = client(&store).await;
    let request = client.request("a").hold_at_least(Duration::from_nanos(1));
    request.acquire().await.unwrap().release().await;
    let name = Name::new("a").unwrap();
    assert!(store.inspect(&name, PATIENCE).await.unwrap().is_none());
}

#[tokio::test]
async fn a_least_hold_of_more_than_a_year_is_refused() {
    let client = client(&Memory::new()).await;
    let request = client.request("a").hold_at_least(MAX_KEEP * 2);
    let error = request.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("hold_at_least"), "{error}");
}

#[tokio::test]
async fn a_handle_answers_as_the_lease_does_until_its_guard_ends() {
    let store = Memory::new();
    let client = client(&store).await;
    for is_dropped in [false, true] {
        let lease = take(&client, "a").await;
        let handle = lease.handle();
        handle.check().unwrap();
        assert_eq!(handle.pass().unwrap(), lease.pass().unwrap());
        let waiting = tokio::spawn({
            let handle = handle.clone();
            async move { handle.lost().await }
        });
        match is_dropped {
            true => drop(lease),
            false => drop(lease.release().await),
        }
        assert_eq!(soon(waiting).await.unwrap(), LossReason::Released);
        assert_eq!(handle.check().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(handle.pass().unwrap_err().kind(), ErrorKind::Lost);
        until_free(&store, "a").await;
    }
}

#[tokio::test]
async fn a_handle_is_told_of_a_loss_and_of_its_reason() {
    let store = Memory::new();
    let client = client(&store).await;
    let lease = take(&client, "a").await;
    let handle = lease.handle();
    store
        .evict(lease.name(), Eviction::Now, PATIENCE)
        .await
        .unwrap();
    let reason = soon(handle.lost()).await;
    assert_eq!(reason, lost(&lease).await);
    drop(lease);
    assert!(
        handle
            .check()
            .unwrap_err()
            .to_string()
            .contains(reason.as_str())
    );
}
