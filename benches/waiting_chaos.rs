//! Processes that take turns at one name while they are stopped, killed and disconnected at random.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench waiting_chaos                 # 20 seconds
//! cargo bench -p leasehold-benches --bench waiting_chaos -- 210 7        # 210 seconds with seed 7
//! ```
//!
//! Each contender prints when it was granted the name, the last moment at which its lease was held, and which lease each
//! of its looks found from a place in the queue. Two of them inside at one moment are an overlap, and make the run fail;
//! so do a token that comes twice, a key that never expires, and a contender that was passed over: it had a place before
//! the one that was granted the name had, and was neither stopped nor killed nor disconnected since.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{FromRedisValue, cmd};
use leasehold::clock::{Clock as _, Monotonic};
use leasehold::store::Held;
use leasehold::{Client, Error, OutagePolicy};
use leasehold_benches as yardstick;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use yardstick::{Server, figure};

const CONTENDERS: usize = 6;
/// Waiting tasks in each.
const WAITERS: usize = 3;
const TTL: Duration = Duration::from_secs(1);
/// Time after a fault in which a report may be from before it, and a place may be lost: at least the term of a place.
const GRACE: Duration = Duration::from_secs(1);
const CONTENDER: &str = "LEASEHOLD_BENCH_CONTENDER_URL";

/// A grant as it was seen: when it was granted, and the last moment at which it was certainly held.
#[derive(Debug, Clone, Copy)]
struct Hold {
    by: usize,
    granted: u64,
    held: u64,
}

/// A look from a place in the queue, while the lease with this token was held.
#[derive(Debug)]
struct Queued {
    behind: u64,
    at: u64,
}

/// A process, as long as it lives.
#[derive(Debug)]
struct Contender {
    born: u64,
    queued: VecDeque<Queued>,
    looks: usize,
    /// When it was no waiter to count on: from a fault until a while after it.
    faults: Vec<(u64, u64)>,
    last_grant: Option<u64>,
}

impl Contender {
    /// Returns the first of its looks since its last grant after which no fault came to it until this moment.
    fn waits_since(&mut self, until: u64) -> Option<&Queued> {
        let (faults, last) = (&self.faults, self.last_grant);
        let is_faulty = |at: u64| faults.iter().any(|(from, to)| *from <= until && at < *to);
        while let Some(look) = self.queued.front()
            && look.at < until
            && (Some(look.behind) < last || is_faulty(look.at))
        {
            self.queued.pop_front();
        }
        self.queued.front().filter(|look| look.at < until)
    }
}

/// Holds by token, how often a token came a second time, and all contenders.
#[derive(Debug, Default)]
struct Seen {
    holds: BTreeMap<u64, Hold>,
    doubles: usize,
    contenders: Vec<Contender>,
}

impl Seen {
    fn add_contender(&mut self) -> usize {
        self.contenders.push(Contender {
            born: now(),
            queued: VecDeque::new(),
            looks: 0,
            faults: Vec::new(),
            last_grant: None,
        });
        self.contenders.len() - 1
    }

    /// A fault comes to this contender, and lasts until [`fault_ends`](Self::fault_ends).
    fn fault_begins(&mut self, contender: usize) {
        self.contenders[contender].faults.push((now(), u64::MAX));
    }

    fn fault_ends(&mut self, contender: usize) {
        let last = self.contenders[contender].faults.last_mut();
        last.expect("it began").1 = now() + u64::try_from(GRACE.as_nanos()).expect("a second");
    }

