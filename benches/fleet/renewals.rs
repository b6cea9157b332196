//! Renewals a second at the store: batches of 256 leases of one server, four of them at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use leasehold::store::{Answer, Ask, Claim, Info, MAX_BATCH, Outcome, Renewal, Store};
use leasehold::{ClientId, Holder, Name};

use super::yardstick::{case, seconds};

const RUNS: usize = 7;
const RENEWED: usize = 20_000;
const IN_FLIGHT: usize = 4;
const LIMIT: Duration = Duration::from_secs(10);
/// None is due while the bench runs.
const TTL: Duration = Duration::from_secs(600);

/// Measures the store at one URL beside the store at the other.
pub(crate) async fn measure(ours: &str, our_url: &str, other_url: &str) {
    let (ours_held, other_held) = (
        Held::take(our_url, ours).await,
        Held::take(other_url, ours).await,
    );
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push((
            ours_held.renewed_per_s().await,
            other_held.renewed_per_s().await,
        ));
    }
    let name = format!("{ours}_renewals_per_s_vs_one_server");
    case(&name, "renewals/s", &runs);
}

/// Leases taken straight from a store, in batches by server.
struct Held {
    store: Arc<dyn Store>,
    batches: Vec<Vec<Renewal>>,
}

impl Held {
    async fn take(url: &str, prefix: &str) -> Self {
        let store = leasehold::store::open(url).await.expect("the store opens");
        let (client, info) = (ClientId::draw(), Info::here(None).expect("no label"));
        let info = Arc::new(info);
        let mut by_server = BTreeMap::<u32, Vec<Renewal>>::new();
        for index in 0..RENEWED {
            let name = Name::new(format!("{prefix}-{index}")).expect("a name");
            let holder = Holder::draw(client).expect("random bits");
            let claim = Claim::new(name.clone(), holder, TTL, info.clone());
            let answer = store.acquire(&claim, Ask::default(), LIMIT).await;
            let Answer::Granted(grant) = answer.expect("answered") else {
                panic!("{name} is not free");
            };
            let renewal = Renewal::new(name, holder, grant.token, TTL);
            // The servers are known from the first answer on.
            let shard = store.shard(&renewal.name);
            by_server.entry(shard).or_default().push(renewal);
        }
        let mut batches: Vec<_> = by_server
            .into_values()
            .flat_map(|of_server| {
                let batches = of_server.chunks(MAX_BATCH).map(<[Renewal]>::to_vec);
                batches.collect::<Vec<_>>()
            })
            .collect();
        // Those under way at one time are of different servers.
        fastrand::shuffle(&mut batches);
        Self { store, batches }
    }

    async fn renewed_per_s(&self) -> f64 {
        let start = Instant::now();
        let batches = futures_util::stream::iter(&self.batches);
        let renewed = batches.map(|batch| self.store.renew(batch, LIMIT));
        let renewed: Vec<_> = renewed.buffer_unordered(IN_FLIGHT).collect().await;
        let took = seconds(start);
        let is_renewed = |outcome: &Outcome| matches!(outcome, Outcome::Renewed);
        for batch in renewed {
            assert!(batch.outcomes.iter().all(is_renewed), "none is lost");
        }
        RENEWED as f64 / took
    }
}
