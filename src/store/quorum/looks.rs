//! What all members together show: leases, hazards, and the members themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use super::majority;
use super::store::Quorum;
use crate::error::Error;
use crate::name::Name;
use crate::store::{Failed, Hazard, Held, HeldState, Member, Severity};

/// Hazards of a server alone that are none of a member, because a member that comes back without its data keeps out.
const OF_A_SERVER_ALONE: [&str; 3] = [
    "redis-forgets",
    "redis-asynchronous-replicas",
    "redis-slow-failover",
];

impl Quorum {
    pub(super) async fn look_at(
        &self,
        name: &Name,
        limit: Duration,
    ) -> Result<Option<Held>, Error> {
        let asked = self.all_answers("inspect", limit, format!("name={name}"), |member| {
            let name = name.clone();
            async move { member.inspect(&name, limit).await.map_err(Failed::perhaps) }
        });
        let (seen, silent) = asked.await?;
        let seen = seen.into_iter().flatten().collect();
        Ok(agreed(seen, silent, self.members.len()))
    }

    pub(super) async fn list_all(&self, prefix: &str, limit: Duration) -> Result<Vec<Held>, Error> {
        let asked = self.all_answers("list", limit, format!("prefix={prefix:?}"), |member| {
            let prefix = prefix.to_owned();
            async move { member.list(&prefix, limit).await.map_err(Failed::perhaps) }
        });
        let (seen, silent) = asked.await?;
        let mut of_name: BTreeMap<Name, Vec<Held>> = BTreeMap::new();
        for held in seen.into_iter().flatten() {
            of_name.entry(held.name.clone()).or_default().push(held);
        }
        let members = self.members.len();
        let agreed = of_name
            .into_values()
            .filter_map(|seen| agreed(seen, silent, members));
        Ok(agreed.collect())
    }

    /// Returns the state of each member. One that does not answer is down.
    pub(super) async fn see_members(&self, limit: Duration) -> Result<Vec<Member>, Error> {
        let seen = self.members.iter().map(|member| member.look(limit));
        futures_util::future::try_join_all(seen).await
    }

    pub(super) async fn find_hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Error> {
        let asked = self.all_answers("inspect the store", limit, "", |member| async move {
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
        let (found, silent) = asked.await?;
        let mut hazards: Vec<Hazard> = found.into_iter().flatten().collect();
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
                "Start them again, one at a time and a longest ttl apart",
            ));
        }
        Ok(hazards)
    }

    /// Returns all answers that come in time, and how many did not.
    ///
    /// # Errors
    /// Fewer than a majority have answered.
    async fn all_answers<T, F>(
        &self,
        operation: &str,
        limit: Duration,
        facts: impl std::fmt::Display,
        ask: impl Fn(std::sync::Arc<crate::store::redis::RedisMember>) -> F,
    ) -> Result<(Vec<T>, usize), Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let mut asked = self.members.ask(limit, ask);
        asked.hurry();
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        while let Some((member, answer)) = asked.next().await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failed) => failures.push((member, failed)),
            }
        }
        asked.go_on(|_, _| ());
        let silent = self.members.len() - answers.len();
        match answers.len() >= majority(self.members.len()) {
            true => Ok((answers, silent)),
            false => {
                let facts = format!("{facts} store={}", self.shared.place);
                Err(self.error(operation, answers.len(), &failures, facts.trim_start()))
            }
        }
    }
}

/// Returns the lease of a name that a majority has, or may have together with the members that did not answer. What only
/// fewer have is no lease: a claim that is under way, or that its client left behind.
fn agreed(seen: Vec<Held>, silent: usize, members: usize) -> Option<Held> {
    let is_same = |one: &Held, other: &Held| one.by == other.by && one.token == other.token;
    let votes = |held: &Held| seen.iter().filter(|other| is_same(held, other)).count();
    let leading = seen.iter().max_by_key(|held| (votes(held), held.token))?;
    if votes(leading) + silent < majority(members) {
        return None;
    }
    let alike: Vec<&Held> = seen.iter().filter(|held| is_same(leading, held)).collect();
    let mut held = leading.clone();
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
    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::token::Token;

    fn held(by: u64, seconds: u64) -> Held {
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.by = Some(Holder::new(ClientId::from_u128(7), by));
        held.token = Some(Token::new(by).expect("a token"));
        held.remaining = Some(Duration::from_secs(seconds));
        held
    }

    fn left(held: Option<Held>) -> Option<u64> {
        Some(held?.remaining?.as_secs())
    }

    #[test]
    fn a_lease_is_shown_where_a_majority_has_it() {
        assert_eq!(left(agreed(vec![held(1, 7), held(1, 9)], 0, 3)), Some(7));
        assert_eq!(
            left(agreed(vec![held(1, 7), held(1, 9), held(1, 8)], 0, 3)),
            Some(8)
        );
        assert_eq!(agreed(vec![held(1, 7)], 0, 3), None);
        assert_eq!(agreed(vec![held(1, 7), held(2, 9)], 0, 3), None);
        assert_eq!(agreed(Vec::new(), 1, 3), None);
    }

    #[test]
    fn a_lease_is_shown_that_a_majority_may_have() {
        let shown = agreed(vec![held(1, 7)], 1, 3).expect("perhaps");
        assert_eq!(shown.by, held(1, 7).by);
        assert_eq!(left(Some(shown)), Some(7));
        assert_eq!(agreed(vec![held(1, 7)], 1, 5), None);
    }

    #[test]
    fn an_eviction_at_one_member_is_shown() {
        let mut evicted = held(1, 7);
        evicted.state = HeldState::Evicted;
        let shown = agreed(vec![held(1, 9), evicted], 0, 3).expect("held");
        assert_eq!(shown.state, HeldState::Evicted);
    }
}
