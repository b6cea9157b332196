//! Processes that take turns on the embedded store.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::Queued;
use leasehold::{Attempt, Client, Lease};
use rusqlite::Connection;
use rusqlite::types::FromSql;
use tempfile::TempDir;

use super::{child, waiter};
use crate::harness::leases::client_at;
use crate::harness::subprocess::Subprocess;
use crate::harness::times::{LONG, STORED_TTL};
use crate::harness::wait::{soon, until_so};

/// A file of leases, which ends with its folder.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("leases.sqlite")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    async fn client(&self) -> Client {
        client_at(&self.url(), STORED_TTL).await
    }

    /// A lease of a minute, which no test outlives.
    async fn held(&self) -> (Client, Lease) {
        let client = self.client().await;
        let lease = client.request("a").ttl(LONG).acquire().await.unwrap();
        (client, lease)
    }

    /// A process that waits in turn, once it stands in line as the last of so many, and listens: it has polled again
    /// then, and leaves the file alone for a while.
    async fn in_queue(&self, clients: u32) -> Subprocess {
        self.in_queue_for(STORED_TTL, clients).await
    }

    /// The same for a lease of this ttl.
    async fn in_queue_for(&self, ttl: Duration, clients: u32) -> Subprocess {
        let mut child = child::start(&self.url(), ttl);
        child.order("acquire a");
        self.has_listening(clients).await;
        child
    }

    /// Returns once so many clients stand in line, and the last of them has polled again.
    async fn has_listening(&self, clients: u32) {
        self.has_queue(clients).await;
        let last_claim = "SELECT alive_until_ns FROM line ORDER BY place DESC LIMIT 1";
        let joined: i64 = self.value(last_claim);
        until_so("its second claim", async || {
            self.value::<i64>(last_claim) > joined
        })
        .await;
    }

    /// Returns once so many clients stand in line.
    async fn has_queue(&self, clients: u32) {
        until_so("the line", async || self.count("line") == clients).await;
    }

    fn count(&self, table: &str) -> u32 {
        self.value(&format!("SELECT count(*) FROM {table}"))
    }

    fn value<T: FromSql>(&self, sql: &str) -> T {
        let file = Connection::open(self.file()).unwrap();
        file.query_row(sql, (), |row| row.get(0)).unwrap()
    }
}

fn local_now() -> Instant {
    Monotonic.now()
}

/// The token that the child was granted.
async fn token_answered(child: Subprocess) -> (Subprocess, u64) {
    let answering = tokio::task::spawn_blocking(move || {
        let token = child.answer().parse().unwrap();
        (child, token)
    });
    soon(answering).await.unwrap()
}

#[tokio::test]
async fn processes_are_served_in_the_order_in_which_they_joined() {
    let bench = Bench::new();
    let (_holder, lease) = bench.held().await;
    let mut children = Vec::new();
    for place in 0..6 {
        children.push(bench.in_queue(place + 1).await);
    }
    let mut last = lease.token().get();
    let freed = local_now();
    lease.release().await;
    for child in children {
        let (mut child, token) = token_answered(child).await;
        assert!(token > last, "{token} after {last}");
        last = token;
        child.order("release a");
        assert_eq!(child.answer(), "Released");
    }
    let took = local_now().since(freed);
    assert!(
        took < Duration::from_secs(2),
        "nobody was passed over: {took:?}"
    );
    println!("six hand-offs between processes took {took:?}");
    assert_eq!((bench.count("line"), bench.count("lease")), (0, 0));
}

/// Long before anything that is polled by time.
const AT_ONCE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn processes_that_were_killed_in_the_queue_cost_nothing_at_their_turn() {
    let bench = Bench::new();
    let (_holder, lease) = bench.held().await;
    let mut dead = Vec::new();
    for place in 0..3 {
        dead.push(bench.in_queue(place + 1).await);
    }
    let next = bench.client().await;
    let next = waiter(&next);
    bench.has_listening(4).await;
    dead.iter_mut().for_each(Subprocess::kill);
    let freed = local_now();
    lease.release().await;
    drop(soon(next).await.unwrap());
    let took = local_now().since(freed);
    println!("three dead processes at their turn cost {took:?}");
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(bench.count("line"), 0);
}

