//! The watchdog over real threads and real time, with a store and a user that misbehave.

mod first_contact;
mod forked;
mod hung_connection;
mod late;
mod starved;
mod stepped;
mod stores;
mod threads;
mod told;
mod unruly;
mod wakers;

use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Attempt, Client, Lease};

use self::unruly::Unruly;
use crate::harness::alone::alone;

/// Short, so that a test takes a few of them; long enough for a busy machine.
const TTL: Duration = Duration::from_millis(600);
const MARGIN: Duration = Duration::from_millis(60);
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(10);

async fn client(store: &Unruly) -> Client {
    let builder = Client::builder().store(store.clone());
    builder.ttl(TTL).margin(MARGIN).build().await.unwrap()
}

async fn held(client: &Client, name: &str) -> Lease {
    match client.try_acquire(name).await.unwrap() {
        Attempt::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// Waits until this lease was renewed so many times.
async fn renewed(lease: &Lease, times: u32) {
    let mut term = lease.term().expect("held");
    for _ in 0..times {
        let next = lease.renewed_past(term.deadline());
        let next = tokio::time::timeout(LIMIT, next)
            .await
            .expect("renewed in time");
        term = next.expect("not lost");
    }
}

async fn until_free(store: &Unruly, name: &str) {
    let name = leasehold::Name::new(name).unwrap();
    let free = async {
        while store.inspect(&name, LIMIT).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LIMIT, free)
        .await
        .expect("it is freed");
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}
