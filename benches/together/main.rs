//! Many claims in one request: what it would save, measured on the scripts and functions as they are, without the library.
//! No store sends its claims so.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench together
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures with the clock that stands still in no suspend it would survive, and counts to thousands"
)]

mod gather;
mod postgres;
mod redis;

use std::fs;
use std::time::Instant;

use leasehold_benches::{case, figure, seconds};
use tokio::task::JoinSet;

const ROUNDS: usize = 5;

/// A way to take names and to free them, for one task of many.
pub(crate) trait Way: Clone + Send + 'static {
    /// Takes the name and frees it.
    fn pair(&self, name: &str) -> impl Future<Output = ()> + Send;
}

/// What a pair has cost, over all tasks of a round.
struct Cost {
    pairs_per_s: f64,
    client_us: f64,
    server_us: f64,
}

/// Lets so many tasks make their share of the pairs, each with a name of its own.
async fn round(way: impl Way, tasks: usize, pairs: usize, server: u32) -> Cost {
    let (client_before, server_before) = (used_us(std::process::id()), used_us(server));
    let start = Instant::now();
    let mut running = JoinSet::new();
    for index in 0..tasks {
        let way = way.clone();
        running.spawn(async move {
            let name = format!("name-{index}");
            for _ in 0..pairs / tasks {
                way.pair(&name).await;
            }
        });
    }
    running.join_all().await;
    let took = seconds(start);
    let pairs = (pairs / tasks * tasks) as f64;
    Cost {
        pairs_per_s: pairs / took,
        client_us: (used_us(std::process::id()) - client_before) / pairs,
        server_us: (used_us(server) - server_before) / pairs,
    }
}

/// Measures both ways in turn, and prints what they cost beside each other.
pub(crate) async fn compare(
    store: &str,
    (together, single): (impl Way, impl Way),
    (tasks, pairs): (usize, usize),
    server: u32,
) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let ours = round(together.clone(), tasks, pairs, server).await;
        let other = round(single.clone(), tasks, pairs, server).await;
        rounds.push((ours, other));
    }
    type Part = fn(&Cost) -> f64;
    let parts: [(&str, &str, Part); 3] = [
        ("pairs_per_s", "pairs/s", |cost| cost.pairs_per_s),
        ("client_us_per_pair", "us", |cost| cost.client_us),
        ("server_us_per_pair", "us", |cost| cost.server_us),
    ];
    for (what, unit, part) in parts {
        let runs = rounds.iter().map(|(ours, other)| (part(ours), part(other)));
        let name = format!("together_{store}_{tasks}_tasks_{what}_vs_single");
        case(&name, unit, &runs.collect::<Vec<_>>());
    }
}

/// Prints how many claims and releases one request carried.
pub(crate) fn carried(store: &str, tasks: usize, gathered: &gather::Count) {
    let (asked, sent) = gathered.so_far();
    let name = format!("together_{store}_{tasks}_tasks_in_one_request");
    figure(&name, "claims and releases", &[asked as f64 / sent as f64]);
}

/// The processor time that this process has used, in microseconds, its children and those that it has waited for included:
/// Postgres has one for each connection.
fn used_us(pid: u32) -> f64 {
    let ticks = |fields: &[u64]| fields.iter().sum::<u64>();
    let all = fs::read_dir("/proc").expect("on Linux").flatten();
    let of = |status: &str| -> Option<(u32, Vec<u64>)> {
        let (_, fields) = status.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let parent = fields.get(1)?.parse().ok()?;
        let times = fields.get(11..15)?.iter().flat_map(|time| time.parse());
        Some((parent, times.collect()))
    };
    let mut used = 0;
    for process in all {
        let Ok(number) = process.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // One that ends meanwhile is counted by its parent the next time.
        let status = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        match of(&status) {
            Some((_, times)) if number == pid => used += ticks(&times),
            Some((parent, times)) if parent == pid && pid != std::process::id() => {
                used += ticks(&times[..2]);
            }
            _ => {}
        }
    }
    used as f64 * 10_000.0
}

fn main() {
    let part = std::env::args()
        .nth(1)
        .filter(|part| !part.starts_with("--"));
    let is_asked = |one: &str| part.as_deref().is_none_or(|part| part == one);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        if is_asked("redis") {
            redis::measure().await;
        }
        if is_asked("postgres") {
            postgres::measure().await;
        }
    });
}
