//! Permits, shared names, leaders, jobs that run once, and the client without async, through the public API.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use leasehold::blocking;
use leasehold::fence::rusqlite::Fence;
use leasehold::store::memory::Memory;
use leasehold::store::{Eviction, Store};
use leasehold::{Attempt, Client, Error, ErrorKind, Lease, LeaseRequest, Name};

use crate::harness::faulty_store::{Call, DOWN, Fault, FaultyStore};
use crate::harness::leases::{client, client_at, until_free};
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LONG, PATIENCE};
use crate::harness::wait::{soon, until_so};

/// A task that is given a permit drops its claim of the door, maybe unanswered, and a shutdown waits for such a claim for
/// one ttl: less than [`PATIENCE`].
const TTL: Duration = Duration::from_secs(5);

/// A client with leases that no test outlives.
async fn client_of(store: &(impl Store + Clone)) -> Client {
    let builder = Client::builder().store(store.clone()).ttl(LONG);
    builder.build().await.unwrap()
}

async fn try_take(request: LeaseRequest) -> Option<Lease> {
    match request.try_acquire().await.unwrap() {
        Attempt::Acquired(lease) => Some(lease),
        Attempt::Held(_) => None,
    }
}

/// Counts how many hold at once.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    fn enter(&self) -> usize {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        now
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Many tasks of three clients, over three permits.
async fn three_permits_have_three_holders_at_most(clients: [Client; 3]) {
    let inside = Arc::<Inside>::default();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..15 {
        let (client, inside) = (clients[task % 3].clone(), inside.clone());
        tasks.spawn(async move {
            for _ in 0..4 {
                let permit = client.permits("gpu", 3).acquire().await.unwrap();
                assert!(inside.enter() <= 3);
                tokio::time::sleep(Duration::from_millis(3)).await;
                permit.check().unwrap();
                inside.leave();
                permit.release().await;
            }
        });
    }
    tokio::time::timeout(PATIENCE * 3, tasks.join_all())
        .await
        .expect("all are served");
    assert_eq!(inside.most.load(Ordering::SeqCst), 3, "they were used");
    for client in clients {
        assert!(client.shutdown(PATIENCE).await);
    }
}

/// Readers and writers of three clients.
async fn no_reader_is_beside_a_writer(clients: [Client; 3]) {
    let (readers, writers) = (Arc::<Inside>::default(), Arc::<Inside>::default());
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..9 {
        let client = clients[task % 3].clone();
        let (readers, writers) = (readers.clone(), writers.clone());
        tasks.spawn(async move {
            for round in 0..4 {
                let is_writer = (task + round) % 3 == 0;
                let (own, other) = match is_writer {
                    true => (&writers, &readers),
                    false => (&readers, &writers),
                };
                let request = match is_writer {
                    true => client.exclusive("config"),
                    false => client.shared("config"),
                };
                let lease = request.acquire().await.unwrap();
                let beside = own.enter();
                assert!(!is_writer || beside == 1, "two writers");
                assert_eq!(other.now.load(Ordering::SeqCst), 0, "a reader and a writer");
                tokio::time::sleep(Duration::from_millis(3)).await;
                assert_eq!(other.now.load(Ordering::SeqCst), 0, "a reader and a writer");
                own.leave();
                lease.release().await;
            }
        });
    }
    tokio::time::timeout(PATIENCE * 3, tasks.join_all())
        .await
        .expect("all are served");
    for client in clients {
        assert!(client.shutdown(PATIENCE).await);
    }
}

async fn clients_at(url: &str) -> [Client; 3] {
    [
        client_at(url, TTL).await,
        client_at(url, TTL).await,
        client_at(url, TTL).await,
    ]
}

async fn clients_of(store: &Memory) -> [Client; 3] {
    [
        client_of(store).await,
        client_of(store).await,
        client_of(store).await,
    ]
}

#[tokio::test]
async fn three_permits_have_three_holders_at_most_in_memory() {
    three_permits_have_three_holders_at_most(clients_of(&Memory::new()).await).await;
}

