//! What pools keep on every store. On a store without a queue they keep all of it but the order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use leasehold::fence::rusqlite::Fence;
use leasehold::store::bucket::Bucket;
use leasehold::store::memory::Memory;
use leasehold::store::record::Records;
use leasehold::store::{Eviction, Held};
use leasehold::{Client, Lease, LeaseRequest, Name, OutagePolicy};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::harness::etcd_server::EtcdServer;
use crate::harness::leases::{client_at, until_free};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LONG, PATIENCE};
use crate::harness::wait::{soon, until_so};
use crate::harness::zookeeper_server::ZookeeperServer;
use crate::kubernetes::fake;
use crate::postgres;

const TASKS: usize = 9;
const ROUNDS: usize = 4;

/// The clients are three processes' in all but name: they share nothing. `faults::mysql` calls it for MySQL, whose server
/// only the long tests have.
pub(crate) async fn pools_keep_apart(clients: [Client; 3]) {
    a_permit_is_told_from_a_name_like_one(&clients).await;
    three_permits_have_three_holders_and_no_more(&clients).await;
    no_reader_is_beside_a_writer(&clients).await;
    waiting_clients_are_served_and_in_turn_if_there_is_a_queue(&clients).await;
    a_late_write_is_refused_behind_a_fenced_reader_and_lands_behind_another(&clients).await;
    for client in clients {
        assert!(client.shutdown(PATIENCE).await);
    }
}

pub(crate) async fn clients_at(url: &str) -> [Client; 3] {
    [
        client_at(url, LONG).await,
        client_at(url, LONG).await,
        client_at(url, LONG).await,
    ]
}

/// A fire of this store runs once, also for a process that comes late.
pub(crate) async fn a_fire_runs_once(url: &str) {
    let fire_at = |hour: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(3_600 * hour);
    for (hour, is_new) in [(2, true), (2, false), (3, true)] {
        let late = client_at(url, LONG).await;
        let fire = late.request("report").once(fire_at(hour)).await;
        let fire = fire.expect("answered");
        assert_eq!(fire.is_some(), is_new, "{hour}");
        if let Some(fire) = fire {
            fire.done().await;
        }
        late.shutdown(PATIENCE).await;
    }
}

/// Followers see each leader and its label, and the next one leads.
pub(crate) async fn followers_see_each_leader(url: &str) {
    let (one, other) = (client_at(url, LONG).await, client_at(url, LONG).await);
    let leads = one.request("leader").label("blue").acquire().await;
    let leads = leads.expect("free");
    let mut holders = other.holders("leader").expect("a name");
    let seen = soon(holders.next()).await;
    let seen = seen.expect("answered").expect("one leads");
    assert_eq!(
        (seen.info.label.as_deref(), seen.token),
        (Some("blue"), Some(leads.token()))
    );
    let next = tokio::spawn(other.request("leader").lead(async |lease| lease.token()));
    let token = leads.token();
    leads.release().await;
    let next = soon(next).await.expect("no panic").expect("it led");
    assert!(next > token, "{next} after {token}");
}

#[tokio::test]
async fn pools_keep_apart_in_memory() {
    let store = Memory::new();
    let client = async || {
        let builder = Client::builder().store(store.clone()).ttl(LONG);
        builder.build().await.unwrap()
    };
    pools_keep_apart([client().await, client().await, client().await]).await;
}

#[tokio::test]
async fn pools_keep_apart_in_a_bucket() {
    let objects = Arc::new(object_store::memory::InMemory::new());
    let client = async || {
        let bucket = Bucket::new(objects.clone(), "leases").unwrap();
        let bucket = bucket.with_look_every(Duration::from_millis(20));
        let builder = Client::builder().store(Records::new(bucket)).ttl(LONG);
        builder.build().await.unwrap()
    };
    pools_keep_apart([client().await, client().await, client().await]).await;
}

#[tokio::test]
async fn pools_keep_apart_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases").display());
    pools_keep_apart(clients_at(&url).await).await;
}

