//! Merges what all members show: leases, hazards, and the members themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::known::KnownQuorum;
use super::members::{NameReply, QuorumMember};
use super::protocol::{Absence, MemberLease, majority};
use super::store::Quorum;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::{self, Failed, Hazard, Held, HeldState, MemberState, Severity};

/// Hazards of a server alone that are none of a member, because a member that may have lost data keeps out.
const OF_A_SERVER_ALONE: [&str; 4] = [
    "redis-forgets",
    "redis-asynchronous-replicas",
    "redis-slow-failover",
    "redis-tokens-ahead",
];

/// A lease that one member shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenLease {
    pub(super) lease: MemberLease,
    pub(super) held: Held,
}

impl Quorum {
    pub(super) async fn look_at(
        &self,
        name: &Name,
        limit: Duration,
    ) -> Result<Option<Held>, Error> {
        let known = self.known("inspect", limit).await?;
        let seen = self.seen(&known, name, limit).await?;
        Ok(seen.map(|seen| seen.held))
    }

    /// Returns the lease that a majority has of the name, or may have.
    pub(super) async fn seen(
        &self,
        known: &KnownQuorum,
        name: &Name,
        limit: Duration,
    ) -> Result<Option<SeenLease>, Error> {
        let facts = format!("name={name}");
        let asked = self.all_answers("inspect", limit, facts, |index, member| {
            let (name, id) = (name.clone(), known.id(index));
            async move { Ok(vec![member.inspect_one(id, &name, limit).await?]) }
        });
        let (told, silent) = self.leases("inspect", known, asked.await?)?;
        Ok(agreed(told, silent, self.members.len()))
    }

    pub(super) async fn list_all(&self, prefix: &str, limit: Duration) -> Result<Vec<Held>, Error> {
        let known = self.known("list", limit).await?;
        let facts = format!("prefix={prefix:?}");
        let asked = self.all_answers("list", limit, facts, |index, member| {
            let (prefix, id) = (prefix.to_owned(), known.id(index));
            async move { member.list(id, &prefix, limit).await }
        });
        let (seen, silent) = self.leases("list", &known, asked.await?)?;
        let mut of_name: BTreeMap<Name, Vec<SeenLease>> = BTreeMap::new();
        for seen in seen {
            of_name
                .entry(seen.held.name.clone())
                .or_default()
                .push(seen);
        }
        let members = self.members.len();
        let agreed = of_name
            .into_values()
            .filter_map(|seen| agreed(seen, silent, members));
        Ok(agreed.map(|seen| seen.held).collect())
    }

    /// Returns the leases that were shown, and how many members showed none because they are silent or away.
    ///
    /// # Errors
    /// A majority belongs to another quorum by now, or to one that was closed.
    fn leases(
        &self,
        operation: &str,
        known: &KnownQuorum,
        told: Vec<(usize, Vec<NameReply>)>,
    ) -> Result<(Vec<SeenLease>, usize), Error> {
        let mut silent = self.members.len() - told.len();
        let (mut seen, mut misfits) = (Vec::new(), 0);
        for (member, told) in told {
            if let Some(NameReply::Away(away)) = told.first() {
                self.care_for(member, away, known);
                silent += 1;
                misfits += usize::from(!matches!(away.absence, Absence::Out(_)));
                if misfits >= majority(self.members.len()) {
                    let facts = format_args!("store={}", self.shared.place);
                    return Err(self.misfit(operation, away, facts));
                }
            }
            seen.extend(told.into_iter().filter_map(|told| match told {
                NameReply::Taken(lease, held) => Some(SeenLease { lease, held: *held }),
                _ => None,
            }));
        }
        Ok((seen, silent))
    }

    /// Returns the state of each member. One that does not answer is down.
    pub(super) async fn see_members(&self, limit: Duration) -> Result<Vec<store::Member>, Error> {
        let known = self.known("check the servers", limit / 2).await;
        let seen = self
            .members
            .iter()
            .enumerate()
            .map(async |(index, member)| {
                let mut seen = member.see(limit).await?;
                if let (MemberState::Up, Ok(known)) = (seen.state, &known) {
                    match member.look(limit).await {
                        Ok(place) => seen.state = self.state(index, &place, known),
                        Err(failed) if failed.error.is_transient() => {
                            seen.state = MemberState::Down
                        }
                        Err(failed) => return Err(failed.error),
                    }
                }
                Ok(seen)
            });
        let seen = futures_util::future::try_join_all(seen).await?;
        let is_standby = |member: &store::Member| member.state == MemberState::Standby;
        match known {
            // A replica at a member's address is shown as one, and refuses to be asked.
            Err(failed)
                if failed.error.kind() == ErrorKind::Misconfigured
                    && !seen.iter().any(is_standby) =>
            {
                Err(failed.error)
            }
            _ => Ok(seen),
        }
    }

