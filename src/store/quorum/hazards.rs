//! Faults of the set-up: those of each member, and those of the quorum as a whole.

use std::time::Duration;

use super::Quorum;
use super::connection::{MemberNode, QuorumMember};
use super::failure::Failure;
use super::protocol::{Absence, majority};
use crate::clock::wall_clock_us;
use crate::store::redis::lead;
use crate::store::{Failed, Hazard, Purpose, Severity, Store as _};

/// Hazards of a server alone that are none of a member, because a member that may have lost data keeps out.
const OF_A_SERVER_ALONE: [&str; 6] = [
    "redis-writable-replica",
    "redis-forgets",
    "redis-asynchronous-replicas",
    "redis-replica-lag",
    "redis-no-keep-out",
    "redis-slow-failover",
];

/// Returns the faults of the members and of the quorum as a whole.
pub(super) async fn find(quorum: &Quorum, limit: Duration) -> Result<Vec<Hazard>, Failure> {
    let known = quorum.known(limit / 2).await.ok();
    let all = quorum.members.all();
    let asked = quorum.members.ask(all, limit, |_, member| async move {
        let found = member.server.hazards(limit).await;
        let mut found = found.map_err(Failed::perhaps)?;
        found.retain(|hazard| !OF_A_SERVER_ALONE.contains(&hazard.id));
        let node = member.read_node(limit).await?;
        found.extend(balancer(&member, &node, limit).await?);
        for hazard in &mut found {
            hazard.what = format!("{}: {}", member.server.location, hazard.what).into();
        }
        Ok((found, node))
    });
    let (mut hazards, mut missing) = (Vec::new(), quorum.members.len());
    for (member, (found, node)) in quorum.all_answers(asked).await? {
        hazards.extend(found);
        let absence = known.as_ref().map(|known| node.absence(known.id(member)));
        missing -= usize::from(!matches!(absence, Some(Some(_))));
        if let (Some(known), Some(Some(Absence::Other(other)))) = (&known, absence)
            && other.quorum == known.quorum
        {
            hazards.push(displaced(quorum.members.location(member)));
        }
    }
    hazards.extend((missing > 0).then(|| away(missing, quorum.members.len())));
    let ours = quorum.members.locations();
    let other = known.filter(|known| known.members != ours);
    hazards.extend(other.map(|known| other_list(&known.members, &ours)));
    hazards.extend(tokens_ahead(quorum.shared.seen()));
    Ok(hazards)
}

/// Returns the hazard of members that do not answer or are away.
fn away(missing: usize, members: usize) -> Hazard {
    let (left, enough) = (members - missing, majority(members));
    let (severity, endangers) = match left.checked_sub(enough) {
        Some(spare) => (
            Severity::Warning,
            format!("once {} more are down or away", spare + 1),
        ),
        None => (
            Severity::Critical,
            format!("until {} more are in", enough - left),
        ),
    };
    Hazard::new(
        "quorum-members-down",
        severity,
        format!("{missing} of {members} members do not answer or are away"),
        format!("nothing is granted or renewed {endangers}"),
        "Start those that are down: one, then the next once `leasehold status --members` shows it up",
    )
}

fn other_list(theirs: &str, ours: &str) -> Hazard {
    Hazard::new(
        "quorum-other-list",
        Severity::Warning,
        format!("the quorum was set up as {theirs}, and this URL names {ours}"),
        "a member that lost its data is not taken in by clients with this URL",
        "Use the URL with which the quorum was set up",
    )
}

/// Returns the hazard of a member that has the data of another one of the same quorum.
fn displaced(member: &str) -> Hazard {
    Hazard::new(
        "quorum-displaced",
        Severity::Critical,
        format!("{member} has the data of another member of this quorum, as after REPLICAOF"),
        "it takes no part until it has been so for the longest ttl, and comes in then",
        "If it does not come in, remove the keys of leases from it (they begin with the prefix)",
    )
}

/// Returns the hazard of tokens that only the members' data keeps from falling.
fn tokens_ahead(highest: u64) -> Option<Hazard> {
    let ahead = lead(highest, wall_clock_us())?;
    Some(Hazard::new(
        "quorum-tokens-ahead",
        Severity::Warning,
        format!("the highest token is {ahead:.0?} ahead of this machine's clock"),
        "if most members lose their data, later tokens are lower, and fenced storage refuses their holders until the \
         clock has come as far",
        "Keep the data of most members until then",
    ))
}

/// Returns the hazard of a member whose connections end at different servers.
async fn balancer(
    member: &QuorumMember,
    node: &MemberNode,
    limit: Duration,
) -> Result<Option<Hazard>, Failed> {
    let beside = member.beside(Purpose::Watchdog);
    let other = beside.read_node(limit).await?;
    beside.server.close().await;
    Ok((node.incarnation != other.incarnation).then(|| {
        Hazard::new(
            "quorum-balancer",
            Severity::Critical,
            "two connections ended at two different servers",
            "two holders at once, and tokens that fall",
            "Name each server by an address of its own, without a balancer",
        )
    }))
}
