//! The stores on which campaigns are run: each with its servers and the network before them, and the faults that it can
//! have.

mod bucket;
mod cluster;
mod ensemble;
mod etcd;
mod kubernetes;
mod mysql;
mod postgres;
mod quorum;
mod redis;
mod sentinel;
mod sqlite;
mod zookeeper;

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use crate::fault::Fault;
use crate::harness::relay::{Passing, Relay};
use crate::harness::wait::{now, pause};
use crate::history::Promise;

/// With how many I/O threads a Redis server runs, in one half of the runs and in the other.
const IO_THREADS: [&str; 2] = ["1", "4"];

/// A store and what surrounds it.
#[async_trait(?Send)]
pub(crate) trait Ground {
    /// The URL for the workers, through the network that fails.
    fn url(&self) -> String;

    /// The URL for the runner, past that network.
    fn direct_url(&self) -> String {
        self.url()
    }

    /// The ttl of the workers' leases: the least that has the default margin, unless the store has one of its own.
    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The faults that it can have, beside those that are everywhere.
    fn faults(&self) -> &'static [Fault];

    /// The promises that are not made in this fault on this store.
    fn suspends(&self, fault: Fault) -> Vec<Promise> {
        fault.suspends()
    }

    /// How much longer than itself a fault suspends them on this store.
    fn echo(&self, fault: Fault) -> Duration {
        fault.echo()
    }

    /// How long after the end of a holder's lease a client that waits may be granted the name.
    fn grants_late_by(&self) -> Duration {
        Duration::ZERO
    }

    /// What the environment of the worker processes and of the tool has beside that of the runner.
    fn environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Makes a fault happen, for about so long, and heals it.
    async fn strike(&mut self, fault: Fault, hold: Duration, random: &mut Rng);

    /// What is in the store without an expiry, though no lease is left.
    async fn left_for_ever(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Site {
    Sqlite,
    Redis,
    /// Redis with `max_ttl`: after a loss of data it grants nothing until what it may have forgotten is over.
    RedisKeepingOut,
    Sentinel,
    Cluster,
    Postgres,
    Zookeeper,
    Ensemble,
    Quorum,
    Bucket,
    Etcd,
    Kubernetes,
    Mysql,
}

impl Site {
    pub(crate) const ALL: [Self; 13] = [
        Self::Sqlite,
        Self::Redis,
        Self::RedisKeepingOut,
        Self::Sentinel,
        Self::Cluster,
        Self::Postgres,
        Self::Zookeeper,
        Self::Ensemble,
        Self::Quorum,
        Self::Bucket,
        Self::Etcd,
        Self::Kubernetes,
        Self::Mysql,
    ];

    /// Starts its servers. `names` are those that workers will take. By the seed one of the two kinds of Redis has I/O threads
    /// throughout, and the other one has none.
    pub(crate) async fn start(self, names: &[String], seed: u64) -> Box<dyn Ground> {
        let half = usize::from(seed % 2 == 1);
        match self {
            Self::Sqlite => Box::new(sqlite::SqliteGround::start()),
            Self::Redis => Box::new(redis::RedisGround::start(false, IO_THREADS[half]).await),
            Self::RedisKeepingOut => {
                Box::new(redis::RedisGround::start(true, IO_THREADS[1 - half]).await)
            }
            Self::Sentinel => Box::new(sentinel::SentinelGround::start().await),
            Self::Cluster => Box::new(cluster::ClusterGround::start(names).await),
            Self::Postgres => Box::new(postgres::PostgresGround::start().await),
            Self::Zookeeper => Box::new(zookeeper::ZookeeperGround::start().await),
            Self::Ensemble => Box::new(ensemble::EnsembleGround::start().await),
            Self::Bucket => Box::new(bucket::BucketGround::start().await),
            Self::Quorum => Box::new(quorum::QuorumGround::start().await),
            Self::Etcd => Box::new(etcd::EtcdGround::start().await),
            Self::Kubernetes => Box::new(kubernetes::KubernetesGround::start().await),
            Self::Mysql => Box::new(mysql::MysqlGround::start().await),
        }
    }
}

/// Tries until there is a result. A group of servers on a busy machine may need several elections.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = now().after(Duration::from_secs(60));
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(now() < end, "waited a minute in vain for {what}");
        pause(Duration::from_millis(20)).await;
    }
}

/// Lets this much through for a while.
async fn pass_only(relay: &Relay, passing: Passing, hold: Duration) {
    relay.pass(passing);
    pause(hold).await;
    relay.pass(Passing::All);
}
