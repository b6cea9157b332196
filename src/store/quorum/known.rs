//! The state of the quorum as its members report it, and why a client cannot use them.

use std::sync::Arc;
use std::time::Duration;

use super::failure::Failure;
use super::members::{MemberPlace, QuorumMember, words};
use super::micros;
use super::protocol::{Absence, MemberId, Membership, keep_out_us};
use super::store::Quorum;
use crate::store::budget::millis;
use crate::store::{Failed, Sent};

/// The answer of a closed quorum to its clients.
pub(super) const CLOSED: &str =
    "the quorum was closed by `leasehold init --replace`: use the URL of the one that replaces it";

/// The members' reports about their quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownQuorum {
    pub(super) quorum: u64,
    pub(super) of: u8,
    pub(super) max_ttl: Duration,
    /// The places of all members, as `init` was given them.
    pub(super) members: String,
}

impl Quorum {
    /// Returns what the members tell of their quorum, and asks them if that is not known.
    pub(super) async fn known(&self, limit: Duration) -> Result<Arc<KnownQuorum>, Failure> {
        let known = self.shared.known.lock().clone();
        match known {
            Some(known) => Ok(known),
            None => self.learn(limit).await,
        }
    }

    /// Asks the members what they tell of their quorum.
    ///
    /// # Errors
    /// `Misconfigured` if they were not set up, or so that this client cannot use them. An outage if too few answer.
    pub(super) async fn learn(&self, limit: Duration) -> Result<Arc<KnownQuorum>, Failure> {
        let (members, enough) = (self.members.len(), self.members.majority());
        let is_open = |it: &Membership| it.closed_for.is_none();
        let told_by = |places: &[_]| KnownQuorum::told_by(places, members, is_open);
        let asked = self.members.look(limit);
        let (places, failures) = asked
            .gather(|places| told_by(places).is_some_and(|(_, votes)| votes >= enough))
            .await;
        let known = match told_by(&places) {
            Some((known, _)) => Arc::new(known),
            None if places.len() < enough => {
                let failure = self.too_few(places.len(), &failures);
                return Err(failure.with_sent(Sent::Never));
            }
            None => return Err(Failure::misconfigured(self.unknown(&places))),
        };
        if let Some(ours) = self.shared.max_ttl.filter(|ours| *ours != known.max_ttl) {
            let why = "the members were set up with another longest ttl";
            let why = format!("{why} max_ttl={ours:?} theirs={:?}", known.max_ttl);
            return Err(Failure::misconfigured(why));
        }
        for (member, place) in &places {
            let of_ours = |it: &Membership| it.id.quorum == known.quorum;
            let highest = place.membership.filter(of_ours).map_or(0, |it| it.max);
            self.shared.note_seen(highest);
            if let Some(absence) = place.absence(known.id(*member)) {
                self.care_for(*member, absence, &known);
            }
        }
        *self.shared.known.lock() = Some(known.clone());
        Ok(known)
    }

    /// Returns why these members are no quorum of ours.
    fn unknown(&self, places: &[(usize, MemberPlace)]) -> String {
        let of_others = places.iter().find_map(|(member, place)| {
            let membership = place.membership?;
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
            None => "the quorum was not set up, or all members lost their data: run `leasehold init --store URL`, with the URL \
                     of this store; if it was set up before, wait for the longest ttl first"
                .into(),
        }
    }

    /// Makes the failure of a call that members cannot carry out as long as they are so.
    pub(super) fn misfit(&self, absence: Absence) -> Failure {
        *self.shared.known.lock() = None;
        Failure::misconfigured(match absence {
            Absence::Closed(_) => CLOSED,
            _ => "the servers are members of another quorum by now: use its URL",
        })
    }
}

impl KnownQuorum {
    /// Returns the quorum that most of these servers belong to, each in its place, and how many do.
    pub(super) fn told_by(
        places: &[(usize, MemberPlace)],
        members: usize,
        counts: impl Fn(&Membership) -> bool,
    ) -> Option<(Self, usize)> {
        let told = places.iter().filter_map(|(index, place)| {
            let member = place.membership.filter(|it| counts(it))?;
            let (place_of, of) = (usize::from(member.id.index), usize::from(member.id.of));
            (place_of == *index && of == members).then(|| Self {
                quorum: member.id.quorum,
                of: member.id.of,
                max_ttl: Duration::from_micros(member.max_ttl_us),
                members: place.members.clone(),
            })
        });
        let told: Vec<Self> = told.collect();
        let votes = |of: &Self| told.iter().filter(|it| it.quorum == of.quorum).count();
        let most = told.iter().max_by_key(|known| votes(known))?;
        Some((most.clone(), votes(most)))
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

    /// Makes a server a member that is in: by `adopt`, one whose incarnation is `by` and that was out for the keep-out;
    /// by `open`, a server that the run `by` has reserved. No grant has a token above `highest`.
    pub(super) async fn write(
        &self,
        member: &QuorumMember,
        word: &str,
        by: &str,
        id: MemberId,
        highest: u64,
        limit: Duration,
    ) -> Result<MemberPlace, Failed> {
        let (max_ttl, highest) = (millis(self.max_ttl).to_string(), highest.to_string());
        let rest = [&max_ttl, by, &highest, &self.members].map(str::to_owned);
        let arguments = [&words(id)[..], &rest].concat();
        member.place(word, &arguments, limit).await
    }
}
