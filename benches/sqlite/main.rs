//! What waiting costs on SQLite, beside `flock`: the time from a release to the lease in another process, and the
//! processor time of processes that wait.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench sqlite
//! ```
//!
//! The processes are this bench, started again. Two of them take turns: each acquires, holds for six milliseconds,
//! notes when it calls the release, and waits again. Others only wait, each for a name of its own.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

use std::fs::{self, File};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_benches as yardstick;
use tempfile::TempDir;
use tokio::time::{Instant as At, sleep, sleep_until};
use yardstick::contender::{Contender, hand_off, now, tell};
use yardstick::{case, figure};

const RUNS: usize = 7;
/// Turns in one block; ours and the other alternate block by block, so that both meet the same noise of the machine.
const BLOCK: usize = 50;
/// Long enough for the other process to be back from its pause and asleep again.
const HOLD: Duration = Duration::from_millis(6);
/// A process that has just released waits this long, so that it loses the next race.
const PAUSE: Duration = Duration::from_millis(2);
const TTL: Duration = Duration::from_secs(30);
/// How long the processor time of those that wait is added up, and how long they have been waiting then.
const WATCHED: Duration = Duration::from_secs(20);
const SETTLED: Duration = Duration::from_secs(3);
const CROWD: usize = 100;
const RELEASES_PER_S: u32 = 200;
/// The file of leases; set only for a process that takes part.
const FILE: &str = "LEASEHOLD_BENCH_FILE";

fn contender(file: &Path) -> Contender {
    Contender::start([(FILE, file)])
}

/// The processor time that a process has had.
fn ran(contender: &Contender) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", contender.id()));
    let tasks = tasks.expect("it lives, on Linux").flatten();
    let ran = tasks.map(|task| {
        let told = fs::read_to_string(task.path().join("schedstat")).expect("it lives");
        let ran = told.split(' ').next().expect("a number");
        Duration::from_nanos(ran.parse().expect("a number"))
    });
    ran.sum()
}

/// Returns how much of a core these processes take together while nothing else or `beside` happens, in percent.
async fn percent(waiting: &[Contender], beside: impl AsyncFnOnce(At)) -> f64 {
    let ran = || waiting.iter().map(ran).sum::<Duration>();
    let (began, before) = (Instant::now(), ran());
    let end = At::now() + WATCHED;
    beside(end).await;
    sleep_until(end).await;
    let share = (ran() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    share * 100.0
}

/// Releases so many names a second for which nobody waits.
async fn release_others(client: &Client, until: At) {
    let mut next = At::now();
    for round in 0_u32.. {
        if next >= until {
            return;
        }
        let name = format!("other/{}", round % RELEASES_PER_S);
        let lease = client.acquire(name).await.expect("it is free");
        lease.release().await;
        next += Duration::from_secs(1) / RELEASES_PER_S;
        sleep_until(next).await;
    }
}

async fn client(file: &Path) -> Client {
    let url = format!("sqlite:{}", file.display());
    let builder = Client::builder().store_url(&url).ttl(TTL);
    builder.build().await.expect("the store opens")
}

async fn serve(file: &Path) {
    let client = client(file).await;
    for order in std::io::stdin().lock().lines() {
        let order = order.expect("UTF-8");
        let (way, what) = order.split_once(' ').expect("two words");
        match way {
            "wait" => {
                println!("{}", std::process::id());
                drop(client.acquire(what).await);
            }
            "block" => {
                println!("{}", std::process::id());
                lock(&file.with_extension(what)).lock().expect("locked");
            }
            _ => take_turns(&client, file, way, what.parse().expect("a number")).await,
        }
    }
}

async fn take_turns(client: &Client, file: &Path, way: &str, turns: usize) {
    let lock = lock(&file.with_extension("lock"));
    let mut all = Vec::new();
    for _ in 0..turns {
        let turn = match way {
            "flock" => {
                lock.lock().expect("locked");
                let granted = now();
                sleep(HOLD).await;
                let released = now();
                lock.unlock().expect("unlocked");
                (granted, released)
            }
            _ => {
                let lease = client.acquire("turns").await.expect("the store answers");
                let granted = now();
                sleep(HOLD).await;
                let released = now();
                lease.release().await;
                (granted, released)
            }
        };
        all.push(turn);
        sleep(PAUSE).await;
    }
    tell(&all);
}

fn lock(path: &Path) -> File {
    File::create(path).expect("a file")
}

async fn start_waiting(file: &Path, order: &str, count: usize) -> Vec<Contender> {
    let start = |index| {
        let mut waiting = contender(file);
        waiting.order(&format!("{order}{index}"));
        waiting.answer();
        waiting
    };
    let waiting = (0..count).map(start).collect();
    sleep(SETTLED).await;
    waiting
}

async fn measure(file: &Path) {
    let turns = |way: &str| format!("{way} {BLOCK}");
    let mut two = [contender(file), contender(file)];
    for way in ["client", "flock"] {
        hand_off(&mut two, &turns(way));
    }
    let run = |_| {
        (
            hand_off(&mut two, &turns("client")),
            hand_off(&mut two, &turns("flock")),
        )
    };
    let runs: Vec<_> = (0..RUNS).map(run).collect();
    case("sqlite_hand_off_p50_vs_flock", "us", &runs);
    drop(two);
    let client = client(file).await;
    let mut held = Vec::new();
    for index in 0..CROWD {
        let lease = client.acquire(format!("waiting/{index}")).await;
        held.push(lease.expect("it is free"));
    }
    let locked = lock(&file.with_extension("0"));
    locked.lock().expect("locked");
    let one = start_waiting(file, "wait waiting/", 1).await;
    let blocked = start_waiting(file, "block ", 1).await;
    let alone = async |_| {};
    let runs = (percent(&one, alone).await, percent(&blocked, alone).await);
    case("sqlite_waiting_percent_vs_flock", "%", &[runs]);
    drop((one, blocked));
    let crowd = start_waiting(file, "wait waiting/", CROWD).await;
    let alone = percent(&crowd, alone).await;
    let beside = percent(&crowd, async |end| release_others(&client, end).await).await;
    figure(&format!("sqlite_{CROWD}_waiting_percent"), "%", &[alone]);
    figure(
        &format!("sqlite_{CROWD}_waiting_beside_{RELEASES_PER_S}_releases_percent"),
        "%",
        &[beside],
    );
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Some(file) = std::env::var_os(FILE) {
        return runtime.block_on(serve(&PathBuf::from(file)));
    }
    let folder = TempDir::new().expect("a temporary folder");
    runtime.block_on(measure(&folder.path().join("leases.sqlite")));
}
