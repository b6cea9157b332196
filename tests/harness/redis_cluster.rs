//! A cluster: three primaries, each with a replica if the test wants them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use deadpool_redis::redis;

use tokio::process::Command;

use super::network::Network;
use super::redis_server::{RedisServer, Setup};
use super::wait::{at, now, until_so};

/// The number of slots.
const SLOTS: u16 = 16_384;
/// The number of primaries.
const PRIMARIES: usize = 3;

/// The nodes of a cluster. They end on drop.
#[derive(Debug)]
pub struct RedisCluster {
    /// The primaries to begin with, and then the replica of each.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts three primaries without replicas.
    pub async fn start() -> Self {
        Self::with(Setup::default, false).await
    }

    /// Starts three primaries, each with a replica. A silent primary counts as down after a second.
    pub async fn with_replicas() -> Self {
        Self::with(Setup::default, true).await
    }

    /// The same with each node on a host of its own.
    pub async fn on_hosts(network: &Network) -> Self {
        Self::with(Setup::on_hosts(network), true).await
    }

    /// The same, with nodes that are set up so.
    pub async fn with(setup: impl Fn() -> Setup, has_replicas: bool) -> Self {
        let count = if has_replicas {
            2 * PRIMARIES
        } else {
            PRIMARIES
        };
        // The default. Without replicas the others should go on when one of them fails.
        let coverage = if has_replicas { "yes" } else { "no" };
        let mut nodes = Vec::new();
        for _ in 0..count {
            let node = setup()
                .with_cluster_bus()
                .with(["--cluster-require-full-coverage", coverage])
                .with(["--cluster-node-timeout", "1000"]);
            nodes.push(node.start().await);
        }
        let cluster = Self { nodes };
        cluster.join().await;
        cluster
    }

