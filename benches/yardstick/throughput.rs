//! Many tasks at once.

use std::time::Instant;

use tokio::task::JoinSet;

use crate::seconds;

/// How many tasks run at once.
pub const TASKS: usize = 64;

/// Pairs a second of all tasks, each of which does so many.
pub async fn throughput<F: Future<Output = ()> + Send + 'static>(
    pairs_a_task: usize,
    mut task: impl FnMut(usize) -> F,
) -> f64 {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for index in 0..TASKS {
        tasks.spawn(task(index));
    }
    tasks.join_all().await;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand pairs")]
    let pairs = (TASKS * pairs_a_task) as f64;
    pairs / seconds(start)
}
