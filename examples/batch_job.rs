//! A batch job that only one process runs at a time, and that stops when it loses its lease. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example batch_job
//! ```

use std::time::Duration;

use leasehold::{Client, Error, Lease};

/// The work: it checks the lease before each step, and writes its result under the lease's pass.
async fn add_up(lease: &Lease) -> Result<u64, Error> {
    let mut sum = 0;
    for step in 1..=20 {
        lease.check()?;
        tokio::time::sleep(Duration::from_millis(50)).await;
        sum += step;
    }
    let pass = lease.pass()?; // for storage, which compares it in the step that writes
    println!("would write {sum} under token {}", pass.token);
    Ok(sum)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join("leasehold-example-batch-job.sqlite");
    let client = Client::open(format!("sqlite:{}", file.display())).await?;

    // The outer error is leasehold's (not acquired, lost), the inner one is the work's own.
    let sum = client.run("add-up", add_up).await??;
    println!("sum {sum}");

    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
