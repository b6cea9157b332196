//! Learns from the nodes of a cluster which slots each of them serves.

use deadpool_redis::redis::Cmd;

use super::super::failure::{Failure, FailureCause};
use super::Fleet;
use super::map::{self, Range};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::{first_of, most_telling};
use crate::store::kit::server_url::HostPort;

/// Number of known nodes to ask.
const NODES: usize = 4;

/// Asks some known nodes, and then the nodes to begin with, and takes the first answer.
pub(super) async fn read(
    fleet: &Fleet,
    seeds: &[HostPort],
    budget: Budget,
) -> Result<Vec<Range>, Failure> {
    let mut nodes = fleet.map.borrow().owners();
    fastrand::shuffle(&mut nodes);
    nodes.truncate(NODES);
    let new = seeds.iter().filter(|seed| !nodes.contains(seed));
    let asked = nodes.iter().chain(new).map(|node| ask(fleet, node, budget));
    // All are asked in the first half of the time: the last one may be the only one that is alive.
    let most = u32::try_from(NODES + seeds.len()).unwrap_or(u32::MAX);
    let head_start = budget.left() / 2 / most;
    first_of(head_start, asked).await.map_err(most_telling)
}

async fn ask(fleet: &Fleet, node: &HostPort, budget: Budget) -> Result<Vec<Range>, Failure> {
    let mut slots = Cmd::new();
    slots.arg("CLUSTER").arg("SLOTS");
    let reply = fleet.server(node)?.ask(slots, None, budget).await?;
    let ranges = map::slots(&reply, node, &fleet.address_map)?;
    match ranges.is_empty() {
        true => Err(FailureCause::Unserved(0).into()),
        false => Ok(ranges),
    }
}
