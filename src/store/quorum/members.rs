//! Whether each member takes part in grants.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::Quorum;
use super::failure::Failure;
use super::known::KnownQuorum;
use super::protocol::Absence;
use crate::error::{Error, ErrorKind};
use crate::store::kit::backend::Failing as _;
use crate::store::{Member, MemberState, Store as _};

/// Returns the state of each member. One that does not answer is down.
pub(super) async fn ask_each(quorum: &Quorum, limit: Duration) -> Result<Vec<Member>, Failure> {
    let known = quorum.known(limit / 2).await;
    let seen = quorum.members.iter().enumerate();
    let seen = seen.map(async |(index, member)| {
        let mut servers = member.server.members(limit).await?;
        for seen in &mut servers {
            if let (MemberState::Up, Ok(known)) = (seen.state, &known) {
                seen.state = state(quorum, index, known, limit).await?;
            }
        }
        Ok::<_, Error>(servers)
    });
    let seen = try_join_all(seen).await?.concat();
    let is_standby = |member: &Member| member.state == MemberState::Standby;
    match known {
        // A replica at a member's address is shown as such; it refuses the request.
        Err(failure)
            if failure.kind() == ErrorKind::Misconfigured && !seen.iter().any(is_standby) =>
        {
            Err(failure)
        }
        _ => Ok(seen),
    }
}

async fn state(
    quorum: &Quorum,
    member: usize,
    known: &Arc<KnownQuorum>,
    limit: Duration,
) -> Result<MemberState, Error> {
    let node = match quorum.members[member].read_node(limit).await {
        Err(failed) if failed.error.is_transient() => return Ok(MemberState::Down),
        node => node?,
    };
    let Some(absence) = node.absence(known.id(member)) else {
        return Ok(MemberState::Up);
    };
    quorum.care_for(member, absence, known);
    Ok(match absence {
        Absence::Away(away_us) => MemberState::Away {
            remaining: known.left(away_us),
        },
        _ => MemberState::Standby,
    })
}
