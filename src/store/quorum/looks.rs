//! Merges what all members show: leases, hazards, and the members themselves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::failure::Failure;
use super::known::KnownQuorum;
use super::members::{Act, MemberPlace, NameRequest, Poll, QuorumMember, SeenLease};
use super::protocol::{Absence, majority};
use super::round::ToldLeases;
use super::store::Quorum;
use crate::clock::wall_clock_us;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::backend::Failing as _;
use crate::store::budget::Budget;
use crate::store::redis::lead;
use crate::store::{
    Failed, Hazard, Held, HeldState, Member, MemberState, Purpose, Severity, Store as _,
};

/// Hazards of a server alone that are none of a member, because a member that may have lost data keeps out.
const OF_A_SERVER_ALONE: [&str; 6] = [
    "redis-writable-replica",
    "redis-forgets",
    "redis-asynchronous-replicas",
    "redis-replica-lag",
    "redis-no-keep-out",
    "redis-slow-failover",
];

/// Says how many names one call reads; reading a whole lease costs a member more than a renewal.
const BATCH: usize = 128;

impl Quorum {
    /// Returns the lease of this name that a majority has, or may have.
    pub(super) async fn seen(
        &self,
        name: &Name,
        budget: Budget,
    ) -> Result<Option<SeenLease>, Failure> {
        let asked = NameRequest::inspecting(name);
        let told = self.of_majority(Act::Inspect, asked, budget).await?;
        self.agreed(&told)
    }

    /// Returns the leases of the names with this prefix that have a key at any member, in order.
    pub(super) async fn leases(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        let prefix: Arc<str> = prefix.into();
        let all = self.members.all();
        let asked = self.members.ask(all, budget.left(), |_, member| {
            let prefix = prefix.clone();
            async move {
                let names = member.server.names(&prefix, budget).await;
                names.map_err(|failure| member.server.failed(failure, "list"))
            }
        });
        let told = self.all_answers(asked).await?.into_iter();
        let names: BTreeSet<Name> = told.flat_map(|(_, names)| names).collect();
        let asked: Vec<_> = names.iter().map(NameRequest::inspecting).collect();
        let mut list = Vec::new();
        for batch in asked.chunks(BATCH) {
            let votes = self.by_majority(Act::Inspect, batch.to_vec(), budget);
            // A key that is another program's is not a lease.
            for told in &votes.await?.each {
                list.extend(self.agreed(told)?.map(|seen| seen.held));
            }
        }
        Ok(list)
    }

    /// Returns the lease that a majority has of a name, or may have.
    ///
    /// # Errors
    /// A majority belongs to no quorum of ours by now.
    fn agreed(&self, told: &ToldLeases) -> Result<Option<SeenLease>, Failure> {
        let is_misfit = |absence: &Absence| !matches!(absence, Absence::Out(_));
        match told.away().filter(is_misfit).nth(told.majority() - 1) {
            Some(absence) => Err(self.misfit(absence)),
            None => Ok(told.agreed().map(|leading| merged(told, leading))),
        }
    }

    /// Returns the state of each member. One that does not answer is down.
    pub(super) async fn see_members(&self, limit: Duration) -> Result<Vec<Member>, Failure> {
        let known = self.known(limit / 2).await;
        let seen = self.members.iter().enumerate();
        let seen = seen.map(async |(index, member)| {
            let mut servers = member.server.members(limit).await?;
            for seen in &mut servers {
                if let (MemberState::Up, Ok(known)) = (seen.state, &known) {
                    seen.state = self.state(index, known, limit).await?;
                }
            }
            Ok::<_, Error>(servers)
        });
        let seen = try_join_all(seen).await?.concat();
        let is_standby = |member: &Member| member.state == MemberState::Standby;
        match known {
            // A replica at a member's address is shown as one, and refuses to be asked.
            Err(failure)
                if failure.kind() == ErrorKind::Misconfigured && !seen.iter().any(is_standby) =>
            {
                Err(failure)
            }
            _ => Ok(seen),
        }
    }

    async fn state(
        &self,
        member: usize,
        known: &Arc<KnownQuorum>,
        limit: Duration,
    ) -> Result<MemberState, Error> {
        let place = match self.members[member].look(limit).await {
            Err(failed) if failed.error.is_transient() => return Ok(MemberState::Down),
            place => place?,
        };
        let Some(absence) = place.absence(known.id(member)) else {
            return Ok(MemberState::Up);
        };
        self.care_for(member, absence, known);
        Ok(match absence {
            Absence::Out(out_us) => MemberState::Away {
                remaining: known.left(out_us),
            },
            _ => MemberState::Standby,
        })
    }

    pub(super) async fn find_hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Failure> {
        let known = self.known(limit / 2).await.ok();
        let all = self.members.all();
        let asked = self.members.ask(all, limit, |_, member| async move {
            let found = member.server.hazards(limit).await;
            let mut found = found.map_err(Failed::perhaps)?;
            found.retain(|hazard| !OF_A_SERVER_ALONE.contains(&hazard.id));
            let place = member.look(limit).await?;
            found.extend(balancer(&member, &place, limit).await?);
            for hazard in &mut found {
                hazard.what = format!("{}: {}", member.server.place, hazard.what).into();
            }
            Ok((found, place))
        });
        let (mut hazards, mut missing) = (Vec::new(), self.members.len());
        for (member, (found, place)) in self.all_answers(asked).await? {
            hazards.extend(found);
            let absence = known.as_ref().map(|known| place.absence(known.id(member)));
            missing -= usize::from(!matches!(absence, Some(Some(_))));
            if let (Some(known), Some(Some(Absence::Other(other)))) = (&known, absence)
                && other.quorum == known.quorum
            {
                hazards.push(displaced(self.members.place(member)));
            }
        }
        hazards.extend((missing > 0).then(|| away(missing, self.members.len())));
        let ours = self.members.places();
        let other = known.filter(|known| known.members != ours);
        hazards.extend(other.map(|known| other_list(&known.members, &ours)));
        hazards.extend(tokens_ahead(self.shared.seen()));
        Ok(hazards)
    }

