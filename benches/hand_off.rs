//! How fast a freed lease reaches a waiting client in another process, and what waiting costs the server.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench hand_off
//! ```
//!
//! The contenders are processes of their own: this bench, started again. Each acquires the name, holds it for six
//! milliseconds, notes when it releases, and waits again. A hand-off is the time from the release of one contender to
//! the grant of the other, on the clock that both read.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

use std::time::{Duration, Instant};

use deadpool_redis::redis::aio::{MultiplexedConnection, PubSub};
use deadpool_redis::redis::{self, Script, Value, cmd};
use futures_util::StreamExt as _;
use leasehold::ClientId;
use leasehold::{Client, Holder};
use leasehold_benches as yardstick;
use rslock::LockManager;
use tokio::task::JoinSet;
use yardstick::contender::{Contender, Turn, contend, hand_off, now, tell};
use yardstick::{Server, case, figure, seconds};

const RUNS: usize = 9;
/// Turns in one block; ours and the other alternate block by block, so that both meet the same noise of the machine.
const BLOCK: usize = 50;
/// The same for the contender that polls.
const POLLED_TURNS: usize = 10;
/// A contender that has just released waits this long, so that it loses the next race.
const PAUSE: Duration = Duration::from_millis(2);
/// The same for the contender that polls: longer than it sleeps between two tries, so that the other one gets the lock.
const POLLED_PAUSE: Duration = Duration::from_millis(250);
const POLLED_HOLD: Duration = Duration::from_millis(350);
/// Long enough for the other contender to be back from its pause and asleep in the queue.
const HOLD: Duration = Duration::from_millis(6);
const TTL: Duration = Duration::from_secs(30);
/// Processes whose waiting tasks share one name.
const SHARING: usize = 10;
/// Long enough that a contender that released is in the queue again before the others have had their turns, also on two
/// cores.
const SHARED_HOLD: Duration = Duration::from_millis(1);
const NAMES: usize = 10_000;
/// The channel with which a subscription finds out whether it may have any.
const OTHERS: usize = 1;
/// The URL of the server; set only for a contender.
const CONTENDER: &str = "LEASEHOLD_BENCH_CONTENDER_URL";
/// Makes a contender take its turns in a spawned task. Then the worker of the runtime that reads the notice also runs
/// the task; the main task is woken from another thread.
const SPAWNED: &str = "LEASEHOLD_BENCH_CONTENDER_SPAWNED";

fn contender(server: &Server) -> Contender {
    Contender::start([(CONTENDER, server.url())])
}

fn spawned_contender(server: &Server) -> Contender {
    Contender::start([(CONTENDER, server.url()), (SPAWNED, "1".into())])
}

fn compare(contenders: &mut [Contender], name: &str, ours: &str, other: &str, runs: usize) {
    let run = |_| (hand_off(contenders, ours), hand_off(contenders, other));
    let runs: Vec<_> = (0..runs).map(run).collect();
    case(name, "us", &runs);
}

/// Measures how many scripts one grant costs the server when ten processes take turns, and how evenly they do.
async fn share(server: &Server, waiters: usize, turns: usize) {
    let mut contenders: Vec<_> = (0..SHARING).map(|_| contender(server)).collect();
    // Each connects and subscribes once, as the peers of a warm service have done.
    contend(&mut contenders, "share 1 1");
    let before = scripts(server).await;
    let granted = contend(&mut contenders, &format!("share {waiters} {turns}"));
    let scripts = scripts(server).await - before;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let per_grant = scripts as f64 / granted.len() as f64;
    let all = waiters * SHARING;
    figure(
        &format!("evalsha_per_grant_{all}_waiters"),
        "scripts",
        &[per_grant],
    );
    figure(
        &format!("grants_apart_{all}_waiters"),
        "grants",
        &[apart(&granted, waiters * turns)],
    );
}

/// Returns by how many grants two processes differ when the first one is done, counted from when all wait.
fn apart(granted: &[(Turn, usize)], each: usize) -> f64 {
    let mut counts = [0_i32; SHARING];
    let done = granted.iter().position(|(_, contender)| {
        counts[*contender] += 1;
        counts[*contender] == i32::try_from(each).expect("a small number")
    });
    let mut counts = [0_i32; SHARING];
    for (_, contender) in &granted[2 * SHARING..=done.expect("each was granted so often")] {
        counts[*contender] += 1;
    }
    let (most, least) = (counts.iter().max(), counts.iter().min());
    f64::from(most.expect("ten processes") - least.expect("ten processes"))
}

