//! A client whose leases are short, and short words for the usual steps of tests.

use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Attempt, Client, Lease, Name, OutagePolicy};

use super::times::{MARGIN, PATIENCE, TTL};
use super::wait::{soon, until};

/// A client of this store, with short leases.
pub async fn client(store: &(impl Store + Clone)) -> Client {
    let builder = Client::builder().store(store.clone());
    let client = builder.ttl(TTL).margin(MARGIN).build().await;
    client.expect("settings in order")
}

/// A client of the store of this URL, with leases of this length.
pub async fn client_at(url: &str, ttl: Duration) -> Client {
    let client = Client::builder().store_url(url).ttl(ttl).build().await;
    client.expect("a URL in order")
}

/// Takes a name that is free.
pub async fn take(client: &Client, name: &str) -> Lease {
    match client.try_acquire(name).await {
        Ok(Attempt::Acquired(lease)) => lease,
        other => panic!("expected a lease of {name}, got {other:?}"),
    }
}

/// Takes a name that is free or will be. On a busy machine a server's first answers, and those after an outage, can take longer
/// than one claim has.
pub async fn take_waiting(client: &Client, name: &str) -> Lease {
    let request = client.request(name).on_outage(OutagePolicy::WaitOut);
    let lease = request.acquire_within(3 * PATIENCE).await;
    lease.expect("it is free in the end")
}

/// Returns once this lease was renewed so many times.
pub async fn renewed_times(lease: &Lease, times: u32) {
    let mut term = lease.term().expect("held");
    for _ in 0..times {
        let next = soon(lease.renewed_past(term.deadline())).await;
        term = next.expect("not lost");
    }
}

/// Returns once no holder has this name.
pub async fn until_free(store: &dyn Store, name: &str) {
    let name = Name::new(name).expect("a valid name");
    until("the name to be free", async || {
        let held = store.inspect(&name, PATIENCE).await;
        held.expect("answered").is_none().then_some(())
    })
    .await;
}