#[tokio::test]
async fn a_process_that_stands_still_at_its_turn_costs_three_seconds() {
    let bench = Bench::new();
    let (_holder, lease) = bench.held().await;
    let still = bench.in_queue_for(LONG, 1).await;
    let next = bench.client().await;
    let next = waiter(&next);
    bench.has_listening(2).await;
    still.pause();
    let freed = local_now();
    lease.release().await;
    let lease = soon(next).await.unwrap();
    let took = local_now().since(freed);
    println!("a process that stands still cost {took:?}");
    let turn = Queued::LONGEST_TERM..Queued::LONGEST_TERM + AT_ONCE;
    assert!(turn.contains(&took), "{took:?}");
    // What it was granted is over; it joins again, and has its turn.
    let token = lease.token().get();
    still.resume();
    bench.has_queue(1).await;
    lease.release().await;
    let (_still, later) = token_answered(still).await;
    assert!(later > token, "{later} after {token}");
}

#[tokio::test]
async fn a_holder_and_the_first_of_the_queue_that_were_killed_cost_little_more_than_the_lease() {
    let bench = Bench::new();
    let mut holder = child::start(&bench.url(), STORED_TTL);
    holder.order("acquire a");
    holder.answer();
    let mut first = bench.in_queue_for(LONG, 1).await;
    // Its next claim comes after five seconds, later than what is measured.
    let second = bench.in_queue_for(LONG, 2).await;
    for killed in [&mut first, &mut holder] {
        killed.kill();
    }
    let killed = local_now();
    token_answered(second).await;
    let took = local_now().since(killed);
    println!("a lease of {STORED_TTL:?} was taken over after {took:?}");
    assert!(took < STORED_TTL * 2, "{took:?}");
}

#[tokio::test]
async fn a_process_that_was_dead_for_longer_than_its_term_costs_nothing() {
    let bench = Bench::new();
    let (_holder, lease) = bench.held().await;
    let mut dead = bench.in_queue(1).await;
    dead.kill();
    let file = Connection::open(bench.file()).unwrap();
    let over = file.execute("UPDATE line SET alive_until_ns = 1", ());
    assert_eq!(over, Ok(1));
    let next = bench.client().await;
    let next = waiter(&next);
    bench.has_queue(1).await;
    let freed = local_now();
    lease.release().await;
    drop(soon(next).await.unwrap());
    let took = local_now().since(freed);
    assert!(took < Duration::from_millis(900), "{took:?}");
    assert_eq!(bench.count("line"), 0, "the dead are swept");
}

#[tokio::test]
async fn a_lease_that_runs_out_goes_to_the_first_client_of_the_queue() {
    let bench = Bench::new();
    let mut holder = child::start(&bench.url(), STORED_TTL);
    holder.order("acquire a");
    holder.answer();
    let first = bench.in_queue(1).await;
    let second = bench.in_queue(2).await;
    holder.kill();
    let killed = local_now();
    let (mut first, one) = token_answered(first).await;
    let took = local_now().since(killed);
    assert!(took < STORED_TTL + Duration::from_secs(1), "{took:?}");
    first.order("release a");
    let (_second, two) = token_answered(second).await;
    assert!(one < two);
}

/// No client was granted anything since they died, so they are still in the file.
#[tokio::test]
async fn a_client_behind_dead_ones_only_is_served_when_the_holders_time_is_over() {
    let bench = Bench::new();
    let mut holder = child::start(&bench.url(), STORED_TTL);
    holder.order("acquire a");
    holder.answer();
    let dead = "INSERT INTO line (name, place, client, boot, alive_until_ns) SELECT name, 1, 'dead', boot, 1 FROM lease";
    let file = Connection::open(bench.file()).unwrap();
    assert_eq!(file.execute(dead, ()), Ok(1));
    let next = bench.client().await;
    let next = waiter(&next);
    until_so("the client to wait", async || {
        bench.value::<u32>("SELECT count(holder) FROM line") == 1
    })
    .await;
    holder.kill();
    let killed = local_now();
    drop(soon(next).await.unwrap());
    let took = local_now().since(killed);
    assert!(took < STORED_TTL + Duration::from_millis(500), "{took:?}");
}

