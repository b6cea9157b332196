//! One server, a cluster of one primary, a cluster of three, and a master with a replica. All are reached by a loopback
//! port, as a cluster has to be.

use std::slice;

use super::harness::redis_cluster::RedisCluster;
use super::harness::redis_server::{RedisServer, Setup};
use super::harness::wait::until_so;

pub(crate) struct Servers {
    alone: RedisServer,
    small: RedisServer,
    large: RedisCluster,
    master: RedisServer,
    /// It follows the master.
    _replica: RedisServer,
}

impl Servers {
    pub(crate) async fn start() -> Self {
        let small = Setup::default().with_cluster_bus().start().await;
        let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
        let () = small
            .told(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))
            .await;
        until_so("the cluster of one primary", async || {
            let info: String = small.told("CLUSTER INFO").await;
            info.contains("cluster_state:ok")
        })
        .await;
        let [alone, master, replica] = [
            Setup::default().with_port().start().await,
            Setup::default().with_port().start().await,
            Setup::default().with_port().start().await,
        ];
        replica.follow(&master).await;
        until_so("the replica counts", async || {
            let info: String = master.told("INFO replication").await;
            info.contains("state=online")
        })
        .await;
        Self {
            alone,
            small,
            large: RedisCluster::start().await,
            master,
            _replica: replica,
        }
    }

    /// Returns the URL of the server alone.
    pub(crate) fn one(&self) -> String {
        format!("redis://127.0.0.1:{}", self.alone.port())
    }

    /// Returns the URL of the cluster of one primary.
    pub(crate) fn small(&self) -> String {
        format!("redis+cluster://127.0.0.1:{}", self.small.port())
    }

    /// Returns the URL of the cluster of three primaries.
    pub(crate) fn large(&self) -> String {
        self.large.url()
    }

    /// Returns the URL of the master whose writes count once the replica has them, and the same without.
    pub(crate) fn acknowledged(&self) -> (String, String) {
        let url = format!("redis://127.0.0.1:{}", self.master.port());
        (format!("{url}?acknowledged_by=1"), url)
    }

    /// Returns the server alone.
    pub(crate) fn alone(&self) -> &[RedisServer] {
        slice::from_ref(&self.alone)
    }

    /// Returns the primaries of the cluster of three.
    pub(crate) fn primaries(&self) -> &[RedisServer] {
        &self.large.nodes
    }
}
