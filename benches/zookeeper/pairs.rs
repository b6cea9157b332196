//! Acquire and release, hand-off and renewals: beside the least that ZooKeeper can do, and beside our store on Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::store::{Answer, Ask, Claim, Info, MAX_BATCH, Outcome, Renewal, Store};
use leasehold::{Attempt, Client, ClientId, Holder, Name, OutagePolicy, WaitOrder};

use super::alternating::alternating;
use super::bare::Bare;
use super::server::Server;
use super::throughput::throughput;
use super::yardstick::{self, case, median, seconds};

const RUNS: usize = 5;
const BLOCKS: usize = 4;
const BLOCK: usize = 25;
const PAIRS_A_TASK: usize = 10;
const TURNS: usize = 40;
const RENEWED: usize = 2_048;
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) async fn measure() {
    let (server, redis) = (Server::start().await, yardstick::Server::start().await);
    let ours = client(&server.url()).await;
    let other = client(&redis.url()).await;
    let bare = Arc::new(Bare::connect(&server.cluster()).await);
    one_task(&ours, &other, &bare).await;
    sixty_four_tasks(&ours, &other, &bare).await;
    hand_offs(&server.url(), &redis.url()).await;
    renewals(&server.url(), &redis.url(), &bare).await;
}

async fn client(url: &str) -> Client {
    let client = Client::open(url).await.expect("the store opens");
    let request = client.request("warm").on_outage(OutagePolicy::WaitOut);
    drop(request.acquire().await.expect("it is free"));
    client
}

async fn pair(client: &Client, name: &str) {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease.release().await,
        other => panic!("{other:?}"),
    };
}

async fn one_task(ours: &Client, redis: &Client, bare: &Bare) {
    let (mut beside_bare, mut beside_redis) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let ours = async || pair(ours, "one").await;
        beside_bare.push(alternating(BLOCKS, BLOCK, ours, async || bare.pair("one").await).await);
        beside_redis
            .push(alternating(BLOCKS, BLOCK, ours, async || pair(redis, "one").await).await);
    }
    case("zookeeper_1_task_p50_vs_bare", "us", &beside_bare);
    case("zookeeper_1_task_p50_vs_redis", "us", &beside_redis);
}

async fn pairs_of_64(client: &Client) -> f64 {
    throughput(PAIRS_A_TASK, |index| {
        let client = client.clone();
        async move {
            for _ in 0..PAIRS_A_TASK {
                pair(&client, &format!("task-{index}")).await;
            }
        }
    })
    .await
}

async fn sixty_four_tasks(ours: &Client, redis: &Client, bare: &Arc<Bare>) {
    let (mut beside_bare, mut beside_redis) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let rate = pairs_of_64(ours).await;
        let of_bare = throughput(PAIRS_A_TASK, |index| {
            let bare = bare.clone();
            async move {
                for _ in 0..PAIRS_A_TASK {
                    bare.pair(&format!("bare-{index}")).await;
                }
            }
        });
        beside_bare.push((rate, of_bare.await));
        beside_redis.push((rate, pairs_of_64(redis).await));
    }
    case(
        "zookeeper_64_tasks_pairs_per_s_vs_bare",
        "pairs/s",
        &beside_bare,
    );
    case(
        "zookeeper_64_tasks_pairs_per_s_vs_redis",
        "pairs/s",
        &beside_redis,
    );
}

/// Returns the median microseconds from a release to the grant of the other one of two clients.
async fn hand_off(clients: &[Client; 2]) -> f64 {
    let acquire = async |client: &Client| {
        let request = client.request("turns").order(WaitOrder::Fair);
        let request = request.on_outage(OutagePolicy::WaitOut);
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

async fn hand_offs(url: &str, redis: &str) {
    let ours = [client(url).await, client(url).await];
    let other = [client(redis).await, client(redis).await];
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push((hand_off(&ours).await, hand_off(&other).await));
    }
    case("zookeeper_hand_off_fair_p50_vs_redis", "us", &runs);
}

/// Takes leases straight from the store at this URL, and returns their renewals.
async fn taken(url: &str) -> (Arc<dyn Store>, Vec<Renewal>) {
    let store = leasehold::store::open(url).await.expect("the store opens");
    let client = ClientId::draw();
    let info = Arc::new(Info::here(None).expect("no label"));
    let mut renewals = Vec::new();
    for index in 0..RENEWED {
        let name = Name::new(format!("renewed-{index}")).expect("a name");
        let holder = Holder::draw(client).expect("random bits");
        let ttl = Duration::from_secs(600);
        let claim = Claim::new(name.clone(), holder, ttl, info.clone());
        let answer = store.acquire(&claim, Ask::default(), LIMIT).await;
        match answer.expect("answered") {
            Answer::Granted(grant) => {
                renewals.push(Renewal::new(name, holder, grant.token, ttl));
            }
            other => panic!("{other:?}"),
        }
    }
    (store, renewals)
}

async fn renewed_per_s(store: &dyn Store, renewals: &[Renewal]) -> f64 {
    let start = Instant::now();
    let batches = renewals.chunks(MAX_BATCH);
    for renewed in join_all(batches.map(|batch| store.renew(batch, LIMIT))).await {
        let is_renewed = |outcome: &Outcome| matches!(outcome, Outcome::Renewed);
        assert!(renewed.outcomes.iter().all(is_renewed), "none is lost");
    }
    renewals.len() as f64 / seconds(start)
}

async fn renewals(url: &str, redis: &str, bare: &Bare) {
    let ((ours, of_ours), (other, of_other)) = (taken(url).await, taken(redis).await);
    bare.make(RENEWED).await;
    let (mut beside_bare, mut beside_redis) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let rate = renewed_per_s(&*ours, &of_ours).await;
        let start = Instant::now();
        bare.renew(RENEWED, MAX_BATCH).await;
        beside_bare.push((rate, RENEWED as f64 / seconds(start)));
        beside_redis.push((rate, renewed_per_s(&*other, &of_other).await));
    }
    case(
        "zookeeper_renewals_per_s_vs_bare",
        "renewals/s",
        &beside_bare,
    );
    case(
        "zookeeper_renewals_per_s_vs_redis",
        "renewals/s",
        &beside_redis,
    );
}
