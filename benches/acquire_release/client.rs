//! What a pair costs the client: the processor time of this process, and what it is spent on.
//!
//! The floor is what no client with a limit for each request and a watchdog can do without: the bare scripts, a timer for
//! each, and one entry in a table that another thread reads.

use std::alloc::System;
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Client;
use leasehold_benches::throughput::TASKS;
use leasehold_benches::{Server, case};
use rslock::LockManager;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;

use crate::bare::Bare;
use crate::{pair, rslock_pair};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 5;
/// Pairs of all tasks in one round. The system counts processor time in hundredths of a second: one of them is less than
/// 2 % of such a round.
const PAIRS: usize = 20_000;

/// What is counted, and its unit.
const PARTS: [(&str, &str); 5] = [
    ("us", "us"),
    ("user_us", "us"),
    ("system_us", "us"),
    ("sleeps", "sleeps"),
    ("allocations", "allocations"),
];

/// One number for each of the parts.
type Cost = [f64; PARTS.len()];

/// What this process has cost since it began.
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn so_far() -> Cost {
    let [user, system] = processor_times();
    let allocations = ALLOCATOR.stats().allocations;
    [
        user + system,
        user,
        system,
        sleeps() as f64,
        allocations as f64,
    ]
}

/// The user's and the system's time of this process, in microseconds.
fn processor_times() -> [f64; 2] {
    let stat = fs::read_to_string("/proc/self/stat").expect("on Linux");
    let (_, fields) = stat.rsplit_once(") ").expect("the name of the program");
    let mut fields = fields.split(' ').skip(11);
    [(); 2].map(|()| {
        let ticks = fields.next().and_then(|field| field.parse::<u32>().ok());
        f64::from(ticks.expect("a number")) * 10_000.0
    })
}

/// How often the threads of this process have waited for something.
fn sleeps() -> u64 {
    let threads = fs::read_dir("/proc/self/task").expect("on Linux");
    let statuses =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok());
    let of_thread = |status: String| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok())
            .expect("a number")
    };
    statuses.map(of_thread).sum()
}

/// Spawns so many tasks, each of which makes its share of the pairs. Returns the cost of one pair.
async fn of<F: Future<Output = ()> + Send + 'static>(
    tasks: usize,
    mut task: impl FnMut(usize, usize) -> F,
) -> Cost {
    let before = so_far();
    let mut running = JoinSet::new();
    for index in 0..tasks {
        running.spawn(task(index, PAIRS / tasks));
    }
    running.join_all().await;
    let after = so_far();
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let pairs = (PAIRS / tasks * tasks) as f64;
    std::array::from_fn(|part| (after[part] - before[part]) / pairs)
}

/// The bare scripts with a limit for each, and an entry in a table meanwhile.
async fn floor(bare: &mut Bare, table: &Mutex<BTreeSet<usize>>, index: usize) {
    let limit = Duration::from_secs(10);
    let acquired = tokio::time::timeout(limit, bare.acquire()).await;
    let holder = acquired.expect("in time");
    let in_table = || table.lock().expect("no panic");
    in_table().insert(index);
    let released = tokio::time::timeout(limit, bare.release(&holder)).await;
    released.expect("in time");
    in_table().remove(&index);
}

/// Measures ours, the bare scripts, the floor and rslock in turn, with one task and with 64.
pub(crate) async fn cost(server: &Server, client: &Client) {
    for tasks in [1, TASKS] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(server, client, tasks).await);
        }
        for (other, baseline) in ["bare", "floor", "rslock"].into_iter().enumerate() {
            for (part, (what, unit)) in PARTS.into_iter().enumerate() {
                let of = |round: &[Cost; 4]| (round[0][part], round[other + 1][part]);
                let runs: Vec<_> = rounds.iter().map(of).collect();
                let name = format!("client_{what}_per_pair_{tasks}_tasks_vs_{baseline}");
                case(&name, unit, &runs);
            }
        }
    }
}

/// Returns the costs of ours, the bare scripts, the floor and rslock.
async fn round(server: &Server, client: &Client, tasks: usize) -> [Cost; 4] {
    let ours = of(tasks, |index, pairs| {
        let (client, name) = (client.clone(), format!("ours-{index}"));
        async move {
            for _ in 0..pairs {
                pair(&client, &name).await;
            }
        }
    });
    let ours = ours.await;
    let connection = server.connect().await;
    let bare = |index| Bare::new(connection.clone(), &format!("bare-{index}"));
    let alone = of(tasks, |index, pairs| {
        let mut bare = bare(index);
        async move {
            for _ in 0..pairs {
                bare.pair().await;
            }
        }
    });
    let alone = alone.await;
    let table = Arc::new(Mutex::new(BTreeSet::new()));
    let with_limits = of(tasks, |index, pairs| {
        let (mut bare, table) = (bare(index), table.clone());
        async move {
            for _ in 0..pairs {
                floor(&mut bare, &table, index).await;
            }
        }
    });
    let with_limits = with_limits.await;
    let manager = Arc::new(LockManager::new(vec![server.url()]));
    let rslock = of(tasks, |index, pairs| {
        let (manager, name) = (manager.clone(), format!("rslock-{index}"));
        async move {
            for _ in 0..pairs {
                rslock_pair(&manager, &name).await;
            }
        }
    });
    [ours, alone, with_limits, rslock.await]
}
