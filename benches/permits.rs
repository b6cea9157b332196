//! What permits and shared names cost over plain leases: acquired and released by one task and by many, and handed to a
//! client that waits.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench permits
//! ```

use alternating::alternating;
use leasehold::{Client, LeaseRequest};
use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_benches::leases;
use leasehold_benches::throughput;
use leases::{client, hand_off, pair};
use throughput::{TASKS, throughput};
use yardstick::{Server, case};

const RUNS: usize = 7;
const BLOCKS: usize = 20;
const BLOCK: usize = 50;
/// Pairs that each of the 64 tasks does in one block.
const PAIRS_A_TASK: usize = 40;

async fn taken(request: LeaseRequest) {
    let lease = request.acquire().await.expect("the store answers");
    lease.release().await;
}

/// Acquires and releases what nobody else wants.
async fn one_task(client: &Client) {
    let requests = [
        ("permit", client.permits("gpu", 4)),
        ("share", client.shared("config")),
        ("fenced_share", client.request("config").shared_fenced()),
        ("exclusive", client.exclusive("config")),
    ];
    for (what, request) in requests {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let ours = async || taken(request.clone()).await;
            let other = async || pair(client, "plain").await;
            runs.push(alternating(BLOCKS, BLOCK, ours, other).await);
        }
        case(&format!("{what}_1_task_p50_vs_lease"), "us", &runs);
    }
}

/// 64 tasks over so many permits of one pool, and over as many names.
async fn sixty_four_tasks(client: &Client, permits: u16) {
    let pool = format!("pool-{permits}");
    let pairs = async |request: &dyn Fn(usize) -> LeaseRequest| {
        throughput(PAIRS_A_TASK, |task| {
            let request = request(task);
            async move {
                for _ in 0..PAIRS_A_TASK {
                    taken(request.clone()).await;
                }
            }
        })
        .await
    };
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = pairs(&|_| client.permits(&pool, permits)).await;
        let name = |task| format!("{pool}-{}", task % usize::from(permits));
        runs.push((ours, pairs(&|task| client.request(name(task))).await));
    }
    let name = format!("permit_{TASKS}_tasks_over_{permits}_pairs_per_s_vs_lease");
    case(&name, "pairs/s", &runs);
}

/// From the release of the only permit to the grant of a client that waits behind the door.
async fn handed_over(server: &Server) {
    let clients = [client(&server.url()).await, client(&server.url()).await];
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = hand_off(&clients, |client| client.permits("one", 1)).await;
        let fair = |client: &Client| client.request("turns");
        runs.push((ours, hand_off(&clients, fair).await));
    }
    case("permit_hand_off_p50_vs_fair_lease", "us", &runs);
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = Server::start().await;
        let client = client(&server.url()).await;
        one_task(&client).await;
        sixty_four_tasks(&client, 64).await;
        sixty_four_tasks(&client, 4).await;
        handed_over(&server).await;
    });
}