    /// Returns all answers that come in time, with their members.
    ///
    /// # Errors
    /// Fewer than a majority have answered.
    async fn all_answers<T>(&self, mut asked: Poll<T>) -> Result<Vec<(usize, T)>, Failure> {
        asked.hurry(None);
        let (answers, failures) = asked.gather(|_| false).await;
        match answers.len() >= self.members.majority() {
            true => Ok(answers),
            false => Err(self.too_few(answers.len(), &failures)),
        }
    }
}

/// Returns the hazard of members that do not answer or are out.
fn away(missing: usize, members: usize) -> Hazard {
    let (left, enough) = (members - missing, majority(members));
    let (severity, endangers) = match left.checked_sub(enough) {
        Some(spare) => (
            Severity::Warning,
            format!("once {} more are down or out", spare + 1),
        ),
        None => (
            Severity::Critical,
            format!("until {} more are in", enough - left),
        ),
    };
    Hazard::new(
        "quorum-members-down",
        severity,
        format!("{missing} of {members} members do not answer or are out"),
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
    place: &MemberPlace,
    limit: Duration,
) -> Result<Option<Hazard>, Failed> {
    let beside = member.beside(Purpose::Watchdog);
    let other = beside.look(limit).await?;
    beside.server.close().await;
    Ok((place.incarnation != other.incarnation).then(|| {
        Hazard::new(
            "quorum-balancer",
            Severity::Critical,
            "two connections ended at two different servers",
            "two holders at once, and tokens that fall",
            "Name each server by an address of its own, without a balancer",
        )
    }))
}

/// Returns what several members report of the lease that one of them reports so.
pub(super) fn merged(told: &ToldLeases, one: &SeenLease) -> SeenLease {
    let alike = told.taken().filter(|it| it.lease.is_same(&one.lease));
    let alike: Vec<&Held> = alike.map(|seen| &seen.held).collect();
    // One that took the lease by a renewal alone knows less of its holder.
    let most = alike.iter().max_by_key(|held| !held.info.host.is_empty());
    let mut held = most.map_or(&one.held, |most| *most).clone();
    if alike.iter().any(|held| held.state == HeldState::Evicted) {
        held.state = HeldState::Evicted;
    }
    // From then on fewer than a majority have it.
    let mut left: Vec<Duration> = alike.iter().filter_map(|held| held.remaining).collect();
    left.sort_unstable_by(|one, other| other.cmp(one));
    held.remaining = left.get(told.majority() - 1).or(left.last()).copied();
    let lease = one.lease;
    SeenLease { lease, held }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Instant;
    use crate::holder::{ClientId, Holder};
    use crate::store::quorum::protocol::{MemberAnswer, MemberLease};
    use crate::token::Token;

    fn seen(by: u64, seconds: u64) -> SeenLease {
        let lease = MemberLease {
            holder: Holder::new(ClientId::from_u128(7), by),
            token: Token::new(by).expect("a token"),
            ends_at_us: 9,
            floor: 0,
            state: HeldState::Leased,
        };
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.by = Some(lease.holder);
        held.remaining = Some(Duration::from_secs(seconds));
        SeenLease { lease, held }
    }

    fn agreed(leases: Vec<SeenLease>, silent: usize, members: usize) -> Option<SeenLease> {
        let mut told = ToldLeases::new(members, Instant::FAR_FUTURE);
        let mut leases = leases.into_iter();
        for member in 0..members - silent {
            let answer = leases
                .next()
                .map(|seen| MemberAnswer::Taken(Box::new(seen)));
            told.count(
                member,
                answer.unwrap_or(MemberAnswer::NotHeld),
                Instant::ZERO,
            );
        }
        told.agreed().map(|leading| merged(&told, leading))
    }

    fn left(seen: Option<SeenLease>) -> Option<u64> {
        Some(seen?.held.remaining?.as_secs())
    }

    #[test]
    fn a_lease_is_shown_where_a_majority_has_it() {
        assert_eq!(left(agreed(vec![seen(1, 7), seen(1, 9)], 0, 3)), Some(7));
        assert_eq!(
            left(agreed(vec![seen(1, 7), seen(1, 9), seen(1, 8)], 0, 3)),
            Some(8)
        );
        assert_eq!(agreed(vec![seen(1, 7)], 0, 3), None);
        assert_eq!(agreed(vec![seen(1, 7), seen(2, 9)], 0, 3), None);
        assert_eq!(agreed(Vec::new(), 1, 3), None);
    }

    #[test]
    fn a_lease_is_shown_that_a_majority_may_have() {
        assert_eq!(left(agreed(vec![seen(1, 7)], 1, 3)), Some(7));
        assert_eq!(agreed(vec![seen(1, 7)], 1, 5), None);
    }

    #[test]
    fn an_eviction_at_one_member_is_shown() {
        let mut evicted = seen(1, 7);
        evicted.held.state = HeldState::Evicted;
        let shown = agreed(vec![seen(1, 9), evicted], 0, 3).expect("held");
        assert_eq!(shown.held.state, HeldState::Evicted);
    }
}