#[tokio::test]
async fn pools_keep_apart_on_redis() {
    let server = RedisServer::start().await;
    pools_keep_apart(clients_at(&server.url()).await).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn pools_keep_apart_on_postgres() {
    let url = PostgresServer::database().await.url();
    postgres::set_up(&url).await;
    pools_keep_apart(clients_at(&url).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_keep_apart_on_etcd() {
    pools_keep_apart(clients_at(&EtcdServer::shared().await.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_keep_apart_on_kubernetes() {
    let api = fake::with(Vec::new()).await;
    pools_keep_apart(clients_at(&api.url("a")).await).await;
}

#[tokio::test]
async fn pools_keep_apart_on_zookeeper() {
    pools_keep_apart(clients_at(&ZookeeperServer::chroot().await).await).await;
}

#[tokio::test]
async fn pools_keep_apart_on_a_quorum() {
    let quorum = RedisQuorum::start_with_ports(3).await;
    pools_keep_apart(clients_at(&quorum.url()).await).await;
    for server in &quorum.servers {
        server.assert_all_keys_run_out().await;
    }
}

/// On a busy machine a session of ZooKeeper takes longer to make than one request may.
async fn acquired(request: LeaseRequest) -> Lease {
    let request = request.on_outage(OutagePolicy::WaitOut);
    request.acquire().await.expect("granted at last")
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

async fn all_served(tasks: JoinSet<()>) {
    let served = tokio::time::timeout(PATIENCE * 6, tasks.join_all());
    served.await.expect("all are served");
}

async fn a_permit_is_told_from_a_name_like_one(clients: &[Client; 3]) {
    let permit = clients[0].permits("gpu", 1).acquire().await.unwrap();
    let plain = clients[1].acquire("gpu#42").await.unwrap();
    for (lease, number) in [(permit, Some(1)), (plain, None)] {
        let held = clients[2].store().inspect(lease.name(), PATIENCE).await;
        assert_eq!(held.unwrap().expect("it is held").info.permit, number);
        assert_eq!(lease.permit(), number);
        lease.release().await;
    }
}

async fn three_permits_have_three_holders_and_no_more(clients: &[Client; 3]) {
    let inside = Arc::<Inside>::default();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, inside) = (clients[task % 3].clone(), inside.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let permit = acquired(client.permits("gpu", 3)).await;
                assert!(inside.enter() <= 3);
                tokio::time::sleep(Duration::from_millis(3)).await;
                // The first ones wait until three hold at once.
                while inside.most.load(Ordering::SeqCst) < 3 {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                permit.check().unwrap();
                inside.leave();
                permit.release().await;
            }
        });
    }
    all_served(tasks).await;
}

async fn no_reader_is_beside_a_writer(clients: &[Client; 3]) {
    let (readers, writers) = (Arc::<Inside>::default(), Arc::<Inside>::default());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = clients[task % 3].clone();
        let (readers, writers) = (readers.clone(), writers.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let is_writer = (task + round) % 3 == 0;
                let (own, other) = match is_writer {
                    true => (&writers, &readers),
                    false => (&readers, &writers),
                };
                let lease = acquired(match is_writer {
                    true => client.exclusive("config"),
                    false => client.shared("config"),
                })
                .await;
                let together = own.enter();
                assert!(!is_writer || together == 1, "two writers");
                assert_eq!(other.now.load(Ordering::SeqCst), 0, "a reader and a writer");
                tokio::time::sleep(Duration::from_millis(3)).await;
                assert_eq!(other.now.load(Ordering::SeqCst), 0, "a reader and a writer");
                own.leave();
                lease.release().await;
            }
        });
    }
    all_served(tasks).await;
}

async fn waiting_clients_are_served_and_in_turn_if_there_is_a_queue(clients: &[Client; 3]) {
    let [holder, ..] = clients;
    let has_queue = holder.store().facts().has_queue;
    let door = Name::new("turns").unwrap();
    let check = async || holder.store().inspect(&door, PATIENCE).await.unwrap();
    let permit = acquired(holder.permits("turns", 1)).await;
    let (served, mut order) = mpsc::channel(3);
    let mut tasks = JoinSet::new();
    // The holder's client comes last, and its place near the permit gains it nothing.
    for (place, client) in [1, 2, 0].map(|index| (index, clients[index].clone())) {
        let served = served.clone();
        tasks.spawn(async move {
            let permit = acquired(client.permits("turns", 1)).await;
            served.send(place).await.unwrap();
            permit.release().await;
        });
        let before = tasks.len() - 1;
        let is_in_line = |held: Held| !has_queue || before == 0 || held.waiting >= Some(before);
        until_so("its place in the line", async || {
            check().await.is_some_and(is_in_line)
        })
        .await;
    }
    permit.release().await;
    all_served(tasks).await;
    let mut order = [(); 3].map(|()| order.try_recv().unwrap());
    if !has_queue {
        order.sort_unstable_by_key(|place| (*place + 2) % 3);
    }
    assert_eq!(order, [1, 2, 0]);
}

/// Returns whether a writer that was paused past its ttl can write when it wakes, although a reader came after it.
async fn late_write_lands(writing: &Client, request: LeaseRequest) -> bool {
    let mut database = rusqlite::Connection::open_in_memory().unwrap();
    let fence = Fence::new("late").unwrap();
    fence.create_table(&database).unwrap();
    let writer = acquired(writing.exclusive("late")).await;
    // It keeps its pass in a request that it has begun. Its name is freed at once, so that the test need not wait.
    let pass = writer.pass().unwrap();
    let evicted = writing
        .store()
        .evict(writer.name(), Eviction::Now, PATIENCE);
    assert!(evicted.await.unwrap());
    let reader = acquired(request).await;
    let shown = reader.pass().unwrap();
    if shown.name == *writer.name() {
        assert!(shown.token > pass.token);
        assert_eq!(reader.handle().pass().unwrap(), shown);
        let raised = fence.begin(&mut database, &reader).unwrap();
        raised.commit().unwrap();
    }
    let lands = fence.begin(&mut database, &pass).is_ok();
    reader.release().await;
    drop(writer);
    let next = acquired(writing.exclusive("late")).await;
    assert!(
        next.token() > pass.token,
        "the next writer's token is above"
    );
    assert!(shown.name != pass.name || next.token() > shown.token);
    next.release().await;
    lands
}

async fn a_late_write_is_refused_behind_a_fenced_reader_and_lands_behind_another(
    [writing, reading, _]: &[Client; 3],
) {
    let fenced = reading.request("late").shared_fenced();
    assert!(!late_write_lands(writing, fenced).await);
    // This is what the fence is for.
    assert!(late_write_lands(writing, reading.shared("late")).await);
    until_free(&**writing.store(), "late").await;
    let writer = soon(acquired(writing.exclusive("late"))).await;
    writer.release().await;
}
