//! What every store can do: acquire and release, hand a name to a waiting client, renew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::store::{Answer, Ask, Claim, Info, MAX_BATCH, Outcome, Renewal, Store};
use leasehold::{Attempt, Client, ClientId, Holder, LeaseRequest, Name, OutagePolicy};

use crate::{median, seconds};

/// How many leases are renewed.
pub const RENEWED: usize = 2_048;
const TURNS: usize = 40;
const LIMIT: Duration = Duration::from_secs(10);
/// No longer than every store takes, and longer than a run.
const TTL: Duration = Duration::from_secs(60);

/// Returns a client that has had a lease.
pub async fn client(url: &str) -> Client {
    let client = Client::open(url).await.expect("the store opens");
    let request = client.request("warm").on_outage(OutagePolicy::WaitOut);
    drop(request.acquire().await.expect("it is free"));
    client
}

/// Acquires and releases.
pub async fn pair(client: &Client, name: &str) {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease.release().await,
        other => panic!("{other:?}"),
    };
}

/// Returns the median microseconds from a release to the grant of the other one of two clients that send this request.
pub async fn hand_off(clients: &[Client; 2], request: impl Fn(&Client) -> LeaseRequest) -> f64 {
    let acquire = async |client: &Client| {
        let request = request(client).on_outage(OutagePolicy::WaitOut);
        request.acquire().await.expect("in the end")
    };
    let mut took = Vec::new();
    let mut held = acquire(&clients[0]).await;
    for turn in 1..=TURNS {
        let next = async {
            let lease = acquire(&clients[turn % 2]).await;
            (lease, Instant::now())
        };
        let release = async {
            // Long enough for the other one to be asleep in the queue.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let released_at = Instant::now();
            held.release().await;
            released_at
        };
        let ((lease, granted_at), released_at) = tokio::join!(next, release);
        took.push((granted_at - released_at).as_secs_f64() * 1e6);
        held = lease;
    }
    held.release().await;
    median(took)
}

/// Takes so many leases straight from the store at this URL, and returns their renewals.
pub async fn taken(url: &str, count: usize) -> (Arc<dyn Store>, Vec<Renewal>) {
    let store = leasehold::store::open(url).await.expect("the store opens");
    let client = ClientId::draw();
    let info = Arc::new(Info::here(None).expect("no label"));
    let mut renewals = Vec::new();
    for index in 0..count {
        let name = Name::new(format!("renewed-{index}")).expect("a name");
        let holder = Holder::draw(client).expect("random bits");
        let claim = Claim::new(name.clone(), holder, TTL, info.clone());
        let answer = store.acquire(&claim, Ask::default(), LIMIT).await;
        match answer.expect("answered") {
            Answer::Granted(grant) => {
                renewals.push(Renewal::new(name, holder, grant.token, TTL));
            }
            other => panic!("{other:?}"),
        }
    }
    (store, renewals)
}

/// Renews all of them once, in batches at once.
#[expect(clippy::cast_precision_loss, reason = "a few thousand renewals")]
pub async fn renewed_per_s(store: &dyn Store, renewals: &[Renewal]) -> f64 {
    let start = Instant::now();
    let batches = renewals.chunks(MAX_BATCH);
    for renewed in join_all(batches.map(|batch| store.renew(batch, LIMIT))).await {
        let is_renewed = |outcome: &Outcome| matches!(outcome, Outcome::Renewed);
        assert!(renewed.outcomes.iter().all(is_renewed), "none is lost");
    }
    renewals.len() as f64 / seconds(start)
}