    /// Parses `granted TOKEN MOMENT`, `held TOKEN MOMENT` or `queued TOKEN_OF_THE_HOLDER MOMENT`.
    fn read(&mut self, by: usize, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let [what, token, moment] = words[..] else {
            return;
        };
        let (Ok(token), Ok(moment)) = (token.parse(), moment.parse()) else {
            return;
        };
        if what == "queued" {
            let look = Queued {
                behind: token,
                at: moment,
            };
            self.contenders[by].looks += 1;
            return self.contenders[by].queued.push_back(look);
        }
        let hold = Hold {
            by,
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

    /// Returns how many grants passed a contender over: it had a place when an earlier lease was held than the last one
    /// of the contender that was granted the name, or before that one was born.
    fn passed_over(&mut self) -> usize {
        let mut count = 0;
        for (token, hold) in &self.holds {
            let (last, born) = (
                self.contenders[hold.by].last_grant,
                self.contenders[hold.by].born,
            );
            let mut others = self.contenders.iter_mut().enumerate();
            let has_passed = others.any(|(other, contender)| {
                let look = contender.waits_since(hold.granted);
                other != hold.by
                    && look.is_some_and(|look| match last {
                        Some(last) => look.behind < last,
                        None => look.at < born,
                    })
            });
            count += usize::from(has_passed);
            self.contenders[hold.by].last_grant = Some(*token);
        }
        count
    }

    /// Returns the longest time without a grant, in seconds.
    fn longest_pause(&self) -> f64 {
        let mut granted: Vec<_> = self.holds.values().map(|hold| hold.granted).collect();
        granted.sort_unstable();
        let pauses = granted.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_nanos(pauses.max().unwrap_or(0)).as_secs_f64()
    }
}

fn now() -> u64 {
    Monotonic.now().as_nanos()
}

fn start(server: &Server, seen: &Arc<Mutex<Seen>>) -> (Child, usize) {
    let contender = seen.lock().expect("nobody panics").add_contender();
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
            seen.lock().expect("nobody panics").read(contender, &line);
        }
    });
    (child, contender)
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
        for ((child, contender), until) in children.iter().zip(&mut stopped) {
            if until.take_if(|until| Instant::now() >= *until).is_some() {
                signal(child, Signal::CONT);
                seen.lock().expect("nobody panics").fault_ends(*contender);
            }
        }
        let which = dice.usize(..CONTENDERS);
        // Each death at its turn costs the others two seconds, so it must not come more often than that.
        match dice.u8(..10) {
            0 => {
                counts.kills += 1;
                seen.lock()
                    .expect("nobody panics")
                    .fault_begins(children[which].1);
                end_child(&mut children[which]);
                stopped[which] = None;
                children[which] = start(server, seen);
            }
            1 => {
                counts.cuts += 1;
                let running = (children.iter().zip(&stopped))
                    .filter(|(_, stopped)| stopped.is_none())
                    .map(|((_, contender), _)| *contender);
                let running: Vec<_> = running.collect();
                for contender in &running {
                    let mut seen = seen.lock().expect("nobody panics");
                    seen.fault_begins(*contender);
                }
                let _: u64 = ask(&mut connection, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
                for contender in &running {
                    let mut seen = seen.lock().expect("nobody panics");
                    seen.fault_ends(*contender);
                }
            }
            2..6 if stopped[which].is_none() => {
                counts.stops += 1;
                seen.lock()
                    .expect("nobody panics")
                    .fault_begins(children[which].1);
                signal(&children[which].0, Signal::STOP);
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

fn end_child((child, _): &mut (Child, usize)) {
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
async fn report(server: &Server, seen: &mut Seen, counts: &Counts) -> bool {
    let grants = seen.holds.len();
    let passed_over = seen.passed_over();
    let looks: usize = (seen.contenders.iter())
        .map(|contender| contender.looks)
        .sum();
    let endless = keys_without_an_end(server).await;
    for (name, unit, value) in [
        ("grants", "grants", grants as f64),
        ("overlaps", "grants", seen.overlaps() as f64),
        ("passed_over_alive", "grants", passed_over as f64),
        ("polls_from_a_place", "looks", looks as f64),
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
    grants > 0 && looks > 0 && seen.overlaps() + passed_over + seen.doubles + endless == 0
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
    let (found, looks) = watch::channel(None);
    tokio::spawn(print_polls(looks));
    loop {
        let request = client.request("chaos").report_to(found.clone());
        let Ok(lease) = request.on_outage(OutagePolicy::WaitOut).acquire().await else {
            continue;
        };
        let token = lease.token();
        println!("granted {token} {}", now());
        for _ in 0..fastrand::u32(1..20) {
            // Read before the check: if the check succeeds, the lease was held at this moment.
            let moment = now();
            if lease.check().is_err() {
                break;
            }
            println!("held {token} {moment}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        lease.release().await;
    }
}

/// Prints the lease that each look found from a place in the queue.
async fn print_polls(mut looks: watch::Receiver<Option<Result<Held, Error>>>) {
    while looks.changed().await.is_ok() {
        if let Some(Ok(held)) = &*looks.borrow_and_update()
            && let (Some(_), Some(token)) = (held.place, held.token)
        {
            println!("queued {token} {}", now());
        }
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
        let mut seen = std::mem::take(&mut *seen.lock().expect("nobody panics"));
        report(&server, &mut seen, &counts).await
    });
    assert!(is_well, "the order or the exclusion was broken");
}
