//! What the scripts cost the server in time and memory, compared with those of the first layout, which had a hash for
//! each lease and a token counter with an expiry for each name. They are kept in `baseline`.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench scripts
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures with the clock that stands still in no suspend it would survive, and counts to millions"
)]

use std::time::Instant;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd, pipe};
use leasehold::{ClientId, Holder};
use leasehold_benches as yardstick;
use yardstick::{Server, case, figure, seconds};

const RUNS: usize = 21;
/// Pairs, and leases renewed together, in one block. The layouts alternate block by block.
const BLOCK: usize = 256;
/// How often the leases of a block are renewed: one call alone is over before the processor is awake.
const RENEWALS: usize = 8;
/// Calls of a block that are sent together, so that the server does not wait for the client.
const TOGETHER: usize = 64;
/// Leases held at the same time when memory is measured.
const HELD: usize = 100_000;
const NAMES: usize = 1_000_000;
const INFO: &str = r#"{"host":"build-agent-7","pid":31337}"#;

/// A way to keep leases in keys.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Ours,
    /// The same on a server that keeps out after a loss of its data.
    KeepingOut,
    Baseline,
}

/// The longest ttl of a server that keeps out, in milliseconds.
const MAX_TTL: u32 = 60_000;

/// The scripts of a layout on a server of its own.
struct Bench {
    layout: Layout,
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    renew: String,
    client: ClientId,
    _server: Server,
}

impl Bench {
    async fn start(layout: Layout) -> Self {
        let server = Server::start().await;
        let mut connection = server.connect().await;
        let [acquire, release, renew] = match layout {
            Layout::Ours | Layout::KeepingOut => [
                concat!(
                    include_str!("../../src/store/redis/protocol/lease.lua"),
                    include_str!("../../src/store/redis/protocol/grant.lua"),
                    include_str!("../../src/store/redis/protocol/queue.lua"),
                    include_str!("../../src/store/redis/protocol/origin.lua"),
                    include_str!("../../src/store/redis/protocol/node.lua"),
                    include_str!("../../src/store/redis/protocol/acquire.lua")
                ),
                concat!(
                    include_str!("../../src/store/redis/protocol/lease.lua"),
                    include_str!("../../src/store/redis/protocol/grant.lua"),
                    include_str!("../../src/store/redis/protocol/queue.lua"),
                    include_str!("../../src/store/redis/protocol/release.lua")
                ),
                concat!(
                    include_str!("../../src/store/redis/protocol/lease.lua"),
                    include_str!("../../src/store/redis/protocol/renew.lua")
                ),
            ],
            Layout::Baseline => [
                concat!(
                    include_str!("baseline/line.lua"),
                    include_str!("baseline/acquire.lua")
                ),
                concat!(
                    include_str!("baseline/line.lua"),
                    include_str!("baseline/release.lua")
                ),
                include_str!("baseline/renew.lua"),
            ],
        };
        let mut load = async |source: &str| -> String {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(source);
            load.query_async(&mut connection)
                .await
                .expect("it compiles")
        };
        let mut bench = Self {
            layout,
            acquire: load(acquire).await,
            release: load(release).await,
            renew: load(renew).await,
            connection,
            client: ClientId::draw(),
            _server: server,
        };
        if layout == Layout::KeepingOut {
            let mut init = cmd("EVAL");
            init.arg(concat!(
                include_str!("../../src/store/redis/protocol/origin.lua"),
                include_str!("../../src/store/redis/protocol/node.lua"),
                include_str!("../../src/store/redis/protocol/init.lua")
            ));
            init.arg(1).arg("leasehold:node").arg(MAX_TTL);
            let ready: String = bench.ask(&init).await;
            assert_eq!(ready, "ready");
        }
        bench
    }

    fn acquire(&self, name: &str, holder: &str) -> Cmd {
        self.claim(name, holder, 0)
    }