    fn state(
        &self,
        member: usize,
        place: &super::members::MemberPlace,
        known: &KnownQuorum,
    ) -> MemberState {
        let Some(away) = place.away(known.id(member)) else {
            return MemberState::Up;
        };
        self.care_for(member, &away, known);
        match away.absence {
            Absence::Out(_) => MemberState::Away {
                remaining: known.left(away.out_us),
            },
            _ => MemberState::Standby,
        }
    }

    pub(super) async fn find_hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Error> {
        let asked = self.all_answers("inspect the store", limit, "", |_, member| async move {
            let found = member.hazards(limit).await.map_err(Failed::perhaps)?;
            let of_member = found
                .into_iter()
                .filter(|hazard| !OF_A_SERVER_ALONE.contains(&hazard.id));
            let place = member.place();
            Ok(of_member
                .map(|hazard| Hazard {
                    what: format!("{place}: {}", hazard.what).into(),
                    ..hazard
                })
                .collect::<Vec<_>>())
        });
        let found = asked.await?;
        let silent = self.members.len() - found.len();
        let mut hazards: Vec<Hazard> = found.into_iter().flat_map(|(_, found)| found).collect();
        if silent > 0 {
            let members = self.members.len();
            let spare = (members - silent).saturating_sub(majority(members));
            hazards.push(Hazard::new(
                "quorum-members-down",
                Severity::Warning,
                format!("{silent} of {members} members do not answer"),
                format!(
                    "nothing is granted or renewed once {} more are down",
                    spare + 1
                ),
                "Start them again: one, then the next once `leasehold status --members` shows it up",
            ));
        }
        let known = self.shared.known().clone();
        if let Some(known) = known.filter(|known| known.members != self.members.places()) {
            hazards.push(Hazard::new(
                "quorum-other-list",
                Severity::Warning,
                format!(
                    "the quorum was set up as {}, and this URL names {}",
                    known.members,
                    self.members.places()
                ),
                "a member that lost its data is not taken in by clients with this URL",
                "Use the URL with which the quorum was set up",
            ));
        }
        Ok(hazards)
    }

    /// Returns all answers that come in time, with their members.
    ///
    /// # Errors
    /// Fewer than a majority have answered.
    async fn all_answers<T, F>(
        &self,
        operation: &str,
        limit: Duration,
        facts: impl std::fmt::Display,
        ask: impl Fn(usize, Arc<QuorumMember>) -> F,
    ) -> Result<Vec<(usize, T)>, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let mut asked = self.members.ask(limit, ask);
        asked.hurry();
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        while let Some((member, answer)) = asked.next().await {
            match answer {
                Ok(answer) => answers.push((member, answer)),
                Err(failed) => failures.push((member, failed)),
            }
        }
        asked.go_on(|_, _| ());
        match answers.len() >= majority(self.members.len()) {
            true => Ok(answers),
            false => {
                let facts = format!("{facts} store={}", self.shared.place);
                Err(self.error(operation, answers.len(), &failures, facts.trim_start()))
            }
        }
    }
}

/// Returns the lease of a name that a majority has, or may have together with the members that did not answer. What
/// only fewer have is no lease: a claim that is under way, or that its client left behind.
fn agreed(seen: Vec<SeenLease>, silent: usize, members: usize) -> Option<SeenLease> {
    let is_same = |one: &SeenLease, other: &SeenLease| {
        (one.lease.holder, one.lease.token) == (other.lease.holder, other.lease.token)
    };
    let votes = |one: &SeenLease| seen.iter().filter(|other| is_same(one, other)).count();
    let leading = seen
        .iter()
        .max_by_key(|seen| (votes(seen), seen.lease.token))?;
    if votes(leading) + silent < majority(members) {
        return None;
    }
    let alike = seen.iter().filter(|seen| is_same(leading, seen));
    let held = merged(alike.map(|seen| seen.held.clone()).collect(), members)?;
    Some(SeenLease {
        lease: leading.lease,
        held,
    })
}

/// Returns what several members report of one lease.
pub(super) fn merged(alike: Vec<Held>, members: usize) -> Option<Held> {
    // One that took the lease by a renewal alone knows less of its holder.
    let most = alike.iter().max_by_key(|held| !held.info.host.is_empty())?;
    let mut held = most.clone();
    held.since = alike.iter().filter_map(|held| held.since).min();
    if alike.iter().any(|held| held.state == HeldState::Evicted) {
        held.state = HeldState::Evicted;
    }
    // From then on fewer than a majority have it.
    let mut left: Vec<Duration> = alike.iter().filter_map(|held| held.remaining).collect();
    left.sort_unstable_by(|one, other| other.cmp(one));
    held.remaining = left.get(majority(members) - 1).or(left.last()).copied();
    Some(held)
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Standing;
    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::token::Token;

    fn seen(by: u64, seconds: u64) -> SeenLease {
        let lease = MemberLease {
            holder: Holder::new(ClientId::from_u128(7), by),
            token: Token::new(by).expect("a token"),
            ends_at_us: 9,
            floor: 0,
            standing: Standing::Held,
        };
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.by = Some(lease.holder);
        held.remaining = Some(Duration::from_secs(seconds));
        SeenLease { lease, held }
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
