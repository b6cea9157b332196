//! Finds what is wrong with a cluster: how long a failover takes, and what stands still while a primary is down or
//! slots move.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::super::connection::server::Server;
use super::super::failure::Failure;
use super::super::fleet::Fleet;
use super::super::protocol::reply;
use super::{OUTLIVED, SLOW_FAILOVER, allowed, settings, slow_failover};
use crate::store::Hazard;
use crate::store::Severity::{Unknown, Warning};
use crate::store::budget::Budget;
use crate::store::check::{Check, found, judge};
use crate::store::server_url::HostPort;

/// Says how many slots are named at most.
const NAMED: usize = 8;

/// The nodes' facts about their cluster.
#[derive(Debug, Default)]
struct ClusterFacts {
    /// The longest time after which a primary suspects a silent node.
    node_timeout: Option<Duration>,
    /// Some primary serves nothing while slots are unserved.
    needs_all_slots: bool,
    moving: BTreeSet<u16>,
    without_replica: BTreeSet<String>,
    is_refusing: bool,
}

/// Asks the primaries about their cluster. Returns the hazards, and the replicas.
pub(super) async fn look(
    fleet: &Arc<Fleet>,
    primaries: &[Arc<Server>],
    budget: Budget,
) -> Result<(Vec<Hazard>, Vec<HostPort>), Failure> {
    let told = primaries.iter().map(|primary| look_at(primary, budget));
    let (told, ranges) = tokio::try_join!(try_join_all(told), fleet.topology(budget))?;
    let mut facts = ClusterFacts::default();
    for node in told {
        facts.node_timeout = facts.node_timeout.max(node.node_timeout);
        facts.needs_all_slots |= node.needs_all_slots;
        facts.is_refusing |= node.is_refusing;
        facts.moving.extend(node.moving);
    }
    let mut replicas = Vec::new();
    for range in ranges {
        match range.owner {
            Some(owner) if range.replicas.is_empty() => {
                facts.without_replica.insert(owner.to_string());
            }
            _ => replicas.extend(range.replicas),
        }
    }
    Ok((judge(CHECKS, &facts), replicas))
}

async fn look_at(primary: &Server, budget: Budget) -> Result<ClusterFacts, Failure> {
    let settings = settings(primary, budget).await?.unwrap_or_default();
    let timeout = settings.get("cluster-node-timeout");
    let timeout = timeout.and_then(|ms| ms.parse().ok());
    let nodes = allowed(primary.ask(&["CLUSTER", "NODES"], budget).await)?;
    let coverage = settings.get("cluster-require-full-coverage");
    Ok(ClusterFacts {
        node_timeout: timeout.map(Duration::from_millis),
        needs_all_slots: coverage.is_some_and(|coverage| coverage == "yes"),
        is_refusing: nodes.is_none(),
        moving: moving(nodes.as_ref().map_or(Ok(""), reply::text)?),
        ..ClusterFacts::default()
    })
}

/// Returns the slots that a node sends or receives, from its reply to `CLUSTER NODES`: `[93-<-ID]` or `[93->-ID]` in
/// its own line.
fn moving(nodes: &str) -> BTreeSet<u16> {
    let own = nodes.lines().filter(|line| line.contains("myself"));
    let marks = own.flat_map(str::split_ascii_whitespace);
    let slots = marks.filter_map(|mark| mark.strip_prefix('[')?.split('-').next()?.parse().ok());
    slots.collect()
}

/// The faults in the set-up of a cluster that weaken the promises.
const CHECKS: &[Check<ClusterFacts>] = &[
    Check::new(
        Warning,
        SLOW_FAILOVER,
        |facts| {
            Some(slow_failover(
                facts.node_timeout? * 3 / 2,
                "this cluster-node-timeout",
            ))
        },
        OUTLIVED,
        "Lower cluster-node-timeout, or lease for longer",
    ),
    Check::new(
        Warning,
        "redis-no-replica",
        |facts| {
            let alone: Vec<_> = facts.without_replica.iter().map(String::as_str).collect();
            let what = format!("primaries without a replica: {}", alone.join(", "));
            found(!alone.is_empty(), what)
        },
        "while one of them is down, its names cannot be leased and its leases end",
        "Give each a replica",
    ),
    Check::new(
        Warning,
        "redis-full-coverage",
        |facts| {
            found(
                facts.needs_all_slots,
                "cluster-require-full-coverage is yes",
            )
        },
        "while the slots of one primary are unserved, no name at all can be leased or renewed",
        "Set it to no",
    ),
    Check::new(
        Warning,
        "redis-slots-moving",
        |facts| {
            let slots = facts.moving.iter().take(NAMED).map(u16::to_string);
            let slots = slots.collect::<Vec<_>>().join(", ");
            let more = match facts.moving.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let what = format!("slots in the middle of a move: {slots}{more}");
            found(!facts.moving.is_empty(), what)
        },
        "their names can be renewed, but not leased or released, until the move is over",
        "If nothing moves them any more, run redis-cli --cluster fix",
    ),
    Check::new(
        Unknown,
        "redis-cluster-refused",
        |facts| found(facts.is_refusing, "CLUSTER NODES is refused"),
        "slots that were left in the middle of a move are not seen",
        "Grant `+cluster|nodes`, or check by hand",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(facts: &ClusterFacts) -> String {
        let hazards = judge(CHECKS, facts).into_iter();
        hazards.map(|hazard| hazard.to_string()).collect()
    }

    #[test]
    fn a_sound_cluster_has_none() {
        assert_eq!(told(&ClusterFacts::default()), "");
    }

    #[test]
    fn a_timeout_is_told_with_the_ttl_that_outlives_it() {
        for (seconds, least) in [(5, 15), (15, 37)] {
            let facts = ClusterFacts {
                node_timeout: Some(Duration::from_secs(seconds)),
                ..ClusterFacts::default()
            };
            let told = told(&facts);
            assert!(told.contains(&format!("ttl below {least} s")), "{told}");
            let [slow] = &judge(CHECKS, &facts)[..] else {
                panic!("{told}");
            };
            assert!(slow.concerns(Duration::from_secs(least - 1)));
            assert!(!slow.concerns(Duration::from_secs(least)));
        }
    }

    #[test]
    fn each_hazard_is_reported() {
        let facts = ClusterFacts {
            node_timeout: None,
            needs_all_slots: true,
            moving: (0..10).collect(),
            without_replica: ["a:1".to_owned()].into(),
            is_refusing: true,
        };
        let told = told(&facts);
        for word in ["coverage", "5, 6, 7 and 2 more", "a:1", "cluster|nodes"] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }

    #[test]
    fn slots_that_move_are_read_from_the_nodes_own_line() {
        let nodes = "ab 127.0.0.1:1@10001 myself,master - 0 0 1 connected 0-5460 [93-<-cd] [77->-cd]\n\
                     cd 127.0.0.1:2@10002 master - 0 0 2 connected 5461-10922 [5->-ab]\n";
        assert_eq!(moving(nodes), [77, 93].into());
        assert!(moving("ab 127.0.0.1:1@10001 myself,master - 0 0 1 connected 0-5460").is_empty());
    }
}