#[tokio::test]
async fn three_permits_have_three_holders_at_most_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases").display());
    three_permits_have_three_holders_at_most(clients_at(&url).await).await;
}

#[tokio::test]
async fn three_permits_have_three_holders_at_most_on_redis() {
    let server = RedisServer::start().await;
    three_permits_have_three_holders_at_most(clients_at(&server.url()).await).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn no_reader_is_beside_a_writer_in_memory() {
    no_reader_is_beside_a_writer(clients_of(&Memory::new()).await).await;
}

#[tokio::test]
async fn no_reader_is_beside_a_writer_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases").display());
    no_reader_is_beside_a_writer(clients_at(&url).await).await;
}

#[tokio::test]
async fn no_reader_is_beside_a_writer_on_redis() {
    let server = RedisServer::start().await;
    no_reader_is_beside_a_writer(clients_at(&server.url()).await).await;
}

#[tokio::test]
async fn a_try_takes_each_permit_that_is_free_and_then_says_who_has_one() {
    let client = client_of(&Memory::new()).await;
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(
            try_take(client.permits("gpu", 5))
                .await
                .expect("one is free"),
        );
    }
    let mut names: Vec<_> = permits
        .iter()
        .map(|permit| permit.name().to_string())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["gpu#1", "gpu#2", "gpu#3", "gpu#4", "gpu#5"]);
    let Attempt::Held(held) = client.permits("gpu", 5).try_acquire().await.unwrap() else {
        panic!("a sixth of five");
    };
    assert!(held.name.as_str().starts_with("gpu#"), "{held:?}");
}

#[tokio::test]
async fn a_try_does_not_overtake_a_client_that_waits() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let permit = first.permits("gpu", 1).acquire().await.unwrap();
    let waiting = tokio::spawn(second.permits("gpu", 1).acquire());
    until_so("the waiter to have the door", async || {
        let door = Name::new("gpu").unwrap();
        store.inspect(&door, PATIENCE).await.unwrap().is_some()
    })
    .await;
    assert!(try_take(first.permits("gpu", 1)).await.is_none());
    permit.release().await;
    assert!(try_take(first.permits("gpu", 1)).await.is_none());
    drop(soon(waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn an_uncontended_permit_costs_one_claim_and_leaves_the_door_alone() {
    let store = FaultyStore::new();
    let client = client_of(&store).await;
    let claims = store.claims();
    let permit = client.permits("gpu", 4).acquire().await.unwrap();
    assert_eq!(store.claims() - claims, 1);
    permit.release().await;
    until_free(&store, "gpu").await;
}

#[tokio::test]
async fn a_client_with_many_waiting_tasks_takes_as_many_permits_at_one_turn() {
    let store = FaultyStore::new();
    let (holder, waiting) = (client_of(&store).await, client_of(&store).await);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(holder.permits("gpu", 4).acquire().await.unwrap());
    }
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        tasks.spawn(waiting.permits("gpu", 4).acquire());
    }
    until_so("one of them to have the door", async || {
        store.held("gpu").await.is_some()
    })
    .await;
    // So that the look of the one that has the door finds all free.
    store.faults.plan_always(Call::Inspect, Fault::Wait);
    for permit in held {
        permit.release().await;
    }
    store.faults.heal(Call::Inspect);
    let permits = soon(tasks.join_all()).await;
    let names: std::collections::BTreeSet<_> = permits
        .iter()
        .map(|permit| permit.as_ref().unwrap().name().clone())
        .collect();
    assert_eq!(names.len(), 4);
}

#[tokio::test]
async fn bad_numbers_of_permits_and_names_without_room_are_refused() {
    let client = client_of(&Memory::new()).await;
    for count in [0, 257] {
        let error = client.permits("gpu", count).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("1 to 256"), "{error}");
    }
    let long = "n".repeat(Name::MAX_BYTES);
    let error = client.shared(long).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_wait_for_a_permit_ends_at_its_limit_and_leaves_the_door() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let _permit = first.permits("gpu", 1).acquire().await.unwrap();
    let limit = Duration::from_millis(150);
    let error = second
        .permits("gpu", 1)
        .acquire_within(limit)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    until_free(&store, "gpu").await;
}

