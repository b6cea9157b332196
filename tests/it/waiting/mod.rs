//! Who is next: waiting for a name, and leaving nothing behind.

mod cancel_safety;
mod child;
mod floors;
mod leaving;
mod on_postgres;
mod on_redis;
mod on_sqlite;
mod owner;
mod plain;
mod scope;
mod turns;
mod within_one_client;

use leasehold::{Client, Lease, OutagePolicy};
use tokio::task::JoinHandle;

/// Waits for the name `a`, also while the store is busy for longer than a request waits, or is away.
fn waiter(client: &Client) -> JoinHandle<Lease> {
    let request = client.request("a");
    let request = request.on_outage(OutagePolicy::WaitOut);
    tokio::spawn(async move { request.acquire().await.unwrap() })
}
