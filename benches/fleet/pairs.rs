//! Acquire and release, by one task and by 64 at once.

use leasehold::Client;

use super::alternating::alternating;
use super::throughput::throughput;
use super::yardstick::case;
use super::{client, taken};

const RUNS: usize = 7;
const BLOCKS: usize = 10;
const BLOCK: usize = 50;
const PAIRS_A_TASK: usize = 50;

/// Measures the store at one URL beside the store at the other.
pub(crate) async fn measure(ours: &str, other: &str, our_url: &str, other_url: &str) {
    let clients = (client(our_url).await, client(other_url).await);
    let (mut one_task, mut many_tasks) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        // The names are spread over the slots.
        let counts = (fastrand::u32(..1_000), fastrand::u32(..1_000));
        let of = async |client: &Client, name: u32| {
            taken(client, &format!("one-{name}")).await.release().await;
        };
        let (mut first, mut second) = counts;
        let ours = async || {
            first += 1;
            of(&clients.0, first).await;
        };
        let other = async || {
            second += 1;
            of(&clients.1, second).await;
        };
        one_task.push(alternating(BLOCKS, BLOCK, ours, other).await);
        many_tasks.push((pairs_of_64(&clients.0).await, pairs_of_64(&clients.1).await));
    }
    case(&format!("{ours}_1_task_p50_vs_{other}"), "us", &one_task);
    let name = format!("{ours}_64_tasks_pairs_per_s_vs_{other}");
    case(&name, "pairs/s", &many_tasks);
}

async fn pairs_of_64(client: &Client) -> f64 {
    throughput(PAIRS_A_TASK, |index| {
        let client = client.clone();
        async move {
            for _ in 0..PAIRS_A_TASK {
                let lease = taken(&client, &format!("task-{index}")).await;
                lease.release().await;
            }
        }
    })
    .await
}
