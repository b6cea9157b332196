//! What a grant costs the servers while many clients wait for their turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{Client, OutagePolicy, WaitOrder};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::server::Server;
use super::yardstick::figure;

const TTL: Duration = Duration::from_secs(30);
const HOLD: Duration = Duration::from_millis(1);
const APART: Duration = Duration::from_millis(10);
/// The grants that are counted; before them each client has its place.
const GRANTS: usize = 300;

/// Clients that take one name in turns, each with sessions of its own, as processes have.
pub(crate) async fn measure(clients: usize) {
    let server = Server::start().await;
    let counter = server.counter().await;
    let grants = Arc::new(AtomicUsize::new(0));
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let builder = Client::builder().store_url(counter.url()).ttl(TTL);
        let client = builder.build().await.expect("the store opens");
        tasks.spawn(take_turns(client, grants.clone(), stopped.clone()));
        // A thousand sessions made at once would be another measurement.
        tokio::time::sleep(APART).await;
    }
    // All have joined the queue.
    until(&grants, clients + GRANTS / 3).await;
    counter.take();
    let before = grants.load(Ordering::Relaxed);
    until(&grants, before + GRANTS).await;
    let (requests, granted) = (counter.take(), grants.load(Ordering::Relaxed) - before);
    stop.send_replace(true);
    tasks.join_all().await;
    report(clients, &requests, granted);
}

async fn take_turns(client: Client, grants: Arc<AtomicUsize>, mut stopped: watch::Receiver<bool>) {
    let turns = async {
        loop {
            let request = client.request("turns").order(WaitOrder::Fair);
            let request = request.on_outage(OutagePolicy::WaitOut);
            let lease = request.acquire().await.expect("in the end");
            tokio::time::sleep(HOLD).await;
            lease.release().await;
            grants.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = turns => {}
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    client.shutdown(Duration::from_secs(30)).await;
}

async fn until(grants: &AtomicUsize, goal: usize) {
    while grants.load(Ordering::Relaxed) < goal {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn report(clients: usize, requests: &BTreeMap<&str, u64>, granted: usize) {
    let per_grant = |count: u64| count as f64 / granted as f64;
    let kinds = requests.iter();
    let kinds: Vec<_> = kinds
        .map(|(kind, count)| format!("{kind}={:.1}", per_grant(*count)))
        .collect();
    println!("# of these {}", kinds.join(" "));
    let name = format!("zookeeper_requests_per_grant_{clients}_waiters");
    figure(&name, "requests", &[per_grant(requests.values().sum())]);
}
