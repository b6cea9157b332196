//! A client without leases costs nothing, and what it does next is shown.

use std::fs;
use std::time::Duration;

use leasehold::Client;
use tokio::time::sleep;

use super::exporter::{Exporter, run};
use crate::harness::leases::take;
use crate::harness::wait::until_so;

#[test]
fn a_client_without_leases_wakes_no_thread_of_the_library() {
    run(async |exporter| wakes_none(exporter).await);
}

async fn wakes_none(exporter: Exporter) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("leases").display());
    let client = Client::open(&url).await.expect("it opens");
    for total in [1.0, 2.0] {
        take(&client, "a").await.release().await;
        let labels = ["trigger=\"first\""];
        exporter
            .is_told("leasehold_acquire_attempts_total", &labels, |told| {
                told == total
            })
            .await;
        until_so("two seconds in which no thread wakes", async || {
            let before = sleeps();
            sleep(Duration::from_secs(2)).await;
            sleeps() == before
        })
        .await;
    }
}

/// How often each thread of the library went to sleep.
fn sleeps() -> Vec<(String, u64)> {
    let threads = fs::read_dir("/proc/self/task").expect("on Linux");
    let of_thread = |thread: fs::DirEntry| {
        let read = |file| fs::read_to_string(thread.path().join(file)).expect("it lives");
        let status = read("status");
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let count = field("voluntary_ctxt_switches:").expect("a count").trim();
        (read("comm"), count.parse().expect("a number"))
    };
    let threads = threads.map(|thread| of_thread(thread.expect("a thread")));
    threads
        .filter(|(name, _)| name.starts_with("leasehold"))
        .collect()
}
