//! Leaders, jobs that run once for each time of their schedule, and the client without async.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use leasehold::store::memory::Memory;
use leasehold::store::{self, Eviction, MAX_KEEP, Store};
use leasehold::{Client, ErrorKind, Fire, Lease, Name, blocking};

use super::client_of;
use crate::harness::faulty_store::{Call, DOWN, Fault, FaultyStore};
use crate::harness::leases::{client, client_at, until_free};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LONG, PATIENCE};
use crate::harness::wait::{soon, until_so};

#[tokio::test]
async fn a_leader_that_loses_its_lease_leads_again_until_its_work_ends() {
    let store = Memory::new();
    let client = client(&store).await;
    let terms = AtomicUsize::new(0);
    let work = async |lease: &Lease| match terms.fetch_add(1, Ordering::SeqCst) {
        0 => std::future::pending().await,
        term => (term, lease.token()),
    };
    let leading = client.request("leader").lead(work);
    let evicting = async {
        until_so("it leads", async || terms.load(Ordering::SeqCst) == 1).await;
        let name = Name::new("leader").unwrap();
        store.evict(&name, Eviction::Now, PATIENCE).await.unwrap();
    };
    let (led, ()) = soon(async { tokio::join!(leading, evicting) }).await;
    let (term, _) = led.unwrap();
    assert_eq!(term, 1);
    until_free(&store, "leader").await;
}

#[tokio::test]
async fn a_leader_that_is_stopped_releases_at_once_and_the_next_leads() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let forever = async |_: &Lease| std::future::pending::<()>().await;
    let stop_it = async { drop(stopped.await) };
    let leading = first.request("leader").lead_until(stop_it, forever);
    let stopping = async {
        let mut holders = second.holders("leader").unwrap();
        let leads = async || holders.next().await.unwrap().is_some();
        until_so("it leads", leads).await;
        stop.send(()).unwrap();
    };
    let (led, ()) = soon(async { tokio::join!(leading, stopping) }).await;
    assert_eq!(led.unwrap(), None);
    let name = Name::new("leader").unwrap();
    assert!(store.inspect(&name, PATIENCE).await.unwrap().is_none());
    let led = second
        .request("leader")
        .lead(async |lease: &Lease| lease.token());
    soon(led).await.unwrap();
}

#[tokio::test]
async fn a_candidate_goes_on_through_an_outage() {
    let store = FaultyStore::new();
    let client = client_of(&store).await;
    store.faults.plan(Call::Acquire, DOWN, 3);
    let led = client.request("leader").lead(async |_: &Lease| 7);
    assert_eq!(soon(led).await.unwrap(), 7);
    store
        .faults
        .plan(Call::Acquire, Fault::Fail(ErrorKind::Denied), 1);
    let refused = client.request("leader").lead(async |_: &Lease| 7).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn followers_see_each_leader_and_its_label() {
    let store = Memory::new();
    let client = client_of(&store).await;
    let mut holders = client.holders("leader").unwrap();
    assert!(holders.next().await.unwrap().is_none());
    let lease = client
        .request("leader")
        .label("blue")
        .acquire()
        .await
        .unwrap();
    let held = soon(holders.next()).await.unwrap().unwrap();
    assert_eq!(held.info.label.as_deref(), Some("blue"));
    assert_eq!(held.token, Some(lease.token()));
    assert!(held.since.is_some());
    lease.release().await;
    assert!(soon(holders.next()).await.unwrap().is_none());
}

fn two_o_clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(7_200)
}

/// The run of that hour, unless it is done.
async fn fire_of(client: &Client) -> Option<Fire> {
    client.request("report").once(two_o_clock()).await.unwrap()
}

#[tokio::test]
async fn a_fire_runs_once_also_for_a_machine_that_comes_late() {
    let store = Memory::new();
    let (one, late) = (client_of(&store).await, client_of(&store).await);
    let fire = fire_of(&one).await.unwrap();
    let waiting = tokio::spawn(late.request("report").once(two_o_clock()));
    fire.done().await;
    assert!(soon(waiting).await.unwrap().unwrap().is_none());
    assert!(fire_of(&late).await.is_none());
    let next = two_o_clock() + Duration::from_secs(3_600);
    assert!(late.request("report").once(next).await.unwrap().is_some());
}