#[tokio::test]
async fn a_dead_waiter_frees_the_door_and_the_next_is_served() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let permit = first.permits("gpu", 1).acquire().await.unwrap();
    // It has the door, and its future is dropped.
    let dying = second
        .permits("gpu", 1)
        .acquire_within(Duration::from_secs(60));
    drop(tokio::time::timeout(Duration::from_millis(100), dying).await);
    permit.release().await;
    drop(soon(first.permits("gpu", 1).acquire()).await.unwrap());
}

#[tokio::test]
async fn a_least_hold_of_a_permit_keeps_the_permit_and_not_the_door() {
    let store = Memory::new();
    let client = client_of(&store).await;
    let permit = client.permits("gpu", 1).hold_at_least(LONG);
    permit.acquire().await.unwrap().release().await;
    assert!(try_take(client.permits("gpu", 1)).await.is_none());
    assert!(try_take(client.request("gpu")).await.is_some());
}

#[tokio::test]
async fn readers_share_a_writer_waits_for_them_and_new_readers_wait_for_it() {
    let store = Memory::new();
    let (first, second) = (client_of(&store).await, client_of(&store).await);
    let readers = [
        first.shared("config").acquire().await.unwrap(),
        second.shared("config").acquire().await.unwrap(),
    ];
    assert!(try_take(second.exclusive("config")).await.is_none());
    until_free(&store, "config").await;
    let writing = tokio::spawn(second.exclusive("config").acquire());
    until_so("the writer to have the door", async || {
        let door = Name::new("config").unwrap();
        store.inspect(&door, PATIENCE).await.unwrap().is_some()
    })
    .await;
    assert!(try_take(first.shared("config")).await.is_none());
    let [one, other] = readers;
    one.release().await;
    assert!(!writing.is_finished());
    other.release().await;
    let writer = soon(writing).await.unwrap().unwrap();
    assert_eq!(writer.name().as_str(), "config");
    let reading = tokio::spawn(first.shared("config").acquire());
    writer.release().await;
    drop(soon(reading).await.unwrap().unwrap());
}

/// The reader stands between its claim and its look at the door, while a writer comes in.
#[tokio::test]
async fn a_reader_that_is_paused_before_its_look_gives_way_to_a_writer() {
    let store = FaultyStore::new();
    let (one, other) = (client_of(&store).await, client_of(&store).await);
    store.faults.plan_always(Call::Inspect, Fault::Wait);
    let reading = tokio::spawn(one.shared("config").acquire());
    until_so("the reader's claim", async || store.claims() > 0).await;
    let writing = tokio::spawn(other.exclusive("config").acquire());
    until_so("the writer to have the door", async || store.claims() > 1).await;
    store.faults.heal(Call::Inspect);
    let writer = soon(writing).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!reading.is_finished(), "a reader beside a writer");
    writer.check().unwrap();
    writer.release().await;
    drop(soon(reading).await.unwrap().unwrap());
}

/// The writer loses its door while it waits for a reader: its looks from before do not count.
#[tokio::test]
async fn a_writer_whose_door_is_lost_begins_again() {
    let store = FaultyStore::new();
    let (one, other) = (client_of(&store).await, client(&store).await);
    let reader = one.shared("config").acquire().await.unwrap();
    let request = other.exclusive("config").acquire();
    let writing = tokio::spawn(request);
    until_so("the writer to have the door", async || {
        store.held("config").await.is_some()
    })
    .await;
    let door = store.held("config").await.and_then(|held| held.token);
    // As a pause past its ttl does: no renewal is confirmed in time.
    store.faults.plan_always(Call::Renew, Fault::Hang);
    until_so("the door to be lost and granted again", async || {
        let held = store.held("config").await;
        held.is_some_and(|held| held.token != door)
    })
    .await;
    store.faults.heal(Call::Renew);
    reader.release().await;
    let writer = soon(writing).await.unwrap().unwrap();
    writer.check().unwrap();
    assert!(try_take(one.shared("config")).await.is_none());
}

