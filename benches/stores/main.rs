//! All stores side by side in one run: what acquiring and releasing, a hand-off to a waiting client, and renewals cost on
//! each, as ratios to one Redis server.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench stores
//! cargo bench -p leasehold-benches --bench stores -- kubernetes
//! ```
//! It takes about two minutes. No server flushes its disk, but for a second Postgres server. The servers and the network
//! between them are those of one machine, so a round trip costs next to nothing: where servers are apart, count the
//! round trips instead.

use std::time::Duration;

use alternating::alternating;
use harness::bucket_server::{BucketServer, Program};
use harness::etcd_server::EtcdServer;
use harness::kubernetes_server::{KubernetesServer, Namespace};
use harness::mysql_server::MysqlServer;
use harness::postgres_server::{Database, PostgresServer};
use harness::redis_cluster::RedisCluster;
use harness::redis_group::RedisGroup;
use harness::redis_quorum::RedisQuorum;
use harness::redis_server::{RedisServer, Setup};
use harness::zookeeper_server::{ZookeeperEnsemble, ZookeeperServer};
use leasehold::Client;
use leasehold::clock::{Clock as _, Monotonic};
use leasehold::store::TableSettings;
use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_benches::contender::Contender;
use leasehold_benches::leases;
use leasehold_harness as harness;
use leases::{RENEWED, client, hand_off, pair, renewed_per_s, taken};
use tempfile::TempDir;
use yardstick::case;

const RUNS: usize = 5;
const BLOCKS: usize = 4;
const BLOCK: usize = 25;
/// The tick of ZooKeeper's servers.
const TICK: Duration = Duration::from_secs(2);

/// The URL of a server by its port: as the groups are, and not on its socket, which is faster.
fn url_of(redis: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}", redis.port())
}

/// A store beside the one on Redis.
async fn beside(store: &str, url: &str, redis: &RedisServer) {
    let redis = &url_of(redis);
    pairs(store, &client(url).await, &client(redis).await).await;
    let ours = [client(url).await, client(url).await];
    let other = [client(redis).await, client(redis).await];
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let request = |client: &Client| client.request("turns");
        let ours = hand_off(&ours, request).await;
        runs.push((ours, hand_off(&other, request).await));
    }
    case(&format!("{store}_hand_off_p50_vs_redis"), "us", &runs);
    // All of a bucket's would run out before the last one is taken.
    let renewed = match store {
        "bucket" => RENEWED / 16,
        _ => RENEWED,
    };
    let ((ours, of_ours), (other, of_other)) =
        (taken(url, renewed).await, taken(redis, renewed).await);
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = renewed_per_s(&*ours, &of_ours).await;
        runs.push((ours, renewed_per_s(&*other, &of_other).await));
    }
    let name = format!("{store}_renewals_per_s_vs_redis");
    case(&name, "renewals/s", &runs);
}

async fn pairs(store: &str, ours: &Client, redis: &Client) {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = async || pair(ours, "one").await;
        runs.push(alternating(BLOCKS, BLOCK, ours, async || pair(redis, "one").await).await);
    }
    case(&format!("{store}_pair_p50_vs_redis"), "us", &runs);
}

/// Kubernetes beside client-go's leader election with its default times, on the same server.
async fn beside_client_go(namespace: &Namespace) {
    let (url, lease_s) = (namespace.url(), 15);
    let ours = client(&url).await;
    let mut elector = namespace.elector("led", lease_s);
    elector.arg("pairs");
    let mut elector = Contender::of(elector);
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ours = async || pair(&ours, "one").await;
        let other = async || {
            elector.order("");
            elector.answer();
        };
        runs.push(alternating(BLOCKS, BLOCK, ours, other).await);
    }
    case("kubernetes_pair_p50_vs_client_go", "us", &runs);
    let clients = [ours, client(&url).await];
    let mut leader = namespace.elect("turns-of-theirs", lease_s);
    leader.says("leads").await;
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let ours = hand_off(&clients, |client| client.request("turns")).await;
        let mut next = namespace.elect("turns-of-theirs", lease_s);
        // At another moment between two of its looks each time.
        tokio::time::sleep(Duration::from_millis(1_000 + 400 * run as u64)).await;
        let released_at = Monotonic.now();
        leader.end();
        next.says("leads").await;
        let theirs = Monotonic.now().since(released_at);
        runs.push((ours, theirs.as_secs_f64() * 1e6));
        leader = next;
    }
    case("kubernetes_hand_off_p50_vs_client_go", "us", &runs);
}

