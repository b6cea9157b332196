//! Learns from the nodes of a cluster which slots each of them serves.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};

use super::super::failure::Failure;
use super::look::most_telling;
use super::map::{self, Range};
use super::{Fleet, unserved};
use crate::store::budget::Budget;
use crate::store::server_url::HostPort;

/// Says how many of the known nodes are asked.
const NODES: usize = 4;
/// After how long without an answer the nodes to begin with are asked as well.
const SEEDS_AFTER: Duration = Duration::from_millis(100);

/// Asks some known nodes, and the nodes to begin with if those do not answer, and takes the first answer.
pub(super) async fn look(
    fleet: &Fleet,
    seeds: &[HostPort],
    budget: Budget,
) -> Result<Vec<Range>, Failure> {
    let mut nodes = fleet.map.borrow().owners();
    fastrand::shuffle(&mut nodes);
    nodes.truncate(NODES);
    let new = seeds.iter().filter(|seed| !nodes.contains(seed));
    let seeds_after = match nodes.is_empty() {
        true => Duration::ZERO,
        false => SEEDS_AFTER,
    };
    let nodes_now = nodes.iter().map(|node| (node, Duration::ZERO));
    let seeds_later = new.map(|seed| (seed, seeds_after));
    let asked = nodes_now
        .chain(seeds_later)
        .map(|(node, after)| async move {
            sleep(after).await;
            ask(fleet, node, budget).await
        });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut failures = Vec::new();
    let answer = timeout(budget.left(), async {
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(ranges) => return Some(ranges),
                Err(failure) => failures.push(failure),
            }
        }
        None
    });
    if let Ok(Some(ranges)) = answer.await {
        return Ok(ranges);
    }
    Err(most_telling(failures))
}

async fn ask(fleet: &Fleet, node: &HostPort, budget: Budget) -> Result<Vec<Range>, Failure> {
    let reply = fleet
        .server(node)?
        .ask(&["CLUSTER", "SLOTS"], budget)
        .await?;
    let ranges = map::slots(&reply, node, &fleet.address_map)?;
    match ranges.is_empty() {
        true => Err(unserved(0)),
        false => Ok(ranges),
    }
}
