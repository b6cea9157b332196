//! Two holders of one lease write to Postgres; the first was paused and is refused. Lease, fence and ledger are in one
//! database.
//!
//! ```text
//! DATABASE_URL=postgresql://user@localhost/test cargo run -p leasehold --example fenced_postgres --features postgres,tokio-postgres
//! ```
//! It makes the schema `leasehold` and the tables `leasehold_fence` and `leasehold_example`, and leaves them there.

use std::env;
use std::error::Error;
use std::time::Duration;

use leasehold::Client;
use leasehold::fence::tokio_postgres::Fence;
use leasehold::fence::{Bearer, Refusal};
use leasehold::store::TableSettings;
use leasehold::store::postgres::Postgres;
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Adds to the total, in one fenced transaction.
async fn add(
    fence: &Fence,
    database: &mut tokio_postgres::Client,
    bearer: &dyn Bearer,
) -> Result<i64> {
    let transaction = fence.begin(database, bearer).await?;
    let row = transaction
        .query_one(
            "UPDATE leasehold_example SET total = total + 1 RETURNING total",
            &[],
        )
        .await?;
    transaction.commit().await?;
    Ok(row.get(0))
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("DATABASE_URL")
        .map_err(|_| "set DATABASE_URL, such as postgresql://user@localhost/test")?;
    let (mut database, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let fence = Fence::new("example ledger")?;
    fence.create_table(&database).await?;
    database
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS leasehold_example (total BIGINT);
             INSERT INTO leasehold_example SELECT 0 WHERE NOT EXISTS (SELECT FROM leasehold_example)",
        )
        .await?;

    let store = Postgres::open(&url)?;
    // Needed once for each database; usually `leasehold init` does it.
    let (settings, limit) = (TableSettings::default(), Duration::from_secs(10));
    store.init(settings, limit).await?;
    let client = Client::builder().store(store).build().await?;
    let lease = client.acquire("ledger").await?;
    let paused = lease.pass()?; // As if it were paused right after this check.
    println!(
        "token {}: total {}",
        lease.token(),
        add(&fence, &mut database, &lease).await?
    );
    lease.release().await;

    let lease = client.acquire("ledger").await?;
    println!(
        "token {}: total {}",
        lease.token(),
        add(&fence, &mut database, &lease).await?
    );

    let refused = add(&fence, &mut database, &paused).await;
    let error = refused.err().ok_or("a stale write was let in")?;
    let refusal = error.downcast_ref().and_then(Refusal::of);
    let refusal = refusal.ok_or("refused for another reason")?;
    println!("token {}: {error}: {refusal}", paused.token);
    Ok(())
}
