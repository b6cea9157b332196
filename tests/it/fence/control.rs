//! The control: one little workload, with the fence and without. Two processes take turns at a lease; each reads a total,
//! works, checks its lease and writes the total back. One of them is stopped on its way, until the other has been
//! granted the lease and has written; then it goes on, and does not know.
//!
//! Without the fence it must be seen to lose writes, or this would prove nothing. `LEASEHOLD_TEST_PAUSES=200` makes it
//! longer.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::time::timeout;

use self::storage::Storage;
use self::writer::{Line, Role};
use crate::harness::bucket_server::{BucketServer, Program};
use crate::harness::child::stop;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::PATIENCE;

mod storage;
mod writer;

/// What came of so many pauses.
#[derive(Debug, Default)]
struct Tally {
    /// Writes that storage acknowledged.
    acknowledged: u64,
    /// What the total says.
    total: u64,
    /// Writes that a fence refused.
    refused: u64,
    /// Rounds that a writer gave up, because it knew that its lease was over.
    given_up: u64,
}

impl Tally {
    fn lost(&self) -> u64 {
        self.acknowledged - self.total
    }
}

/// A process that writes.
struct Writer {
    process: Child,
    line: Line,
}

impl Writer {
    async fn start(test: &str, role: &Role, listener: &UnixListener) -> Self {
        let process = Command::new(env::current_exe().expect("this test"))
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(Role::VARIABLE, role.to_text())
            .stdout(Stdio::null())
            .spawn()
            .expect("this test starts");
        let (stream, _) = timeout(PATIENCE, listener.accept())
            .await
            .expect("it is soon there")
            .expect("it connects");
        Self {
            process,
            line: Line::new(stream),
        }
    }

    fn stop(&self) {
        stop(Pid::from_child(&self.process));
    }

    fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it is our child");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Two writers, one of which is stopped in each round.
async fn pause_writers(test: &str, storage: &Storage, leases: &str, is_fenced: bool) -> Tally {
    let folder = TempDir::new().expect("a temporary folder");
    let socket = folder.path().join("orders");
    let listener = UnixListener::bind(&socket).expect("the folder is ours");
    storage.prepare().await;
    let role = Role {
        socket,
        leases: leases.into(),
        storage: storage.clone(),
        is_fenced,
    };
    let mut stopped = Writer::start(test, &role, &listener).await;
    let mut rival = Writer::start(test, &role, &listener).await;
    let mut tally = Tally::default();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..pauses() {
        let point = ["granted", "read", "checked"][random.usize(..3)];
        for outcome in round(&mut stopped, &mut rival, point).await {
            match outcome.as_str() {
                "wrote" => tally.acknowledged += 1,
                "refused" => tally.refused += 1,
                "given up" => tally.given_up += 1,
                other => panic!("a writer answered {other}"),
            }
        }
        std::mem::swap(&mut stopped, &mut rival);
    }
    tally.total = storage.total().await;
    println!(
        "{test} fenced={is_fenced} pauses={} lost={} {tally:?}",
        pauses(),
        tally.lost()
    );
    tally
}

/// How both writers fared while one was stopped at this point.
async fn round(stopped: &mut Writer, rival: &mut Writer, point: &str) -> [String; 2] {
    stopped.line.say(point).await;
    let reached = stopped.line.hear().await;
    if reached != "there" {
        // It lost its lease before it came so far: a busy machine.
        rival.line.say("nowhere").await;
        return [reached, rival.line.hear().await];
    }
    stopped.stop();
    // Nothing but the write, or what is left before it, happens when it goes on.
    stopped.line.say("on").await;
    rival.line.say("nowhere").await;
    let ahead = timeout(Duration::from_secs(3), rival.line.hear()).await;
    // Without an answer it was stopped inside a renewal, with the lease file locked: then this round has no rival.
    stopped.go_on();
    let behind = stopped.line.hear().await;
    match ahead {
        Ok(ahead) => [ahead, behind],
        Err(_) => [rival.line.hear().await, behind],
    }
}

fn pauses() -> u64 {
    let told = env::var("LEASEHOLD_TEST_PAUSES").ok();
    told.map_or(20, |told| told.parse().expect("a number of pauses"))
}

/// Both runs, in this process or in a writer's.
async fn loses_only_unfenced(test: &str, mut storage: impl AsyncFnMut() -> (Storage, String)) {
    let (first, leases) = storage().await;
    let unfenced = pause_writers(test, &first, &leases, false).await;
    assert!(
        unfenced.lost() > 0,
        "the control lost nothing: {unfenced:?}"
    );
    let (second, leases) = storage().await;
    let fenced = pause_writers(test, &second, &leases, true).await;
    assert_eq!(fenced.lost(), 0, "{fenced:?}");
    assert!(fenced.refused > 0, "{fenced:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_writer_loses_writes_on_sqlite_only_without_the_fence() {
    if let Some(role) = Role::of_this_process() {
        return role.play().await;
    }
    let mut folders = Vec::new();
    let name = "fence::control::a_paused_writer_loses_writes_on_sqlite_only_without_the_fence";
    loses_only_unfenced(name, async || {
        let folder = TempDir::new().expect("a temporary folder");
        // A file of its own: a writer that is stopped inside its transaction must not stop the leases.
        let leases = format!("sqlite:{}", folder.path().join("leases.db").display());
        let ledger = folder.path().join("ledger.db");
        folders.push(folder);
        (Storage::Sqlite(ledger), leases)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_writer_loses_writes_on_postgres_only_without_the_fence() {
    if let Some(role) = Role::of_this_process() {
        return role.play().await;
    }
    let redis = RedisServer::start().await;
    let name = "fence::control::a_paused_writer_loses_writes_on_postgres_only_without_the_fence";
    loses_only_unfenced(name, async || {
        let database = PostgresServer::database().await;
        (Storage::Postgres(database.url()), redis.url())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_writer_loses_writes_on_redis_only_without_the_fence() {
    if let Some(role) = Role::of_this_process() {
        return role.play().await;
    }
    let redis = RedisServer::start().await;
    let name = "fence::control::a_paused_writer_loses_writes_on_redis_only_without_the_fence";
    loses_only_unfenced(name, async || (Storage::Redis(redis.url()), redis.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_writer_loses_writes_in_a_bucket_only_without_the_fence() {
    if let Some(role) = Role::of_this_process() {
        return role.play().await;
    }
    let name = "fence::control::a_paused_writer_loses_writes_in_a_bucket_only_without_the_fence";
    in_a_bucket(name, BucketServer::shared().await).await;
}

/// A part of `faults::object_store`, whose writers are this test.
pub(crate) async fn on_another_bucket_server(test: &str, program: Program) {
    if let Some(role) = Role::of_this_process() {
        return role.play().await;
    }
    in_a_bucket(test, &BucketServer::start(program).await).await;
}

/// The control in a bucket of this server.
async fn in_a_bucket(test: &str, server: &BucketServer) {
    let redis = RedisServer::start().await;
    loses_only_unfenced(test, async || {
        let prefix = format!("control/{:x}", fastrand::u64(..));
        (Storage::Bucket(server.url(), prefix), redis.url())
    })
    .await;
}
