//! What a lease costs over the bare scripts, and compared with rslock, which has no token, no info and no notice.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench acquire_release
//! ```

mod bare;
mod client;

use std::sync::Arc;
use std::time::Duration;

use alternating::alternating;
use bare::{Bare, INFO};
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Value, cmd};
use leasehold::{Attempt, Client, Holder};
use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_benches::throughput;
use rslock::LockManager;
use throughput::{TASKS, throughput};
use yardstick::{Server, case, figure};

const RUNS: usize = 7;
const BLOCKS: usize = 20;
/// Pairs in one block; ours and the other alternate block by block, so that both meet the same noise of the machine.
const BLOCK: usize = 50;
/// Pairs that each of the 64 tasks does in one block.
const PAIRS_A_TASK: usize = 100;
const TTL: Duration = Duration::from_secs(30);

async fn pair(client: &Client, name: &str) {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease.release().await,
        other => panic!("{other:?}"),
    };
}

async fn rslock_pair(manager: &LockManager, name: &str) {
    let lock = manager.lock(name, TTL).await.expect("the lock is free");
    manager.unlock(&lock).await;
}

async fn one_task(server: &Server, client: &Client) {
    let mut bare = Bare::new(server.connect().await, "bare");
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = async || pair(client, "ours").await;
        let other = async || bare.pair().await;
        runs.push(alternating(BLOCKS, BLOCK, ours, other).await);
    }
    case("acquire_release_1_task_p50_vs_bare", "us", &runs);
}

async fn ours_64(client: &Client) -> f64 {
    throughput(PAIRS_A_TASK, |index| {
        let client = client.clone();
        async move {
            let name = format!("ours-{index}");
            for _ in 0..PAIRS_A_TASK {
                pair(&client, &name).await;
            }
        }
    })
    .await
}

async fn sixty_four_tasks(server: &Server, client: &Client) {
    let connection = server.connect().await;
    let bares: Vec<Bare> = (0..TASKS)
        .map(|index| Bare::new(connection.clone(), &format!("bare-{index}")))
        .collect();
    let manager = Arc::new(LockManager::new(vec![server.url()]));
    let (mut bare_runs, mut rslock_runs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let ours = ours_64(client).await;
        let bare = throughput(PAIRS_A_TASK, |index| {
            let mut bare = bares[index].clone();
            async move {
                for _ in 0..PAIRS_A_TASK {
                    bare.pair().await;
                }
            }
        })
        .await;
        bare_runs.push((ours, bare));
        let ours = ours_64(client).await;
        let rslock = throughput(PAIRS_A_TASK, |index| {
            let manager = manager.clone();
            async move {
                let name = format!("rslock-{index}");
                for _ in 0..PAIRS_A_TASK {
                    rslock_pair(&manager, &name).await;
                }
            }
        })
        .await;
        rslock_runs.push((ours, rslock));
    }
    case(
        "acquire_release_64_tasks_pairs_per_s_vs_bare",
        "pairs/s",
        &bare_runs,
    );
    case(
        "acquire_release_64_tasks_pairs_per_s_vs_rslock",
        "pairs/s",
        &rslock_runs,
    );
}

/// Measures the server's own time for each call of a script, by its statistics.
async fn server_time(server: &Server) {
    let mut connection = server.connect().await;
    let bare = Bare::new(connection.clone(), "server");
    let holder = Holder::draw(bare.client).expect("random bits").to_string();
    for name in ["acquire", "release"] {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let mut total = 0.0;
            const CALLS: usize = 500;
            for _ in 0..CALLS {
                let _: () = cmd("CONFIG")
                    .arg("RESETSTAT")
                    .query_async(&mut connection)
                    .await
                    .expect("reset");
                let mut acquire = bare.acquire.key(&bare.keys[..]);
                acquire.arg(&holder).arg(30_000).arg(0).arg(INFO);
                let mut release = bare.release.key(&bare.keys[..]);
                release.arg(&holder).arg(0);
                let _: Value = acquire
                    .invoke_async(&mut connection)
                    .await
                    .expect("granted");
                if name == "release" {
                    let _: () = cmd("CONFIG")
                        .arg("RESETSTAT")
                        .query_async(&mut connection)
                        .await
                        .expect("reset");
                }
                if name == "acquire" {
                    total += evalsha_us(&mut connection).await;
                }
                let _: Value = release
                    .invoke_async(&mut connection)
                    .await
                    .expect("released");
                if name == "release" {
                    total += evalsha_us(&mut connection).await;
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "a few hundred calls")]
            runs.push(total / CALLS as f64);
        }
        figure(&format!("server_us_per_script_{name}"), "us", &runs);
    }
}

async fn evalsha_us(connection: &mut MultiplexedConnection) -> f64 {
    let info: String = cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await
        .expect("info");
    let line = info
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"))
        .expect("it was called");
    let usec = line
        .split("usec=")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    usec.and_then(|usec| usec.parse().ok()).expect("a number")
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = Server::start().await;
        let client = Client::open(server.url()).await.expect("the store opens");
        // Loads the scripts and starts the watchdog.
        pair(&client, "warm").await;
        Bare::new(server.connect().await, "warm").pair().await;
        let part = std::env::args()
            .nth(1)
            .filter(|part| !part.starts_with("--"));
        let is_asked = |one: &str| part.as_deref().is_none_or(|part| part == one);
        if is_asked("pairs") {
            one_task(&server, &client).await;
            sixty_four_tasks(&server, &client).await;
        }
        if is_asked("client") {
            client::cost(&server, &client).await;
        }
        if is_asked("server") {
            server_time(&server).await;
        }
    });
}
