//! A batch job without async: a lease, and a fence in the job's own SQLite transaction. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example blocking_rusqlite --features blocking,rusqlite
//! ```

use leasehold::blocking::Client;
use leasehold::fence::rusqlite::Fence;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir();
    let mut database = rusqlite::Connection::open(folder.join("leasehold-example-report.sqlite"))?;
    database.execute_batch("CREATE TABLE IF NOT EXISTS report (total INTEGER)")?;
    let fence = Fence::new("report")?;
    fence.create_table(&database)?;

    let leases = folder.join("leasehold-example-blocking.sqlite");
    let client = Client::open(format!("sqlite:{}", leases.display()))?;
    let lease = client.acquire(client.request("nightly-report"))?;
    let mut total = 0;
    for step in 1..=20 {
        lease.check()?; // fails once the lease is lost
        total += step;
    }
    let transaction = fence.begin(&mut database, &lease)?; // fails if a later holder has raised the fence
    transaction.execute("INSERT INTO report VALUES (?1)", [total])?;
    transaction.commit()?;
    println!("wrote {total} under token {}", lease.token());
    lease.release();
    Ok(())
}