/// No process writes to the file at that moment.
#[tokio::test]
async fn a_name_that_was_kept_for_a_moment_is_taken_when_the_moment_is_over() {
    let bench = Bench::new();
    // Longer than until a third claim, which is the first that is seen if the first two were too fast.
    let kept_for = Duration::from_secs(5);
    let holder = bench.client().await;
    let granted = local_now();
    let kept = holder.request("a").ttl(LONG).hold_at_least(kept_for);
    let lease = kept.acquire().await.unwrap();
    let next = bench.client().await;
    let next = waiter(&next);
    bench.has_listening(1).await;
    lease.release().await;
    drop(soon(next).await.unwrap());
    let took = local_now().since(granted);
    assert!(took >= kept_for, "{took:?}");
    assert!(took < kept_for + Duration::from_millis(500), "{took:?}");
}

#[tokio::test]
async fn no_try_overtakes_a_process_that_waits() {
    let bench = Bench::new();
    let (other, mut lease) = bench.held().await;
    for _ in 0..5 {
        let child = bench.in_queue(1).await;
        let hammering = tokio::spawn({
            let other = other.clone();
            async move {
                loop {
                    let attempt = other.request("a").ttl(LONG).try_acquire();
                    if let Attempt::Acquired(lease) = attempt.await.unwrap() {
                        return lease;
                    }
                }
            }
        });
        let before = lease.token();
        lease.release().await;
        let (mut child, token) = token_answered(child).await;
        assert!(!hammering.is_finished());
        // Once the queue is empty, the client that asks first is served.
        child.order("release a");
        lease = soon(hammering).await.unwrap();
        assert!(before.get() < token && token < lease.token().get());
    }
}

#[tokio::test]
async fn a_process_whose_wait_ends_leaves_the_queue() {
    let bench = Bench::new();
    let (_holder, lease) = bench.held().await;
    let gone = bench.client().await;
    let waiting = waiter(&gone);
    bench.has_queue(1).await;
    let next = bench.in_queue(2).await;
    waiting.abort();
    until_so("its claim to be out of the queue", async || {
        bench.value::<u32>("SELECT count(holder) FROM line") == 1
    })
    .await;
    lease.release().await;
    token_answered(next).await;
}

#[tokio::test]
async fn a_wait_that_ends_during_its_first_claim_leaves_the_queue_empty() {
    let bench = Bench::new();
    let (_holder, _lease) = bench.held().await;
    let gone = bench.client().await;
    let writer = Connection::open(bench.file()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = gone.request("a").acquire();
    let patience = Duration::from_millis(50);
    assert!(tokio::time::timeout(patience, waiting).await.is_err());
    writer.execute_batch("ROLLBACK").unwrap();
    // Its next claim is answered after whatever became of that one.
    drop(gone.acquire("another").await.unwrap());
    assert_eq!(bench.value::<u32>("SELECT count(holder) FROM line"), 0);
}

#[tokio::test]
async fn a_waiter_that_is_stopped_at_its_turn_loses_the_turn_and_is_served_later() {
    let bench = Bench::new();
    let (_holder, lease) = bench.held().await;
    let stopped = bench.in_queue(1).await;
    let next = bench.client().await;
    let next = waiter(&next);
    bench.has_queue(2).await;
    stopped.pause();
    lease.release().await;
    let second = soon(next).await.unwrap();
    stopped.resume();
    // It wakes with the turn that is over, and waits again.
    bench.has_queue(1).await;
    second.check().unwrap();
    let before = second.token().get();
    second.release().await;
    let (_, after) = token_answered(stopped).await;
    assert!(after > before);
}