    /// Makes a claim that waits for so many milliseconds.
    fn claim(&self, name: &str, holder: &str, term: u32) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.acquire);
        if self.layout == Layout::Baseline {
            let lease = lease(name);
            call.arg(4).arg(&lease).arg(format!("{lease}:token"));
            call.arg(format!("{lease}:queue"))
                .arg(format!("{lease}:alive"));
        } else {
            call.arg(5).arg(&keys(name)[..]);
        }
        call.arg(holder).arg(30_000).arg(0).arg(INFO);
        if term > 0 || self.layout == Layout::KeepingOut {
            call.arg(term).arg(0);
        }
        match self.layout {
            Layout::Ours => {}
            Layout::KeepingOut => {
                call.arg(MAX_TTL);
            }
            Layout::Baseline => {
                call.arg(3_600_000);
            }
        }
        call
    }

    fn release(&self, name: &str, holder: &str) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.release);
        if self.layout == Layout::Baseline {
            let lease = lease(name);
            call.arg(3).arg(&lease).arg(format!("{lease}:queue"));
            call.arg(format!("{lease}:alive")).arg(holder).arg(0);
            call.arg("PUBLISH").arg(2_000);
        } else {
            call.arg(5).arg(&keys(name)[..]).arg(holder).arg(0);
        }
        call
    }

    /// Makes the call that renews these leases, which are held by these grants.
    fn renew(&self, leases: &[(String, String)], grants: &[Value]) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.renew).arg(leases.len());
        for (name, _) in leases {
            call.arg(lease(name));
        }
        for ((_, holder), granted) in leases.iter().zip(grants) {
            match self.layout {
                // What the value of the lease begins with.
                Layout::Baseline => call.arg(holder).arg(30_000),
                _ => call.arg(format!("{holder} {} ", token(granted))),
            };
        }
        if self.layout != Layout::Baseline {
            call.arg(30_000);
        }
        call
    }

    /// Returns names, each with a holder of its own.
    fn leases(&self, begin: &str, count: usize) -> Vec<(String, String)> {
        let lease = |index| {
            let holder = Holder::draw(self.client).expect("random bits");
            (format!("{begin}-{index}"), holder.to_string())
        };
        (0..count).map(lease).collect()
    }

    /// Sends these calls, and returns how many microseconds the server spent on each, and its replies.
    async fn spent(&mut self, calls: &[Cmd], tag: &str) -> (f64, Vec<Value>) {
        let (spent, replies) = self.replies(calls).await;
        for reply in &replies {
            assert!(is_tagged(reply, tag), "{reply:?}");
        }
        (spent, replies)
    }

    /// The same, whatever the replies are.
    async fn replies(&mut self, calls: &[Cmd]) -> (f64, Vec<Value>) {
        let () = self.ask(cmd("CONFIG").arg("RESETSTAT")).await;
        let mut all = Vec::new();
        for some in calls.chunks(TOGETHER) {
            let mut pipeline = pipe();
            some.iter().for_each(|call| {
                pipeline.add_command(call.clone());
            });
            let replies: Vec<Value> = pipeline
                .query_async(&mut self.connection)
                .await
                .expect("the scripts run");
            all.extend(replies);
        }
        let info: String = self.ask(cmd("INFO").arg("commandstats")).await;
        let usec = info
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"))
            .and_then(|line| line.split("usec=").nth(1)?.split(',').next());
        let usec: f64 = usec.and_then(|usec| usec.parse().ok()).expect("a number");
        (usec / calls.len() as f64, all)
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> T {
        let answer = command.query_async(&mut self.connection).await;
        answer.expect("the server answers")
    }

    async fn memory(&mut self) -> f64 {
        let info: String = self.ask(cmd("INFO").arg("memory")).await;
        let used = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        used.and_then(|used| used.trim().parse().ok())
            .expect("a number")
    }
}

fn is_tagged(reply: &Value, tag: &str) -> bool {
    match reply {
        Value::Array(parts) => parts.first().is_some_and(|first| is_tagged(first, tag)),
        Value::BulkString(text) => text.split(|byte| *byte == b' ').next() == Some(tag.as_bytes()),
        _ => false,
    }
}

/// Returns the token of a reply to our script.
fn token(granted: &Value) -> String {
    let Value::BulkString(text) = granted else {
        panic!("{granted:?}");
    };
    let text = String::from_utf8_lossy(text);
    text.strip_prefix("granted ").expect("a token").into()
}

fn lease(name: &str) -> String {
    format!("leasehold:{{{name}}}")
}

/// The keys of the scripts that take or free a name.
fn keys(name: &str) -> [String; 5] {
    let lease = lease(name);
    let (queue, waiting) = (format!("{lease}:queue"), format!("{lease}:waiting"));
    [lease, mark(name), queue, waiting, "leasehold:node".into()]
}

/// Returns the mark of a name's slot. Its tag costs the server nothing but its length, so without a cluster any number
/// of the right size will do.
fn mark(name: &str) -> String {
    let crc = name.bytes().fold(0_u16, |mut crc, byte| {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            };
        }
        crc
    });
    format!("leasehold:{{{}}}:mark", 20_000 + crc % 16_384)
}

/// Measures the server's microseconds for a pair, for its halves, and for a renewal in a batch.
async fn time(ours: &mut Bench, baseline: &mut Bench, names: [Option<&str>; 4]) {
    let mut runs = [const { Vec::new() }; 4];
    for run in 0..RUNS {
        let ours = block(ours, run).await;
        let baseline = block(baseline, run).await;
        for (runs, spent) in runs.iter_mut().zip(ours.into_iter().zip(baseline)) {
            runs.push(spent);
        }
    }
    for (name, runs) in names.iter().zip(&runs) {
        if let Some(name) = name {
            case(name, "us", runs);
        }
    }
}

