//! Merges the members' views of leases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Quorum;
use super::connection::{Act, NameRequest, Poll, SeenLease};
use super::failure::Failure;
use super::protocol::Absence;
use super::round::ToldLeases;
use crate::name::Name;
use crate::store::kit::budget::Budget;
use crate::store::{Held, HeldState};

/// Number of names that one call reads; reading a whole lease costs a member more than a renewal.
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
    /// A majority no longer belongs to this quorum.
    fn agreed(&self, told: &ToldLeases) -> Result<Option<SeenLease>, Failure> {
        let is_misfit = |absence: &Absence| !matches!(absence, Absence::Away(_));
        match told.absent().filter(is_misfit).nth(told.majority() - 1) {
            Some(absence) => Err(self.misfit(absence)),
            None => Ok(told.agreed().map(|leading| merged(told, leading))),
        }
    }

    /// Returns all answers that come in time, with their members.
    ///
    /// # Errors
    /// Fewer than a majority have answered.
    pub(super) async fn all_answers<T>(
        &self,
        mut asked: Poll<T>,
    ) -> Result<Vec<(usize, T)>, Failure> {
        asked.hurry(None);
        let (answers, failures) = asked.gather(|_| false).await;
        match answers.len() >= self.members.majority() {
            true => Ok(answers),
            false => Err(Failure::too_few(&self.members, answers.len(), &failures)),
        }
    }
}

/// Merges the reports of several members about one lease.
pub(super) fn merged(told: &ToldLeases, one: &SeenLease) -> SeenLease {
    let alike = told.taken().filter(|it| it.lease.is_same(&one.lease));
    let alike: Vec<&Held> = alike.map(|seen| &seen.held).collect();
    // A member that got the lease by a renewal knows less about its holder.
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
