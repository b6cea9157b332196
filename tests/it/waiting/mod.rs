//! Who is next: waiting for a name, and leaving nothing behind.

mod cancel_safety;
mod child;
mod fair;
mod floors;
mod leaving;
mod on_redis;
mod on_sqlite;
mod owner;
mod plain;
mod scope;
mod within_one_client;

use leasehold::{Client, Lease, OutagePolicy, WaitOrder};
use tokio::task::JoinHandle;

/// Waits for the name `a`, also while the store is busy for longer than a request waits, or is away.
fn waiter(client: &Client, order: WaitOrder) -> JoinHandle<Lease> {
    let request = client.request("a").order(order);
    let request = request.on_outage(OutagePolicy::WaitOut);
    tokio::spawn(async move { request.acquire().await.unwrap() })
}
