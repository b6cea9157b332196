//! Processes that take turns at one name while they are stopped, killed and disconnected at random.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench waiting_chaos                 # 20 seconds
//! cargo bench -p leasehold-benches --bench waiting_chaos -- 210 7        # 210 seconds with seed 7
//! ```
//!
//! Each contender prints when it was granted the name, and the last moment at which its lease was held. Two of them
//! inside at one moment are an overlap, and make the run fail; so do a token that comes twice and a key that never
//! expires.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{FromRedisValue, cmd};
use leasehold::clock::{Clock as _, Monotonic};
use leasehold::{Client, OutagePolicy};
use leasehold_benches as yardstick;
use rustix::process::{Pid, Signal, kill_process};
use yardstick::{Server, figure};

const CONTENDERS: usize = 6;
/// Waiting tasks in each; every third does not take turns.
const WAITERS: usize = 3;
const TTL: Duration = Duration::from_secs(1);
const CONTENDER: &str = "LEASEHOLD_BENCH_CONTENDER_URL";

/// A grant as it was seen: when it was granted, and the last moment at which it was certainly held.
#[derive(Debug, Clone, Copy)]
struct Hold {
    granted: u64,
    held: u64,
}

/// Holds by token, and how often a token came a second time.
#[derive(Debug, Default)]
struct Seen {
    holds: BTreeMap<u64, Hold>,
    doubles: usize,
}

impl Seen {
    /// Parses `granted TOKEN MOMENT` or `held TOKEN MOMENT`.
    fn read(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let [what, token, moment] = words[..] else {
            return;
        };
        let (Ok(token), Ok(moment)) = (token.parse(), moment.parse()) else {
            return;
        };
        let hold = Hold {
            granted: moment,
            held: moment,
        };
        if what == "granted" {
            let before = self.holds.insert(token, hold);
            self.doubles += usize::from(before.is_some());
        } else if let Some(hold) = self.holds.get_mut(&token) {
            hold.held = moment;
        }
    }

    /// Returns how many grants came while the holder before was still inside.
    fn overlaps(&self) -> usize {
        let holds: Vec<_> = self.holds.values().collect();
        let pairs = holds.windows(2);
        pairs.filter(|pair| pair[1].granted <= pair[0].held).count()
    }

    /// Returns the longest time without a grant, in seconds.
    fn longest_pause(&self) -> f64 {
        let mut granted: Vec<_> = self.holds.values().map(|hold| hold.granted).collect();
        granted.sort_unstable();
        let pauses = granted.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_nanos(pauses.max().unwrap_or(0)).as_secs_f64()
    }
}

fn start(server: &Server, seen: &Arc<Mutex<Seen>>) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this bench"))
        .env(CONTENDER, server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this bench starts again");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let seen = seen.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            seen.lock().expect("nobody panics").read(&line);
        }
    });
    child
}

/// How often each fault was done to the contenders.
#[derive(Debug, Default)]
struct Counts {
    stops: usize,
    kills: usize,
    cuts: usize,
}

async fn wreak(server: &Server, seen: &Arc<Mutex<Seen>>, time: Duration, seed: u64) -> Counts {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut counts = Counts::default();
    let mut children: Vec<_> = (0..CONTENDERS).map(|_| start(server, seen)).collect();
    let mut stopped: Vec<Option<Instant>> = vec![None; CONTENDERS];
    let mut connection = server.connect().await;
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(dice.u64(100..1_500))).await;
        for (child, until) in children.iter().zip(&mut stopped) {
            if until.take_if(|until| Instant::now() >= *until).is_some() {
                signal(child, Signal::CONT);
            }
        }
        let which = dice.usize(..CONTENDERS);
        // Each death at its turn costs the others two seconds, so it must not come more often than that.
        match dice.u8(..10) {
            0 => {
                counts.kills += 1;
                end_child(&mut children[which]);
                stopped[which] = None;
                children[which] = start(server, seen);
            }
            1 => {
                counts.cuts += 1;
                let _: u64 = ask(&mut connection, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            }
            2..6 if stopped[which].is_none() => {
                counts.stops += 1;
                signal(&children[which], Signal::STOP);
                let pause = Duration::from_millis(dice.u64(100..4_000));
                stopped[which] = Some(Instant::now() + pause);
            }
            _ => {}
        }
    }
    children.iter_mut().for_each(end_child);
    counts
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is our child");
}

