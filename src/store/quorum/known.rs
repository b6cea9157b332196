//! The state of the quorum as its members report it, why a client cannot use them, and how it takes in one that is
//! away.

use std::sync::Arc;
use std::time::Duration;

use super::Quorum;
use super::connection::{MemberNode, PAUSE, words};
use super::failure::Failure;
use super::protocol::{Absence, MemberId, Membership, adoption, keep_out_us};
use crate::clock::{Boottime, Clock as _};
use crate::store::kit::budget::millis;
use crate::store::{Failed, Sent};

/// The longest random delay before an adoption, so that of many clients one comes first.
const SPREAD: Duration = Duration::from_millis(100);

/// The answer of a closed quorum to its clients.
pub(super) const CLOSED: &str =
    "the quorum was closed by `leasehold init --replace`: use the URL of the one that replaces it";

/// The quorum, as its members report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownQuorum {
    pub(super) quorum: u64,
    pub(super) of: u8,
    pub(super) max_ttl: Duration,
    /// The locations of all members, as `init` was given them.
    pub(super) members: String,
}

impl Quorum {
    /// Returns the members' report of their quorum; asks them if it is not known.
    pub(super) async fn known(&self, limit: Duration) -> Result<Arc<KnownQuorum>, Failure> {
        let known = self.shared.known.lock().clone();
        match known {
            Some(known) => Ok(known),
            None => self.learn(limit).await,
        }
    }

    /// Asks the members for their report of the quorum.
    ///
    /// # Errors
    /// `Misconfigured` if they were not set up, or not for this client. An outage if too few answer.
    pub(super) async fn learn(&self, limit: Duration) -> Result<Arc<KnownQuorum>, Failure> {
        let (members, enough) = (self.members.len(), self.members.majority());
        let is_open = |it: &Membership| it.closed_for.is_none();
        let told_by = |nodes: &[_]| KnownQuorum::told_by(nodes, members, is_open);
        let asked = self.members.read_node(limit);
        let (nodes, failures) = asked
            .gather(|nodes| told_by(nodes).is_some_and(|(_, votes)| votes >= enough))
            .await;
        let known = match told_by(&nodes) {
            Some((known, _)) => Arc::new(known),
            None if nodes.len() < enough => {
                let failure = Failure::too_few(&self.members, nodes.len(), &failures);
                return Err(failure.with_sent(Sent::Never));
            }
            None => return Err(Failure::misconfigured(self.unknown(&nodes))),
        };
        if let Some(ours) = self.members.max_ttl().filter(|ours| *ours != known.max_ttl) {
            let why = "the members were set up with another longest ttl";
            let why = format!("{why} max_ttl={ours:?} theirs={:?}", known.max_ttl);
            return Err(Failure::misconfigured(why));
        }
        for (member, node) in &nodes {
            // Also of one that is away, or not at its index.
            let of_ours = |it: &Membership| it.id.quorum == known.quorum;
            let highest = node.membership.filter(of_ours).map_or(0, |it| it.max);
            self.shared.note_seen(highest);
            if let Some(absence) = node.absence(known.id(*member)) {
                self.care_for(*member, absence, &known);
            }
        }
        self.shared
            .read_clocks(nodes.iter().map(|(_, node)| node.clock_us));
        *self.shared.known.lock() = Some(known.clone());
        Ok(known)
    }

    /// Spawns a task that adopts a member that is away at the end of its keep-out.
    pub(super) fn care_for(&self, member: usize, absence: Absence, known: &Arc<KnownQuorum>) {
        let away_us = match absence {
            Absence::Away(away_us) => away_us,
            // Perhaps it has the data of another member, which is checked at once.
            Absence::Other(other) if other.quorum == known.quorum => u64::MAX,
            _ => return,
        };
        let adopting = self.members[member].adopting.clone();
        let Ok(permit) = adopting.try_acquire_owned() else {
            return;
        };
        let (quorum, known) = (self.clone(), known.clone());
        tokio::spawn(async move {
            let _permit = permit;
            nap(known.left(away_us) + SPREAD.mul_f64(fastrand::f64())).await;
            let adopted = quorum.adopt(member, &known).await;
            let member = quorum.members.location(member);
            match adopted {
                Ok(true) => return tracing::info!(member, "a member of the quorum is in again"),
                Ok(false) => {}
                Err(Failed { error, .. }) => tracing::debug!(member, %error, "a member stays away"),
            }
            // The others may answer in a moment.
            nap(PAUSE).await;
        });
    }

