//! Many clients at one server: those that wait, join or leave take nothing that a renewal needs. The long forms are in
//! `faults::postgres::crowds`.

use std::time::Duration;

use leasehold::{Client, Lease, OutagePolicy, ReleaseOutcome, WaitOrder};
use tokio::task::JoinSet;

use super::connections::count;
use super::functions::{Functions, LONG_MS};
use super::{open, set_up};
use crate::harness::leases::{client_at, take};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::times::PATIENCE;
use crate::harness::wait::{now, until};

/// A server with room for few clients, some of which hold leases.
pub(crate) struct Full {
    server: PostgresServer,
    database: Database,
    holders: Vec<(Client, Lease)>,
    waiting: JoinSet<()>,
}

impl Full {
    /// So many clients, each with a lease of this length, at a server with this room.
    pub(crate) async fn of(connections: u32, holders: usize, ttl: Duration) -> Self {
        let room = format!("max_connections={connections}");
        let server = PostgresServer::start(&["fsync=off", &room]).await;
        let database = server.database_named("postgres");
        set_up(&database.url()).await;
        let mut held = Vec::new();
        for index in 0..holders {
            let client = client_at(&database.url(), ttl).await;
            let lease = take(&client, &format!("held/{index}")).await;
            held.push((client, lease));
        }
        Self {
            server,
            database,
            holders: held,
            waiting: JoinSet::new(),
        }
    }

    /// So many further clients wait in turn for the first of these leases, for as long as it takes.
    pub(crate) fn wait(&mut self, clients: usize) {
        for _ in 0..clients {
            let url = self.database.url();
            self.waiting.spawn(async move {
                let client = client_at(&url, Duration::from_secs(20)).await;
                let request = client.request("held/0").order(WaitOrder::Fair);
                let waited = request.on_outage(OutagePolicy::WaitOut).acquire().await;
                drop(waited.expect("granted"));
            });
        }
    }

    /// The server stops, and answers again after a second.
    pub(crate) async fn restart(&self) {
        let begun = now();
        self.server.end("INT").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.server.start_again().await;
        println!("it was down for {:?}", now().since(begun));
    }

    /// Returns how many leases were lost within this time.
    pub(crate) async fn lost_within(&self, time: Duration) -> usize {
        tokio::time::sleep(time).await;
        let lost = self
            .holders
            .iter()
            .filter_map(|(_, lease)| lease.check().err());
        lost.inspect(|error| println!("{error}")).count()
    }
}

#[tokio::test]
async fn waiting_clients_that_find_no_room_cost_no_lease_at_a_restart() {
    let ttl = Duration::from_secs(10);
    let mut full = Full::of(24, 8, ttl).await;
    full.restart().await;
    assert_eq!(full.lost_within(ttl).await, 0, "without waiting clients");
    full.wait(40);
    assert_eq!(full.lost_within(ttl / 2).await, 0, "beside a crowd");
    full.restart().await;
    assert_eq!(full.lost_within(ttl * 5 / 4).await, 0, "of eight");
}

