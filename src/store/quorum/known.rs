//! What a client learns of the quorum from its members, and why it cannot use them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::members::{Away, MemberPlace};
use super::micros;
use super::protocol::{Absence, MemberId, keep_out_us, majority};
use super::store::Quorum;
use crate::error::{Error, ErrorKind};
use crate::store::Failed;

/// What a closed quorum tells its clients.
const CLOSED: &str =
    "the quorum was closed by `leasehold init --replace`: use the URL of the one that replaces it";

/// What the members tell of their quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownQuorum {
    quorum: u64,
    of: u8,
    pub(super) max_ttl: Duration,
    /// The places of all members, as `init` was given them.
    pub(super) members: String,
}

impl Quorum {
    /// Returns what the members tell of their quorum: the first request asks them.
    ///
    /// # Errors
    /// `Misconfigured` if they were not set up, or so that this client cannot use them. An outage if too few answer.
    pub(super) async fn known(
        &self,
        operation: &str,
        limit: Duration,
    ) -> Result<KnownQuorum, Failed> {
        if let Some(known) = self.shared.known().clone() {
            return Ok(known);
        }
        let mut asked = self
            .members
            .ask(limit, |_, member| async move { member.look(limit).await });
        let (mut places, mut failures) = (Vec::new(), Vec::new());
        let mut known = None;
        while known.is_none()
            && let Some((member, place)) = asked.next().await
        {
            match place {
                Ok(place) => places.push((member, place)),
                Err(failed) => failures.push((member, failed)),
            }
            known = KnownQuorum::told_by(&places, self.members.len(), majority(self.members.len()));
        }
        asked.go_on(|_, _| ());
        let facts = format!("store={}", self.shared.place);
        let misused = |why: String| {
            let message = format!("{operation} failed: {why} {facts}");
            Failed::never(Error::new(ErrorKind::Misconfigured, message))
        };
        let known = match known.or_else(|| KnownQuorum::told_by(&places, self.members.len(), 1)) {
            Some(known) => known,
            None if places.len() < majority(self.members.len()) => {
                let error = self.error(operation, places.len(), &failures, facts);
                return Err(Failed::never(error));
            }
            None => return Err(misused(self.unknown(&places))),
        };
        if let Some(ours) = self.shared.max_ttl.filter(|ours| *ours != known.max_ttl) {
            let theirs = known.max_ttl;
            return Err(misused(format!(
                "the members were set up with another longest ttl max_ttl={ours:?} theirs={theirs:?}"
            )));
        }
        *self.shared.known() = Some(known.clone());
        for (member, place) in &places {
            if let Some(away) = place.away(known.id(*member)) {
                self.care_for(*member, &away, &known);
            }
        }
        Ok(known)
    }

    /// Returns why these members are no quorum of ours.
    fn unknown(&self, places: &[(usize, MemberPlace)]) -> String {
        let of_others = places.iter().find_map(|(member, place)| {
            let membership = place.node.membership.as_ref()?;
            Some((member, place, membership.closed_for))
        });
        match of_others {
            Some((_, _, Some(_))) => CLOSED.into(),
            Some((member, place, None)) => format!(
                "{} is a member of another quorum: use the URL with which that was set up, or `leasehold init --replace` \
                 members={}",
                self.members.place(*member),
                place.members
            ),
            None => "the quorum was not set up: run `leasehold init --store URL`, with the URL of this store".into(),
        }
    }

    /// Makes the error of a claim that members cannot carry out as long as they are so.
    pub(super) fn misfit(&self, operation: &str, away: &Away, facts: impl fmt::Display) -> Error {
        let (kind, why) = match &away.absence {
            Absence::TooLong(most) => (
                ErrorKind::Invalid,
                format!(
                    "the ttl is longer than the longest of the quorum max_ttl={:?}",
                    Duration::from_micros(*most)
                ),
            ),
            Absence::Other(_) => (
                ErrorKind::Misconfigured,
                format!(
                    "the servers are members of another quorum by now: use its URL members={}",
                    away.members
                ),
            ),
            _ => (ErrorKind::Misconfigured, CLOSED.into()),
        };
        *self.shared.known() = None;
        Error::new(kind, format!("{operation} refused: {why} {facts}"))
    }
}

impl KnownQuorum {
    /// Returns the quorum that most of these servers tell of, and at least so many.
    fn told_by(places: &[(usize, MemberPlace)], members: usize, least: usize) -> Option<Self> {
        let mut told: BTreeMap<u64, (usize, Self)> = BTreeMap::new();
        for (index, place) in places {
            let member = place.node.membership.as_ref();
            let Some(member) = member.filter(|member| member.closed_for.is_none()) else {
                continue;
            };
            if usize::from(member.id.index) == *index && usize::from(member.id.of) == members {
                let known = Self {
                    quorum: member.id.quorum,
                    of: member.id.of,
                    max_ttl: Duration::from_micros(member.max_ttl_us),
                    members: place.members.clone(),
                };
                told.entry(known.quorum).or_insert((0, known)).0 += 1;
            }
        }
        let most = told.into_values().max_by_key(|(votes, _)| *votes);
        most.filter(|(votes, _)| *votes >= least)
            .map(|(_, known)| known)
    }

    /// Returns the identity of the member at this place in the list.
    pub(super) fn id(&self, member: usize) -> MemberId {
        MemberId {
            quorum: self.quorum,
            index: u8::try_from(member).unwrap_or(u8::MAX),
            of: self.of,
        }
    }

    /// Returns for how long a member still keeps out that has been out for `out_us`.
    pub(super) fn left(&self, out_us: u64) -> Duration {
        Duration::from_micros(keep_out_us(micros(self.max_ttl)).saturating_sub(out_us))
    }
}