fn end_child(child: &mut Child) {
    signal(child, Signal::KILL);
    child.wait().expect("it is our child");
}

async fn ask<T: FromRedisValue>(connection: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(connection).await.expect("answered")
}

async fn keys_without_an_end(server: &Server) -> usize {
    let mut connection = server.connect().await;
    let keys: Vec<String> = ask(&mut connection, &["KEYS", "*"]).await;
    let mut endless = 0;
    // The mark of the name's slot stays, so that its tokens rise for ever.
    for key in keys.iter().filter(|key| !key.ends_with(":mark")) {
        let left: i64 = ask(&mut connection, &["PTTL", key]).await;
        endless += usize::from(left == -1);
    }
    endless
}

async fn scripts(server: &Server) -> f64 {
    let mut connection = server.connect().await;
    let info: String = ask(&mut connection, &["INFO", "commandstats"]).await;
    let calls = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
        .and_then(|line| line.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
async fn report(server: &Server, seen: &Seen, counts: &Counts) -> bool {
    let grants = seen.holds.len();
    let endless = keys_without_an_end(server).await;
    for (name, unit, value) in [
        ("grants", "grants", grants as f64),
        ("overlaps", "grants", seen.overlaps() as f64),
        ("tokens_twice", "tokens", seen.doubles as f64),
        ("keys_without_an_end", "keys", endless as f64),
        ("longest_pause", "s", seen.longest_pause()),
        (
            "evalsha_per_grant",
            "scripts",
            scripts(server).await / grants as f64,
        ),
        ("stops", "processes", counts.stops as f64),
        ("kills", "processes", counts.kills as f64),
        ("subscription_cuts", "cuts", counts.cuts as f64),
    ] {
        figure(&format!("waiting_chaos_{name}"), unit, &[value]);
    }
    grants > 0 && seen.overlaps() + seen.doubles + endless == 0
}

/// Runs a contender until it is killed, or its parent is gone.
async fn contend(url: &str) {
    let builder = Client::builder().store_url(url).ttl(TTL);
    let client = builder.build().await.expect("the store opens");
    for _ in 0..WAITERS {
        tokio::spawn(take_turns(client.clone()));
    }
    let parent = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
    let _ = parent.await;
    std::process::exit(0);
}

async fn take_turns(client: Client) {
    loop {
        let request = client.request("chaos");
        let Ok(lease) = request.on_outage(OutagePolicy::WaitOut).acquire().await else {
            continue;
        };
        let token = lease.token();
        println!("granted {token} {}", Monotonic.now().as_nanos());
        for _ in 0..fastrand::u32(1..20) {
            // Read before the check: if the check succeeds, the lease was held at this moment.
            let moment = Monotonic.now().as_nanos();
            if lease.check().is_err() {
                break;
            }
            println!("held {token} {moment}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        lease.release().await;
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Ok(url) = std::env::var(CONTENDER) {
        return runtime.block_on(contend(&url));
    }
    // Cargo adds an argument of its own.
    let words = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok());
    let words: Vec<u64> = words.collect();
    let time = Duration::from_secs(words.first().copied().unwrap_or(20));
    let seed = words.get(1).copied().unwrap_or_else(|| fastrand::u64(..));
    println!("seed={seed}");
    let is_well = runtime.block_on(async {
        let server = Server::start().await;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let counts = wreak(&server, &seen, time, seed).await;
        // The readers see the end of what the killed processes have written.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let seen = std::mem::take(&mut *seen.lock().expect("nobody panics"));
        report(&server, &seen, &counts).await
    });
    assert!(is_well, "the order or the exclusion was broken");
}