    async fn join(&self) {
        for (index, primary) in self.nodes[..PRIMARIES].iter().enumerate() {
            let () = primary
                .told(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1))
                .await;
            let slots: Vec<_> = slots_of(index).map(|slot| slot.to_string()).collect();
            let () = primary
                .told(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))
                .await;
        }
        for node in &self.nodes[1..] {
            self.meet(node).await;
        }
        self.agree(self.nodes.len()).await;
        for (primary, replica) in self.nodes.iter().zip(&self.nodes[PRIMARIES..]) {
            let id: String = primary.told("CLUSTER MYID").await;
            until_so("the replica knows its primary", async || {
                let told = replica.ask::<()>(&format!("CLUSTER REPLICATE {id}")).await;
                told.is_ok()
            })
            .await;
        }
        for (primary, replica) in self.nodes.iter().zip(&self.nodes[PRIMARIES..]) {
            until_so("the replica has all data", async || {
                let info: String = replica.told("INFO replication").await;
                let primary: String = primary.told("INFO replication").await;
                info.contains("master_link_status:up") && primary.contains("state=online")
            })
            .await;
        }
        // Until every node knows who follows whom, a failover has too few voters.
        let replicas = self.nodes.len() - PRIMARIES;
        for node in &self.nodes {
            until_so("every node knows the replicas", async || {
                let known: String = node.told("CLUSTER NODES").await;
                known.matches("slave").count() == replicas
            })
            .await;
        }
    }

    async fn meet(&self, node: &RedisServer) {
        let meet = format!("CLUSTER MEET {} {}", node.address(), node.port());
        let () = self.nodes[0].told(&meet).await;
    }

    /// Adds a primary without slots. Returns its index.
    pub async fn add(&mut self) -> usize {
        let node = Setup::default().with_cluster_bus();
        let node = node.with(["--cluster-node-timeout", "1000"]).start().await;
        self.meet(&node).await;
        self.nodes.push(node);
        self.agree(self.nodes.len()).await;
        self.nodes.len() - 1
    }

    /// Moves so many slots from one node to another, by the operators' tool.
    pub async fn reshard(&self, slots: u16, from: usize, to: usize) {
        let from: String = self.nodes[from].told("CLUSTER MYID").await;
        let to: String = self.nodes[to].told("CLUSTER MYID").await;
        let slots = slots.to_string();
        self.operate(
            "reshard",
            &[
                "--cluster-from",
                &from,
                "--cluster-to",
                &to,
                "--cluster-slots",
                &slots,
                "--cluster-yes",
            ],
        )
        .await;
    }

    /// Gives each primary as many slots, by the operators' tool.
    pub async fn rebalance(&self) {
        self.operate("rebalance", &["--cluster-use-empty-masters"])
            .await;
    }

    /// Takes all slots of a node and gives each other primary as many, by the operators' tool.
    pub async fn empty(&self, node: usize) {
        let id: String = self.nodes[node].told("CLUSTER MYID").await;
        let weight = format!("{id}=0");
        self.operate("rebalance", &["--cluster-weight", &weight])
            .await;
    }

    /// Runs `redis-cli --cluster`, which does nothing until all nodes agree.
    async fn operate(&self, what: &str, arguments: &[&str]) {
        let node = format!("{}:{}", self.nodes[0].address(), self.nodes[0].port());
        until_so(what, async || {
            let mut tool = Command::new("redis-cli");
            tool.args(["--cluster", what, &node]).args(arguments);
            let ended = tool.output().await.expect("redis-cli starts");
            let is_done = ended.status.success();
            if !is_done {
                eprintln!("{what}: {}", String::from_utf8_lossy(&ended.stdout));
            }
            is_done
        })
        .await;
        self.agree(self.nodes.len()).await;
    }

    /// Removes the last node, which has no slots any more, and stops it a moment later: the operators' tool leaves it
    /// running, and until then it redirects the clients that take it for the owner of a slot.
    pub async fn remove_last(&mut self) {
        let node = self.nodes.pop().expect("there is a node");
        let id: String = node.told("CLUSTER MYID").await;
        for other in &self.nodes {
            let () = other.told(&format!("CLUSTER FORGET {id}")).await;
        }
        at(now().after(Duration::from_secs(2))).await;
        drop(node);
        self.agree(self.nodes.len()).await;
    }

    /// Waits until each node knows that many, and who serves each slot.
    pub async fn agree(&self, count: usize) {
        for node in &self.nodes {
            until_so("the nodes agree", async || {
                let info: String = node.told("CLUSTER INFO").await;
                info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_slots_assigned:{SLOTS}"))
                    && info.contains(&format!("cluster_known_nodes:{count}"))
            })
            .await;
        }
    }

    /// Returns the URL for the store.
    pub fn url(&self) -> String {
        let hosts = self.nodes[..PRIMARIES].iter();
        let hosts: Vec<_> = hosts
            .map(|node| format!("{}:{}", node.address(), node.port()))
            .collect();
        let scheme = self.nodes[0].scheme();
        format!("{scheme}+cluster://{}", hosts.join(","))
    }

    /// Returns the index of the primary that serves this name to begin with.
    pub async fn primary_of(&self, name: &str) -> usize {
        let slot = self.slot_of(name).await;
        let owner = (0..PRIMARIES).find(|index| slots_of(*index).contains(&slot));
        owner.expect("each slot has a primary")
    }

    /// Returns how many slots this node serves, to its own knowledge.
    pub async fn slot_count(&self, node: usize) -> usize {
        self.slots_on(node).await.len()
    }

    /// Returns the slots that this node serves, to its own knowledge.
    pub async fn slots_on(&self, node: usize) -> HashSet<u16> {
        let id: String = self.nodes[node].told("CLUSTER MYID").await;
        let nodes: String = self.nodes[node].told("CLUSTER NODES").await;
        let line = nodes.lines().find(|line| line.starts_with(&id));
        let ranges = line.expect("it knows itself").split(' ').skip(8);
        let slots = ranges.filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        slots.flatten().collect()
    }

    /// Returns the slot of this name.
    pub async fn slot_of(&self, name: &str) -> u16 {
        self.nodes[0].told(&format!("CLUSTER KEYSLOT {name}")).await
    }

    /// Returns the slot of each of these names.
    pub async fn slots_of(&self, names: Vec<String>) -> HashMap<String, u16> {
        let mut ask = redis::pipe();
        for name in &names {
            ask.cmd("CLUSTER").arg("KEYSLOT").arg(name);
        }
        let mut connection = self.nodes[0].connect().await.expect("it is up");
        let slots: Vec<u16> = ask.query_async(&mut connection).await.expect("answered");
        names.into_iter().zip(slots).collect()
    }

    /// Returns a name whose slot this primary serves to begin with.
    pub async fn name_on(&self, primary: usize) -> String {
        for number in 0.. {
            let name = format!("name-{number}");
            if self.primary_of(&name).await == primary {
                return name;
            }
        }
        unreachable!("each primary has a third of the slots")
    }

    /// Waits until this replica has become a primary.
    pub async fn promoted(&self, replica: usize) {
        until_so("the replica is promoted", async || {
            let info = self.nodes[replica].ask::<String>("INFO replication").await;
            info.is_ok_and(|info| info.contains("role:master"))
        })
        .await;
    }

    /// Moves these slots, with all their keys, as `redis-cli --cluster reshard` does.
    pub async fn move_slots(&self, slots: &[u16], from: usize, to: usize) {
        for slot in slots {
            self.begin_move(*slot, from, to).await;
            self.move_keys(*slot, from, to).await;
            self.end_move(*slot, from, to).await;
        }
    }

    /// Marks a slot as moving.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let [from_id, to_id] = [
            from.told::<String>("CLUSTER MYID").await,
            to.told("CLUSTER MYID").await,
        ];
        let () = to
            .told(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"))
            .await;
        let () = from
            .told(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"))
            .await;
    }

    /// Moves the keys of a slot that is marked.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let port = to.port();
        loop {
            let keys: Vec<String> = from
                .told(&format!("CLUSTER GETKEYSINSLOT {slot} 100"))
                .await;
            if keys.is_empty() {
                return;
            }
            for key in keys {
                let () = from
                    .told(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"))
                    .await;
            }
        }
    }

    /// Tells both, and then the others, who serves the slot from now on.
    pub async fn end_move(&self, slot: u16, from: usize, to: usize) {
        let id: String = self.nodes[to].told("CLUSTER MYID").await;
        let owner = format!("CLUSTER SETSLOT {slot} NODE {id}");
        let () = self.nodes[to].told(&owner).await;
        if let Err(error) = self.nodes[from].ask::<()>(&owner).await {
            // Without its last slot a node may be a replica of the other one by now.
            let text = error.to_string();
            assert!(text.contains("only with masters"), "{owner:?}: {text}");
        }
    }
}

/// The slots of a primary to begin with.
fn slots_of(primary: usize) -> std::ops::Range<u16> {
    let bounds = [0, 5_461, 10_923, SLOTS];
    bounds[primary]..bounds[primary + 1]
}

#[tokio::test]
async fn a_replica_takes_over_from_a_primary_that_is_gone() {
    let mut cluster = RedisCluster::with_replicas().await;
    cluster.nodes[1].kill();
    cluster.promoted(PRIMARIES + 1).await;
}