#[tokio::test]
async fn a_fire_is_remembered_although_its_job_took_longer() {
    let store = Memory::new();
    let (one, other) = (client_of(&store).await, client_of(&store).await);
    let least = Duration::from_millis(200);
    let request = |client: &Client| client.request("report").hold_at_least(least);
    let fire = request(&one).once(two_o_clock()).await.unwrap().unwrap();
    let waiting = tokio::spawn(request(&other).once(two_o_clock()));
    tokio::time::sleep(2 * least).await;
    fire.done().await;
    assert!(soon(waiting).await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_follower_sees_no_leader_although_the_name_is_kept() {
    let store = Memory::new();
    let (one, other) = (client_of(&store).await, client_of(&store).await);
    let request = one.request("leader").hold_at_least(LONG);
    let lease = request.acquire().await.unwrap();
    let mut holders = other.holders("leader").unwrap();
    assert!(soon(holders.next()).await.unwrap().is_some());
    lease.release().await;
    assert!(soon(holders.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_fire_that_failed_is_run_by_another_machine() {
    let store = Memory::new();
    let (one, other) = (client_of(&store).await, client_of(&store).await);
    let fire = fire_of(&one).await.unwrap();
    let waiting = tokio::spawn(other.request("report").once(two_o_clock()));
    drop(fire);
    let fire = soon(waiting).await.unwrap().unwrap();
    fire.expect("it was not done").done().await;
    assert!(fire_of(&one).await.is_none());
}

#[tokio::test]
async fn a_fire_is_refused_to_several_holders_and_for_too_long_a_keep() {
    let client = client_of(&Memory::new()).await;
    let plain = || client.request("report");
    for (request, why) in [
        (plain().permits(3), "permits"),
        (plain().shared(), "shared"),
        (plain().exclusive(), "exclusive"),
        (plain().hold_at_least(MAX_KEEP * 2), "hold_at_least"),
    ] {
        let error = request.once(two_o_clock()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let longest = plain().hold_at_least(MAX_KEEP).once(two_o_clock());
    assert!(longest.await.unwrap().is_some());
}

#[test]
fn a_program_without_async_holds_a_lease_and_a_permit() {
    let store = Memory::new();
    let build =
        || blocking::Client::build(Client::builder().store(store.clone()).ttl(LONG)).unwrap();
    let (client, other) = (build(), build());
    let lease = client.acquire(client.request("a")).unwrap();
    lease.check().unwrap();
    assert!(other.try_acquire(other.request("a")).unwrap().is_none());
    let waiting = std::thread::spawn({
        let other = other.clone();
        move || {
            other
                .acquire_within(other.request("a"), PATIENCE)
                .unwrap()
                .token()
        }
    });
    let token = lease.token();
    assert_eq!(lease.release().to_string(), "released");
    assert!(waiting.join().unwrap() > token);
    let permit = client.acquire(client.permits("gpu", 2)).unwrap();
    assert_eq!(permit.pass().unwrap().token, permit.token());
    drop(permit);
    assert!(client.shutdown(PATIENCE).unwrap());
}

#[tokio::test]
async fn a_blocking_call_in_async_code_is_refused() {
    let error = blocking::Client::build(Client::builder().store(Memory::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("async"), "{error}");
}

#[tokio::test]
async fn a_follower_polls_once_a_second_in_an_outage_too() {
    let store = FaultyStore::new();
    let client = client_of(&store).await;
    store.faults.plan_always(Call::Inspect, DOWN);
    let mut holders = client.holders("leader").unwrap();
    let mut errors = 0;
    let following = async {
        loop {
            holders.next().await.expect_err("the store is down");
            errors += 1;
        }
    };
    let ended: Result<(), _> = tokio::time::timeout(Duration::from_millis(1_500), following).await;
    assert!(ended.is_err());
    assert_eq!(errors, 2);
}

/// All of them are told by the check of one.
#[tokio::test]
async fn tasks_of_one_client_that_wait_for_one_fire_are_told_at_once() {
    let server = RedisServer::start().await;
    let on_redis = store::open(&server.url()).await.unwrap();
    for store in [Arc::new(Memory::new()) as Arc<dyn Store>, on_redis] {
        let store = FaultyStore::over(store);
        let (one, waiting) = (client_of(&store).await, client_of(&store).await);
        let fire = fire_of(&one).await.unwrap();
        let answers = store.answers();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..30 {
            tasks.spawn(waiting.request("report").once(two_o_clock()));
        }
        until_so("the first to check", async || store.answers() > answers).await;
        fire.done().await;
        let told = tokio::time::timeout(Duration::from_secs(1), tasks.join_all()).await;
        for told in told.expect("within a second") {
            assert!(told.unwrap().is_none());
        }
    }
}

#[tokio::test]
async fn a_client_that_found_a_fire_done_has_nothing_left_to_release() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases").display());
    let (one, late) = (client_at(&url, LONG).await, client_at(&url, LONG).await);
    fire_of(&one).await.unwrap().done().await;
    for _ in 0..5 {
        assert!(fire_of(&late).await.is_none());
    }
    // A claim in doubt is released once more after each of 1, 2 and 4 seconds.
    assert!(late.shutdown(Duration::from_millis(900)).await);
}

#[tokio::test]
async fn a_fire_between_two_seconds_is_refused() {
    let client = client_of(&Memory::new()).await;
    let fire = SystemTime::UNIX_EPOCH + Duration::from_millis(250);
    let refused = client.request("report").once(fire).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("250ms"), "{refused}");
}