/// Whether a writer that woke late can write, although a reader came after it.
async fn late_write(read: impl AsyncFn(&Client) -> Lease) -> Result<(), Error> {
    let store = Memory::new();
    let (one, other) = (client_of(&store).await, client_of(&store).await);
    let mut database = rusqlite::Connection::open_in_memory().unwrap();
    let fence = Fence::new("config").unwrap();
    fence.create_table(&database).unwrap();
    let writer = one.exclusive("config").acquire().await.unwrap();
    // It is paused past its ttl, and keeps its pass in a request that it has begun.
    let pass = writer.pass().unwrap();
    let evicted = store.evict(writer.name(), Eviction::Now, PATIENCE).await;
    assert!(evicted.unwrap());
    let reader = read(&other).await;
    if reader.pass().unwrap().name.as_str() == "config" {
        assert!(reader.pass().unwrap().token > pass.token);
        assert_eq!(reader.handle().pass().unwrap(), reader.pass().unwrap());
        fence
            .begin(&mut database, &reader)
            .unwrap()
            .commit()
            .unwrap();
    }
    let late = fence.begin(&mut database, &pass);
    late.map(drop)
        .map_err(|refused| Error::new(ErrorKind::Stale, format!("{refused:?}")))
}

#[tokio::test]
async fn a_late_write_is_refused_behind_a_reader_with_a_fence_and_lands_without() {
    late_write(async |client| {
        client
            .request("config")
            .shared_fenced()
            .acquire()
            .await
            .unwrap()
    })
    .await
    .expect_err("the reader raised the fence");
    late_write(async |client| client.shared("config").acquire().await.unwrap())
        .await
        .expect("this is what the fence is for");
}

#[tokio::test]
async fn a_fenced_reader_leaves_the_door_to_the_next() {
    let store = Memory::new();
    let client = client_of(&store).await;
    let fenced = || client.request("config").shared_fenced();
    let one = fenced().acquire().await.unwrap();
    let other = fenced().acquire().await.unwrap();
    assert!(other.pass().unwrap().token > one.pass().unwrap().token);
    assert_ne!(one.name(), other.name());
    until_free(&store, "config").await;
    assert!(try_take(client.exclusive("config")).await.is_none());
}

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

#[tokio::test]
async fn a_fire_runs_once_also_for_a_machine_that_comes_late() {
    let store = Memory::new();
    let (one, late) = (client_of(&store).await, client_of(&store).await);
    let fire = one
        .request("report")
        .once(two_o_clock())
        .await
        .unwrap()
        .unwrap();
    let waiting = tokio::spawn(late.request("report").once(two_o_clock()));
    fire.done().await;
    assert!(soon(waiting).await.unwrap().unwrap().is_none());
    assert!(
        late.request("report")
            .once(two_o_clock())
            .await
            .unwrap()
            .is_none()
    );
    let next = two_o_clock() + Duration::from_secs(3_600);
    assert!(late.request("report").once(next).await.unwrap().is_some());
}

#[tokio::test]
async fn a_fire_that_failed_is_run_by_another_machine() {
    let store = Memory::new();
    let (one, other) = (client_of(&store).await, client_of(&store).await);
    let fire = one
        .request("report")
        .once(two_o_clock())
        .await
        .unwrap()
        .unwrap();
    let waiting = tokio::spawn(other.request("report").once(two_o_clock()));
    drop(fire);
    let fire = soon(waiting).await.unwrap().unwrap();
    fire.expect("it was not done").done().await;
    assert!(
        one.request("report")
            .once(two_o_clock())
            .await
            .unwrap()
            .is_none()
    );
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
    assert_eq!(lease.release(), leasehold::ReleaseOutcome::Released);
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