async fn block(bench: &mut Bench, run: usize) -> [f64; 4] {
    let leases = bench.leases(&format!("block-{run}"), BLOCK);
    let calls = |call: &dyn Fn(&str, &str) -> Cmd| -> Vec<Cmd> {
        let calls = leases.iter().map(|(name, holder)| call(name, holder));
        calls.collect()
    };
    let (acquires, releases) = (
        calls(&|name, holder| bench.acquire(name, holder)),
        calls(&|name, holder| bench.release(name, holder)),
    );
    let (acquire, grants) = bench.spent(&acquires, "granted").await;
    let renewals = vec![bench.renew(&leases, &grants); RENEWALS];
    let renew = bench.spent(&renewals, "renewed").await.0 / BLOCK as f64;
    let release = bench.spent(&releases, "released").await.0;
    [acquire + release, acquire, release, renew]
}

/// Measures the server's microseconds for a grant of a name that so many clients wait for: the holder releases it, which
/// grants it to the next, and joins the queue again.
async fn queued(bench: &mut Bench, clients: usize, run: usize) -> f64 {
    const TERM: u32 = 60_000;
    let name = format!("queued-{run}");
    let holders: Vec<_> = (0..=clients)
        .map(|_| Holder::draw(ClientId::draw()).expect("random bits"))
        .map(|holder| holder.to_string())
        .collect();
    let join = |holder: &String| bench.claim(&name, holder, TERM);
    let joins: Vec<_> = holders.iter().map(join).collect();
    let rounds = holders.iter().cycle().take(BLOCK);
    let turns: Vec<_> = rounds
        .flat_map(|holder| [bench.release(&name, holder), join(holder)])
        .collect();
    bench.replies(&joins).await;
    let (spent, replies) = bench.replies(&turns).await;
    for turn in replies.chunks(2) {
        assert!(is_tagged(&turn[0], "released"), "{turn:?}");
        assert!(is_tagged(&turn[1], "queued"), "{turn:?}");
    }
    spent * 2.0
}

/// Measures the bytes of the server's memory for each held lease, including everything that belongs to it.
async fn memory(bench: &mut Bench) -> f64 {
    let () = bench.ask(&cmd("FLUSHALL")).await;
    let before = bench.memory().await;
    let leases = bench.leases("held", HELD);
    for some in leases.chunks(BLOCK) {
        let calls: Vec<_> = some
            .iter()
            .map(|(name, holder)| bench.acquire(name, holder))
            .collect();
        bench.spent(&calls, "granted").await;
    }
    (bench.memory().await - before) / HELD as f64
}

/// What a number of names leave behind that were taken and freed, and how long that took.
struct Leavings {
    keys: f64,
    bytes: f64,
    seconds: f64,
}

async fn left_behind(bench: &mut Bench) -> Leavings {
    let () = bench.ask(&cmd("FLUSHALL")).await;
    let before = bench.memory().await;
    let start = Instant::now();
    let mut left = NAMES;
    while left > 0 {
        let leases = bench.leases(&format!("once-{left}"), BLOCK.min(left));
        left -= leases.len();
        let pairs = leases.iter().map(|(name, holder)| {
            let release = bench.release(name, holder);
            (bench.acquire(name, holder), release)
        });
        let (acquires, releases): (Vec<_>, Vec<_>) = pairs.unzip();
        bench.spent(&acquires, "granted").await;
        bench.spent(&releases, "released").await;
    }
    Leavings {
        seconds: seconds(start),
        keys: bench.ask(&cmd("DBSIZE")).await,
        bytes: bench.memory().await - before,
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut ours = Bench::start(Layout::Ours).await;
        let mut baseline = Bench::start(Layout::Baseline).await;
        let names = [
            "server_us_per_pair",
            "server_us_per_acquire",
            "server_us_per_release",
            "server_us_per_renewal_of_256",
        ];
        time(&mut ours, &mut baseline, names.map(Some)).await;
        for clients in [1, 10] {
            let mut runs = Vec::new();
            for run in 0..RUNS {
                runs.push(queued(&mut ours, clients, run).await);
            }
            let name = format!("server_us_per_grant_to_one_of_{clients}_that_wait");
            figure(&name, "us", &runs);
        }
        let mut keeping_out = Bench::start(Layout::KeepingOut).await;
        let name = "server_us_per_acquire_keeping_out_vs_without";
        time(&mut keeping_out, &mut ours, [None, Some(name), None, None]).await;
        drop(keeping_out);
        let bytes = (memory(&mut ours).await, memory(&mut baseline).await);
        case("bytes_per_held_lease", "bytes", &[bytes]);
        let (ours, baseline) = (
            left_behind(&mut ours).await,
            left_behind(&mut baseline).await,
        );
        // All of them are marks.
        figure("keys_left_after_1000000_names", "keys", &[ours.keys]);
        let bytes = (ours.bytes, baseline.bytes);
        case("bytes_left_after_1000000_names", "bytes", &[bytes]);
        let seconds = (ours.seconds, baseline.seconds);
        case("seconds_for_1000000_names", "s", &[seconds]);
    });
}