async fn postgres(settings: &[&str]) -> (PostgresServer, Database) {
    let server = PostgresServer::start(settings).await;
    let database = server.database_named("postgres");
    let (url, settings) = (database.url(), TableSettings::default());
    let made = leasehold::store::init(&url, settings, Duration::from_secs(10)).await;
    made.expect("set up");
    (server, database)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let stores = [
        "sqlite",
        "sentinel",
        "cluster",
        "quorum",
        "postgres",
        "mysql",
        "bucket",
        "zookeeper",
        "etcd",
        "kubernetes",
        "ensemble",
    ];
    let is_selected = words.iter().any(|word| stores.contains(&word.as_str()));
    let has = |store: &str| !is_selected || words.iter().any(|word| word == store);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        // A server of its own for each comparison: names that are taken in one are free in the next.
        let redis = async || Setup::default().with_port().start().await;
        if has("sqlite") {
            let folder = TempDir::new().expect("a folder");
            let file = format!("sqlite:{}", folder.path().join("leases.sqlite").display());
            beside("sqlite", &file, &redis().await).await;
        }
        if has("sentinel") {
            let group = RedisGroup::start().await;
            beside("sentinel", &group.url(), &redis().await).await;
            let acknowledged = format!("{}?acknowledged_by=1", group.url());
            let (ours, other) = (client(&acknowledged).await, redis().await);
            let other = client(&url_of(&other)).await;
            pairs("sentinel_acknowledged", &ours, &other).await;
        }
        if has("cluster") {
            let cluster = RedisCluster::with_replicas().await;
            beside("cluster", &cluster.url(), &redis().await).await;
        }
        if has("quorum") {
            let quorum = RedisQuorum::start_with_ports(3).await;
            beside("quorum", &quorum.url(), &redis().await).await;
        }
        if has("postgres") {
            let (server, database) = postgres(&["fsync=off"]).await;
            beside("postgres", &database.url(), &redis().await).await;
            drop(server);
            let (_server, database) = postgres(&[]).await;
            beside("postgres_flushing", &database.url(), &redis().await).await;
        }
        if has("mysql") && MysqlServer::is_unpacked() {
            let server = MysqlServer::start().await;
            beside("mysql", &server.url().await, &redis().await).await;
        } else if has("mysql") {
            println!("mysql: left out, tests/run --faults unpacks its server");
        }
        if has("bucket") {
            let server = BucketServer::start(Program::Moto).await;
            beside("bucket", &server.leases_url("bench"), &redis().await).await;
        }
        if has("zookeeper") {
            let server = ZookeeperServer::start(TICK).await;
            beside("zookeeper", &server.url(""), &redis().await).await;
        }
        if has("etcd") {
            let server = EtcdServer::start().await;
            beside("etcd", &server.url(), &redis().await).await;
        }
        if has("kubernetes") && KubernetesServer::is_built() {
            let namespace = Namespace::make().await;
            beside("kubernetes", &namespace.url(), &redis().await).await;
            beside_client_go(&namespace).await;
        } else if has("kubernetes") {
            println!("kubernetes: left out, tests/run --faults builds its server");
        }
        if has("ensemble") {
            let ensemble = ZookeeperEnsemble::start(TICK).await;
            beside("ensemble", &ensemble.url(""), &redis().await).await;
        }
    });
}
