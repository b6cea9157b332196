//! Who is next: waiting for a name, and leaving nothing behind.

mod child;
mod dropped;
mod fair;
mod file;
mod floors;
mod leaving;
mod local;
mod on_redis;
mod owner;
mod plain;
mod scope;
mod spy;

use std::time::Duration;

use leasehold::{Attempt, Client, Lease};

use self::spy::Spy;

/// Short enough to wait for.
const TTL: Duration = Duration::from_millis(400);
const MARGIN: Duration = Duration::from_millis(40);
/// Long enough for a busy machine; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(10);

async fn client(store: &Spy) -> Client {
    let builder = Client::builder().store(store.clone());
    builder.ttl(TTL).margin(MARGIN).build().await.unwrap()
}

/// Takes a name that is free.
async fn taken(client: &Client, name: &str) -> Lease {
    match client.try_acquire(name).await.unwrap() {
        Attempt::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// The future's outcome, which must come in time.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, future).await;
    outcome.expect("it comes in time")
}

/// Looks again every few milliseconds until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let looked = tokio::time::timeout(PATIENCE, looking).await;
    looked.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}