async fn scripts(server: &Server) -> u64 {
    let mut connection = server.connect().await;
    let info: String = cmd("INFO")
        .arg("commandstats")
        .query_async(&mut connection)
        .await
        .expect("info");
    let calls = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
        .and_then(|line| line.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// Measures two clients with ten thousand names that one holds and the other waits for.
async fn many_names(server: &Server) {
    let (holder, waiting) = (client(&server.url()).await, client(&server.url()).await);
    let mut leases = Vec::with_capacity(NAMES);
    for index in 0..NAMES {
        let name = format!("many-{index}");
        leases.push(holder.acquire(name).await.expect("it is free"));
    }
    let before = resident_bytes();
    let mut waiters = JoinSet::new();
    for index in 0..NAMES {
        let client = waiting.clone();
        waiters.spawn(async move { client.acquire(format!("many-{index}")).await });
    }
    let mut connection = server.connect().await;
    let mut ask = async |words: &[&str]| -> Value {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command
            .query_async(&mut connection)
            .await
            .expect("answered")
    };
    let is_listening =
        |stats: &str| stats.contains(&format!("pubsub_channels:{}\r", NAMES + OTHERS));
    while !is_listening(&text(ask(&["INFO", "stats"]).await)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let list = ask(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let list = text(list);
    let bytes = resident_bytes().saturating_sub(before);
    let start = Instant::now();
    drop(leases);
    let outcomes = waiters.join_all().await;
    let took = seconds(start);
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    for (name, unit, value) in [
        ("subscriptions", "connections", list.lines().count() as f64),
        ("failed", "waits", failed as f64),
        ("bytes_per_waiter", "bytes", bytes as f64 / NAMES as f64),
        ("handed_over_in", "s", took),
    ] {
        figure(&format!("contended_{NAMES}_names_{name}"), unit, &[value]);
    }
}

fn text(reply: Value) -> String {
    redis::from_redis_value(reply).expect("text")
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("on Linux");
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: usize| pages * 4_096)
}

async fn client(url: &str) -> Client {
    let builder = Client::builder().store_url(url).ttl(TTL);
    builder.build().await.expect("the store opens")
}

/// The ways of a contender: each order is one of them and a number of turns.
struct Way {
    client: Client,
    bare: Bare,
    rslock: LockManager,
}

/// The bare scripts, and a subscription of its own.
struct Bare {
    connection: MultiplexedConnection,
    notices: PubSub,
    acquire: Script,
    release: Script,
    id: ClientId,
}

const BARE: [&str; 5] = [
    "leasehold:{bare}",
    "leasehold:{20000}:mark",
    "leasehold:{bare}:queue",
    "leasehold:{bare}:waiting",
    "leasehold:node",
];

impl Bare {
    async fn open(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a valid URL");
        let mut notices = client.get_async_pubsub().await.expect("the server answers");
        let subscribed = notices.subscribe(format!("{}:freed", BARE[0])).await;
        subscribed.expect("subscribed");
        let connection = client.get_multiplexed_async_connection().await;
        Self {
            connection: connection.expect("the server answers"),
            notices,
            acquire: Script::new(concat!(
                include_str!("../src/store/redis/protocol/lease.lua"),
                include_str!("../src/store/redis/protocol/grant.lua"),
                include_str!("../src/store/redis/protocol/queue.lua"),
                include_str!("../src/store/redis/protocol/origin.lua"),
                include_str!("../src/store/redis/protocol/node.lua"),
                include_str!("../src/store/redis/protocol/acquire.lua")
            )),
            release: Script::new(concat!(
                include_str!("../src/store/redis/protocol/lease.lua"),
                include_str!("../src/store/redis/protocol/grant.lua"),
                include_str!("../src/store/redis/protocol/queue.lua"),
                include_str!("../src/store/redis/protocol/release.lua")
            )),
            id: ClientId::draw(),
        }
    }

    async fn turn(&mut self) -> Turn {
        let holder = Holder::draw(self.id).expect("random bits").to_string();
        while !self.is_granted(&holder).await {
            self.notices.on_message().next().await.expect("a notice");
        }
        let granted = now();
        tokio::time::sleep(HOLD).await;
        let released = now();
        let released_reply: Value = self
            .release
            .key(&BARE[..])
            .arg(&holder)
            .arg(0)
            .invoke_async(&mut self.connection)
            .await
            .expect("the script runs");
        drop(released_reply);
        (granted, released)
    }

    async fn is_granted(&mut self, holder: &str) -> bool {
        let reply: Value = self
            .acquire
            .key(&BARE[..])
            .arg(holder)
            .arg(30_000)
            .arg(0)
            .arg(r#"{"host":"bench","pid":1}"#)
            .invoke_async(&mut self.connection)
            .await
            .expect("the script runs");
        matches!(&reply, Value::BulkString(text) if text.starts_with(b"granted "))
    }
}

async fn lease_turn(client: &Client, name: &str, hold: Duration) -> Turn {
    let lease = client.request(name).acquire().await;
    let lease = lease.expect("the store answers");
    let granted = now();
    tokio::time::sleep(hold).await;
    let released = now();
    lease.release().await;
    (granted, released)
}

impl Way {
    async fn open(url: &str) -> Self {
        Self {
            client: client(url).await,
            bare: Bare::open(url).await,
            rslock: LockManager::new(vec![url.to_owned()]),
        }
    }

    async fn go(&mut self, way: &str, turns: usize) -> Vec<Turn> {
        let mut all = Vec::new();
        for _ in 0..turns {
            let (turn, pause) = match way {
                "lease" => (lease_turn(&self.client, "lease", HOLD).await, PAUSE),
                "bare" => (self.bare.turn().await, PAUSE),
                _ => (self.rslock_turn().await, POLLED_PAUSE),
            };
            all.push(turn);
            tokio::time::sleep(pause).await;
        }
        all
    }

    async fn rslock_turn(&self) -> Turn {
        let lock = loop {
            // rslock gives up after a few tries.
            if let Ok(lock) = self.rslock.lock("rslock", TTL).await {
                break lock;
            }
        };
        let granted = now();
        tokio::time::sleep(POLLED_HOLD).await;
        let released = now();
        self.rslock.unlock(&lock).await;
        (granted, released)
    }

    /// Runs this many tasks, each of which takes this many turns.
    async fn share(&self, waiters: usize, turns: usize) -> Vec<Turn> {
        let mut tasks = JoinSet::new();
        for _ in 0..waiters {
            let client = self.client.clone();
            tasks.spawn(async move {
                let mut all = Vec::new();
                for _ in 0..turns {
                    let turn = lease_turn(&client, "shared", SHARED_HOLD);
                    all.push(turn.await);
                }
                all
            });
        }
        tasks.join_all().await.concat()
    }
}

async fn serve(url: &str) {
    let mut way = Way::open(url).await;
    let mut order = String::new();
    while std::io::stdin().read_line(&mut order).expect("UTF-8") > 0 {
        let mut words = order.trim_end().split(' ');
        let name = words.next().expect("a way");
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
        let turns = match name {
            "share" => way.share(number(), number()).await,
            name => way.go(name, number()).await,
        };
        tell(&turns);
        order.clear();
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Ok(url) = std::env::var(CONTENDER) {
        if std::env::var(SPAWNED).is_err() {
            return runtime.block_on(serve(&url));
        }
        let serving = runtime.spawn(async move { serve(&url).await });
        return runtime.block_on(serving).expect("no panic");
    }
    runtime.block_on(async {
        let server = Server::start().await;
        let turns = |way: &str| format!("{way} {BLOCK}");
        let warm = |two: &mut [Contender]| {
            for way in ["lease", "bare"] {
                contend(two, &turns(way));
            }
        };
        let mut two = [spawned_contender(&server), spawned_contender(&server)];
        warm(&mut two);
        let (ours, bare) = (turns("lease"), turns("bare"));
        compare(&mut two, "hand_off_spawned_p50_vs_bare", &ours, &bare, RUNS);
        drop(two);
        let mut two = [contender(&server), contender(&server)];
        warm(&mut two);
        compare(&mut two, "hand_off_p50_vs_bare", &ours, &bare, RUNS);
        let polled = format!("rslock {POLLED_TURNS}");
        compare(&mut two, "hand_off_p50_vs_rslock", &ours, &polled, RUNS / 3);
        drop(two);
        share(&server, 1, 200).await;
        share(&server, 100, 3).await;
        many_names(&server).await;
    });
}
