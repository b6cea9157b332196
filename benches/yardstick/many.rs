//! Takes many leases at once.

use leasehold::{Client, Lease};
use tokio::task::JoinSet;

const TASKS: usize = 64;

/// Takes so many leases in a few tasks, `one` for each number below `count`.
pub async fn take_many<F>(
    client: &Client,
    count: usize,
    one: impl Fn(Client, usize) -> F + Copy + Send + 'static,
) -> Vec<Lease>
where
    F: Future<Output = Lease> + Send,
{
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            let mut leases = Vec::new();
            for index in (task..count).step_by(TASKS) {
                leases.push(one(client.clone(), index).await);
            }
            leases
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}