#[tokio::test]
async fn a_client_that_only_waits_has_one_connection() {
    let database = super::database().await;
    let holder = client_at(&database.url(), Duration::from_secs(30)).await;
    let lease = take(&holder, "a").await;
    let before = count(&database).await;
    let waiter = client_at(&database.url(), Duration::from_secs(30)).await;
    let waiting = tokio::spawn(async move {
        let request = waiter.request("a").order(WaitOrder::Fair);
        let lease = request.acquire_within(PATIENCE * 3).await;
        (waiter, lease.expect("granted"))
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    until("one connection for the client that waits", async || {
        (count(&database).await == before + 1).then_some(())
    })
    .await;
    let begun = now();
    lease.release().await;
    let (_waiter, lease) = waiting.await.expect("no panic");
    assert!(now().since(begun) < Duration::from_secs(1), "by a notice");
    lease.check().expect("held");
}

/// A client that holds two leases of rows that nobody locks, and drops guards of rows that a stranger locks.
pub(crate) async fn dropped_guards_of_locked_rows(others: usize, dropped: usize) {
    let ttl = Duration::from_millis(1_500);
    let database = super::database().await;
    let client = client_at(&database.url(), ttl).await;
    let mut kept = Vec::new();
    for index in 0..others {
        kept.push(take(&client, &format!("kept/{index}")).await);
    }
    let lost = || kept.iter().filter(|lease| lease.check().is_err()).count();
    tokio::time::sleep(ttl * 2).await;
    assert_eq!(lost(), 0, "without dropped guards");
    let mut guards = Vec::new();
    for index in 0..dropped {
        guards.push(take(&client, &format!("locked/{index}")).await);
    }
    let stranger = database.connect().await;
    let lock = "BEGIN; SELECT FROM leasehold.lease WHERE name LIKE 'locked/%' FOR UPDATE";
    stranger.batch_execute(lock).await.expect("locked");
    drop(guards);
    tokio::time::sleep(ttl * 3).await;
    assert_eq!(lost(), 0, "of {others}, whose rows nobody locks");
}

#[tokio::test]
async fn dropped_guards_of_locked_rows_delay_no_renewal_of_others() {
    dropped_guards_of_locked_rows(5, 20).await;
}

#[tokio::test]
async fn a_client_that_joins_a_queue_leaves_the_row_to_the_holders_renewal() {
    let (database, leases) = Functions::fresh().await;
    let joining = Functions::of(&database, "leasehold").await;
    let renewed_beside = async |client: &str| {
        joining.run("BEGIN").await.expect("begun");
        let joined = joining.queue("a", client, 0).await;
        assert!(joined.outcome == "held", "{joined:?}");
        let letters = leases.renew(&[("a", "h")]).await;
        joining.run("COMMIT").await.expect("done");
        letters
    };
    leases.acquire("a", "h", LONG_MS).await;
    // The first one notes in the row that there is a queue, and so has it locked until its commit.
    assert_eq!(renewed_beside("c").await, "x");
    for client in ["d", "e"] {
        assert_eq!(renewed_beside(client).await, "y", "{client} joins");
    }
}

#[tokio::test]
async fn a_release_waits_for_those_who_join_a_queue_and_serves_them() {
    let (database, leases) = Functions::fresh().await;
    let joining = Functions::of(&database, "leasehold").await;
    leases.acquire("a", "h", LONG_MS).await;
    // A dead client, whose queue stays.
    leases.queue("a", "c", 0).await;
    let dead = "UPDATE leasehold.queue SET alive_until = '-infinity'";
    leases.run(dead).await.expect("it died");
    joining.run("BEGIN").await.expect("begun");
    joining.queue("a", "d", 0).await;
    let early = leases.run("SELECT * FROM leasehold.release_1('a', 'h', 0, 2000)");
    let early = early.await.expect_err("it waits for the join");
    assert_eq!(early.code().expect("a code").code(), "55P03", "{early}");
    joining.run("COMMIT").await.expect("done");
    assert_eq!(leases.release("a", "h").await.0, "released");
    assert_eq!(leases.row("a").await, Some((3, "d".into())));
}

#[tokio::test]
async fn a_renewal_waits_for_a_row_that_is_locked_for_a_while() {
    let database = super::database().await;
    let store = open(&database.url());
    let claim = crate::harness::asking::claim("a", crate::harness::times::LONG);
    crate::harness::asking::granted(&*store, &claim).await;
    let stranger = database.connect().await;
    let lock = "BEGIN; SELECT FROM leasehold.lease WHERE name = 'a' FOR UPDATE";
    stranger.batch_execute(lock).await.expect("locked");
    let (renewed, ()) = tokio::join!(crate::harness::asking::renewed(&*store, &claim), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        stranger.batch_execute("COMMIT").await.expect("let go");
    });
    assert!(
        matches!(renewed, leasehold::store::Outcome::Renewed),
        "{renewed:?}"
    );
}

/// As under a release that the watchdog sends again and again: its answer is that of the pool.
#[tokio::test]
async fn a_dropped_guard_is_released_while_its_client_holds_others() {
    let database = super::database().await;
    let client = client_at(&database.url(), Duration::from_secs(30)).await;
    let kept = take(&client, "kept").await;
    drop(take(&client, "dropped").await);
    let other = client_at(&database.url(), Duration::from_secs(30)).await;
    let request = other.request("dropped").acquire_within(PATIENCE);
    let lease = request.await.expect("free again");
    assert_eq!(lease.release().await, ReleaseOutcome::Released);
    kept.check().expect("held");
}
