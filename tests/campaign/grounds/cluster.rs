//! A cluster of three primaries, each with a replica. The faults strike the part that serves the first name.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use super::redis::left_for_ever;
use super::{Ground, eventually, pause};
use crate::fault::Fault;
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::wait::now;

/// A busy machine keeps a primary silent for seconds, and its replacement would be a fault that none drew.
const PATIENT: Duration = Duration::from_secs(60);
/// While a primary is to be replaced.
const IMPATIENT: Duration = Duration::from_secs(2);

/// After this a replica has given up a failover that it was ordered.
const GIVEN_UP: Duration = Duration::from_secs(7);
const ORDERS: usize = 10;

pub(super) struct ClusterGround {
    cluster: RedisCluster,
    slot: u16,
}

impl ClusterGround {
    pub(super) async fn start(names: &[String]) -> Self {
        let cluster = RedisCluster::with_replicas().await;
        let slot = cluster.slot_of(&names[0]).await;
        let ground = Self { cluster, slot };
        ground.set_patience(PATIENT).await;
        ground
    }

    /// Sets after which silence a primary is replaced.
    async fn set_patience(&self, time: Duration) {
        let set = format!("CONFIG SET cluster-node-timeout {}", time.as_millis());
        for node in &self.cluster.nodes {
            node.told::<()>(&set).await;
        }
    }

    /// The node that serves the slot, by its own account; of several, the one with the highest epoch.
    async fn primary(&self) -> usize {
        eventually("the primary of the slot", async || {
            let mut best: Option<(u64, usize)> = None;
            for (index, node) in self.cluster.nodes.iter().enumerate() {
                let Ok(nodes) = node.ask::<String>("CLUSTER NODES").await else {
                    continue;
                };
                let own = nodes.lines().find(|line| line.contains("myself,master"));
                let Some(own) = own.filter(|own| has_slot(own, self.slot)) else {
                    continue;
                };
                let epoch = own.split(' ').nth(6).and_then(|epoch| epoch.parse().ok());
                best = best.max(Some((epoch.unwrap_or(0), index)));
            }
            best.map(|(_, index)| index)
        })
        .await
    }

    /// A replica that follows this primary and has all its data.
    async fn replica_of(&self, primary: usize) -> usize {
        let port = self.cluster.nodes[primary].port();
        eventually("a replica of the primary", async || {
            for (index, node) in self.cluster.nodes.iter().enumerate() {
                let info = node.ask::<String>("INFO replication").await;
                if info.is_ok_and(|info| {
                    info.contains(&format!("master_port:{port}\r"))
                        && info.contains("master_link_status:up")
                }) {
                    return Some(index);
                }
            }
            None
        })
        .await
    }

    async fn fail_over(&mut self, fault: Fault, hold: Duration) {
        let old = self.primary().await;
        let new = self.replica_of(old).await;
        self.set_patience(IMPATIENT).await;
        match fault {
            Fault::FailoverOrdered => self.order_until_promoted(new).await,
            Fault::FailoverByDeath => {
                self.cluster.nodes[old].kill();
                self.promoted(new).await;
                pause(hold).await;
                self.cluster.nodes[old].start_again().await;
            }
            _ => {
                self.cluster.nodes[old].pause();
                self.promoted(new).await;
                pause(hold).await;
                self.cluster.nodes[old].resume();
            }
        }
        self.set_patience(PATIENT).await;
        eventually("the old primary follows", async || {
            let info = self.cluster.nodes[old].ask::<String>("INFO replication");
            let info = info.await.ok()?;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    /// Orders a failover, and again if it was refused or given up: it is while the two do not hear of each other, or where the
    /// others have voted for a replica of this primary just before.
    async fn order_until_promoted(&self, replica: usize) {
        for _ in 0..ORDERS {
            let _ = self.cluster.nodes[replica]
                .ask::<()>("CLUSTER FAILOVER")
                .await;
            let end = now().after(GIVEN_UP);
            while now() < end {
                if self.is_primary(replica).await {
                    return;
                }
                pause(Duration::from_millis(20)).await;
            }
        }
        panic!("no order of a failover was followed");
    }

    async fn promoted(&self, replica: usize) {
        eventually("the replica is promoted", async || {
            self.is_primary(replica).await.then_some(())
        })
        .await;
    }

    async fn is_primary(&self, node: usize) -> bool {
        let info = self.cluster.nodes[node].ask::<String>("INFO replication");
        info.await.is_ok_and(|info| info.contains("role:master"))
    }

    async fn move_slot(&self) {
        let from = self.primary().await;
        let mut to = from;
        for (index, node) in self.cluster.nodes.iter().enumerate() {
            let nodes: String = node.told("CLUSTER NODES").await;
            if index != from && nodes.lines().any(|line| line.contains("myself,master")) {
                to = index;
            }
        }
        self.cluster.move_slots(&[self.slot], from, to).await;
    }

    /// Adds a primary, lets it serve the slot for a while, and removes it again.
    async fn add_node(&mut self, hold: Duration) {
        let old = self.primary().await;
        let new = self.cluster.add().await;
        self.cluster.move_slots(&[self.slot], old, new).await;
        pause(hold).await;
        self.cluster.move_slots(&[self.slot], new, old).await;
        self.cluster.remove_last().await;
    }
}

/// Whether this line of `CLUSTER NODES` has the slot.
fn has_slot(line: &str, slot: u16) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>(), last.parse::<u16>());
        matches!((first, last), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}

#[async_trait(?Send)]
impl Ground for ClusterGround {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::FailoverOrdered,
            Fault::FailoverByDeath,
            Fault::OldPrimaryWakes,
            Fault::SlotMoved,
            Fault::NodeAdded,
            Fault::Flushed,
            Fault::ScriptsFlushed,
        ]
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, _: &mut Rng) {
        match fault {
            Fault::SlotMoved => self.move_slot().await,
            Fault::NodeAdded => self.add_node(hold).await,
            Fault::Flushed | Fault::ScriptsFlushed => {
                let primary = &self.cluster.nodes[self.primary().await];
                let command = match fault {
                    Fault::Flushed => "FLUSHALL",
                    _ => "SCRIPT FLUSH",
                };
                let () = primary.told(command).await;
            }
            _ => self.fail_over(fault, hold).await,
        }
    }

    async fn left_for_ever(&self) -> Vec<String> {
        let primary = self.primary().await;
        left_for_ever(&self.cluster.nodes[primary]).await
    }
}