    /// Returns whether the member is in now.
    pub(super) async fn adopt(&self, member: usize, known: &KnownQuorum) -> Result<bool, Failed> {
        let (limit, id) = (self.members.connect_timeout(), known.id(member));
        let found = self.members[member].read_node(limit).await?;
        let Some(absence) = found.absence(id) else {
            return Ok(true);
        };
        let is_away = match absence {
            Absence::Away(_) => true,
            Absence::Other(other) => self.is_displaced(&found, other, known).await,
            _ => false,
        };
        let is_over = is_away && known.left(found.away_us).is_zero();
        // The server may differ from the one that `init` was given, if this client's list differs from the others'.
        let is_known = found.membership.is_some_and(|found| found.id == id)
            || known.members == self.members.locations();
        if !is_over || !is_known {
            return Ok(false);
        }
        // The highest token that any grant can have, now that the member was found to have kept out.
        let answer = |(of, node): &(usize, MemberNode)| match node.highest(known.id(*of)) {
            // It has the data of another one, and none of its own.
            Err(Absence::Other(_)) if *of == member => Err(Absence::Away(found.away_us)),
            highest => highest,
        };
        let knows = |told: &[_]| told.iter().flat_map(answer).count();
        let enough = self.members.majority();
        let asked = self.members.read_node(limit);
        let (told, _) = asked.gather(|told| knows(told) >= enough).await;
        let told: Vec<_> = told.iter().map(answer).collect();
        let Some(highest) = adoption(&told, self.members.len(), self.shared.clock_us()) else {
            return Ok(false);
        };
        let write = ["adopt", &found.incarnation];
        self.write(known, member, write, highest, limit).await
    }

    /// Returns whether a server that seems to be this member only has its data, as a former replica: another server
    /// answers at the member's address. Then it has lost its own data.
    async fn is_displaced(&self, found: &MemberNode, other: MemberId, known: &KnownQuorum) -> bool {
        let index = usize::from(other.index);
        let is_in = found
            .membership
            .is_none_or(|it| it.is_in || it.closed_for.is_some());
        if is_in || index >= self.members.len() || known.id(index) != other {
            return false;
        }
        let there = self.members[index]
            .read_node(self.members.connect_timeout())
            .await;
        there.is_ok_and(|there| {
            there.membership.is_some_and(|it| it.id == other) && there.run() != found.run()
        })
    }

    /// Makes a server a member that is in: with `adopt`, one whose incarnation is `by` and that was away for the
    /// keep-out; with `open`, a server that the run `by` has reserved. No grant has a token above `highest`. Returns
    /// whether it is in afterwards.
    pub(super) async fn write(
        &self,
        known: &KnownQuorum,
        member: usize,
        [word, by]: [&str; 2],
        highest: u64,
        limit: Duration,
    ) -> Result<bool, Failed> {
        let id = known.id(member);
        let (max_ttl, highest) = (millis(known.max_ttl).to_string(), highest.to_string());
        let arguments = [&words(id), by, &max_ttl, &highest, &known.members];
        let node = self.members[member].node(word, &arguments, limit).await?;
        Ok(node.absence(id).is_none())
    }

    /// Returns why these members are not the quorum of this client.
    fn unknown(&self, nodes: &[(usize, MemberNode)]) -> String {
        let mut members = nodes.iter();
        let member = members.find_map(|(index, node)| Some((index, node, node.membership?)));
        match member {
            Some((.., it)) if it.closed_for.is_some() => CLOSED.into(),
            Some((member, node, _)) => format!(
                "{} is a member of another quorum: use the URL with which that was set up, or `leasehold init --replace` \
                 members={}",
                self.members.location(*member),
                node.members
            ),
            None => "the quorum was not set up, or all members lost their data: run `leasehold init --store URL`, with the URL \
                     of this store; if it was set up before, wait for the longest ttl first"
                .into(),
        }
    }

    /// Makes the failure of a call that members cannot carry out in this state.
    pub(super) fn misfit(&self, absence: Absence) -> Failure {
        *self.shared.known.lock() = None;
        Failure::misconfigured(match absence {
            Absence::Closed(_) => CLOSED,
            _ => "the servers are members of another quorum by now: use its URL",
        })
    }
}

impl KnownQuorum {
    /// Returns the quorum that most of these servers belong to, each at its index, and how many do.
    pub(super) fn told_by(
        nodes: &[(usize, MemberNode)],
        members: usize,
        counts: impl Fn(&Membership) -> bool,
    ) -> Option<(Self, usize)> {
        let told = nodes.iter().filter_map(|(index, node)| {
            let member = node.membership.filter(|it| counts(it))?;
            let told = Self {
                quorum: member.id.quorum,
                of: u8::try_from(members).ok()?,
                max_ttl: Duration::from_micros(member.max_ttl_us),
                members: node.members.clone(),
            };
            (told.id(*index) == member.id).then_some(told)
        });
        let told: Vec<Self> = told.collect();
        let votes = |of: &Self| told.iter().filter(|it| it.quorum == of.quorum).count();
        let most = told.iter().max_by_key(|known| votes(known))?;
        Some((most.clone(), votes(most)))
    }

    /// Returns the identity of the member at this index in the list.
    pub(super) fn id(&self, member: usize) -> MemberId {
        MemberId {
            quorum: self.quorum,
            index: u8::try_from(member).unwrap_or(u8::MAX),
            of: self.of,
        }
    }

    /// Returns how long a member still keeps out that has been away for `away_us`.
    pub(super) fn left(&self, away_us: u64) -> Duration {
        let keep_out_us = keep_out_us(millis(self.max_ttl).saturating_mul(1_000));
        Duration::from_micros(keep_out_us.saturating_sub(away_us))
    }
}

pub(super) async fn nap(time: Duration) {
    Boottime.nap_until(Boottime.now().after(time)).await;
}
