//! Set-up, and change of members: what `leasehold init` does with a quorum.

use std::time::Duration;

use futures_util::future::join_all;

use super::MAX_TTL;
use super::Quorum;
use super::connection::{Failures, MemberNode, words};
use super::failure::Failure;
use super::known::{CLOSED, KnownQuorum, nap};
use super::protocol::{Membership, closing, majority};
use crate::clock::wall_clock_us;
use crate::error::Error;
use crate::store::kit::backend::{Backend as _, Failing as _};
use crate::store::kit::budget::Budget;
use crate::store::{Failed, TableSettings};

impl Quorum {
    /// Makes these servers the members of a new quorum, with the longest ttl of this store, by default 60 s. The first
    /// grant takes no wait. All of them have to answer, be masters, be different servers, and have no key with this
    /// prefix.
    ///
    /// Run again, it succeeds if they are members already. Servers that an earlier run left blank come in on their own,
    /// one longest ttl after a client first meets them.
    ///
    /// If they were members before and all have lost their data, wait for the longest ttl first: leases that they
    /// forgot may still be held. A server that a client has asked for the lost quorum is refused until then.
    ///
    /// # Errors
    /// `Misconfigured` with the member and what to do about it: nothing was granted in between. Otherwise the errors of
    /// a request; after one of these run it again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown: run it again.
    pub async fn init(&self, limit: Duration) -> Result<(), Error> {
        let Some((run, nodes)) = self.reserve(None, limit).await? else {
            return Ok(());
        };
        let highest = nodes.iter().map(|node| node.clock_us).max().unwrap_or(0);
        self.open_all(fastrand::u64(1..), run, highest, limit).await
    }

    /// Makes these servers the members of the quorum instead of those of `old`, which has to name all of them, in their
    /// order. Some servers may be members of both. It closes the old members first, and writes the new ones after the
    /// longest ttl; until then nothing is granted. All leases end. If it fails or is stopped, run it again: until then
    /// nothing is granted either.
    ///
    /// Shut down the members that are left out, and those that did not answer.
    ///
    /// With `from_clock` it goes on without a majority of the old members. Then no token falls as long as the clock of
    /// this machine is ahead of each granted token, and no two holders meet as long as the old members that did not
    /// answer stay down, and no other change of members is under way.
    ///
    /// # Errors
    /// As for [`init`](Self::init), and `Unavailable` if too few of the old members answer.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown: run it again.
    pub async fn replace(
        &self,
        old: &Self,
        from_clock: bool,
        limit: Duration,
    ) -> Result<(), Error> {
        if old.members.locations() == self.members.locations() {
            return Err(self.refused("the new members are the old ones"));
        }
        let Some(before) = old.to_replace(self, from_clock, limit).await? else {
            return self.init(limit).await;
        };
        let id = self.successor(before.quorum);
        let reserved = self.reserve(Some(before.quorum), limit).await?;
        let (closed, failures) = old.close_all(&before, id, limit).await;
        let Some((run, _)) = reserved else {
            return Ok(());
        };
        let told = closed.iter();
        let highest = match closing(&closed, old.members.len(), id) {
            Some(highest) => highest,
            None if from_clock => told.map(|it| it.max).fold(wall_clock_us(), u64::max),
            None => {
                let mut others = told.filter_map(|it| it.closed_for);
                let for_other = others.find(|other| *other != id);
                return Err(self.not_closed(old, for_other, &failures));
            }
        };
        nap(before.left(0).max(self.made(id).left(0))).await;
        self.open_all(id, run, highest, limit).await
    }

    fn not_closed(&self, old: &Self, for_other: Option<u64>, failures: &Failures) -> Error {
        if let Some(other) = for_other {
            return self.refused(&format!(
                "the old members are closed for other new ones: finish that change first, by the command that began it \
                 quorum={other}"
            ));
        }
        let failure = Failure::too_few(&old.members, old.members.len() - failures.len(), failures);
        let why = "too few of the old members are in and answer: start them, or use --from-clock";
        failure.during("init", format_args!("{why} store={}", old.own_location()))
    }

    /// Closes these members, as far as they answer, for the quorum `new`, which replaces them. Returns the state of
    /// those that belong to the two quorums: an address may lead to a member of an unrelated one.
    async fn close_all(
        &self,
        old: &KnownQuorum,
        new: u64,
        limit: Duration,
    ) -> (Vec<Membership>, Failures) {
        let asked = self.members.iter().enumerate();
        let asked = asked.map(async |(index, member)| {
            let arguments = [&*words(old.id(index)), &new.to_string()];
            member.node("close", &arguments, limit).await
        });
        let (mut closed, mut failures) = (Vec::<Membership>::new(), Failures::new());
        for (index, answer) in join_all(asked).await.into_iter().enumerate() {
            match answer {
                Ok(node) => closed.extend(node.membership.filter(|it| {
                    let is_of_these = it.id == old.id(index) || it.id.quorum == new;
                    // One server may be behind two addresses.
                    is_of_these && closed.iter().all(|other| other.id != it.id)
                })),
                Err(failed) => {
                    let (member, error) = (self.members.location(index), &failed.error);
                    tracing::warn!(member, %error, "an old member was not closed: shut it down");
                    failures.push((index, failed));
                }
            }
        }
        (closed, failures)
    }

    /// Returns what [`init`](Self::init) would do, or [`replace`](Self::replace) with these old members.
    pub(crate) fn plan(&self, old: Option<&Self>) -> String {
        let made = self.made(0);
        let (new, max_ttl) = (&made.members, made.max_ttl);
        let replacing = old.map(|old| {
            format!(
                ", or is one of the old members.\n\
                 -- Closes each of {}: from then on nothing is granted, and all leases end.\n\
                 -- Waits {:?}, or for the longest ttl of the old members and a hundredth more if that is longer",
                old.members.locations(),
                made.left(0)
            )
        });
        let replacing = replacing.unwrap_or_default();
        format!(
            "-- Checks that each of {new} answers, is a master, is another server than the others, and has no key with \
             this prefix{replacing}.\n\
             -- Writes its index and the longest ttl, {max_ttl:?}, on each of {new}, in one hash: leasehold:node.\n"
        )
    }

    /// Returns the quorum of these members; `None` if those that are left were replaced by `new` already.
    ///
    /// # Errors
    /// No member has its data, and the clock must not stand in for it. Or they are not all members of their quorum, in
    /// its order, so that a majority of them would be none.
    async fn to_replace(
        &self,
        new: &Self,
        from_clock: bool,
        limit: Duration,
    ) -> Result<Option<KnownQuorum>, Error> {
        let asked = self.members.iter().map(|member| member.read_node(limit));
        let (mut nodes, mut is_replaced) = (Vec::new(), false);
        for (index, node) in join_all(asked).await.into_iter().enumerate() {
            match node {
                Ok(node) if node.members == new.members.locations() => is_replaced = true,
                Ok(node) => nodes.push((index, node)),
                // It may be down for good. Without a majority of the others the change is refused.
                Err(failed) if failed.error.is_transient() => {}
                Err(failed) => return Err(failed.error),
            }
        }
        let known = KnownQuorum::told_by(&nodes, self.members.len(), |_| true);
        // The others of an old quorum would not be closed if the order is another.
        let is_displaced = |known: &KnownQuorum| {
            let ids =
                |(index, node): &(usize, MemberNode)| Some((known.id(*index), node.membership?.id));
            let mut ids = nodes.iter().filter_map(ids);
            ids.any(|(named, id)| id.quorum == named.quorum && id != named)
        };
        if let Some((known, _)) = known.filter(|(known, _)| !is_displaced(known)) {
            return Ok(Some(known));
        }
        let lost =
            "none of the old members has its data: start those that have it, or use --from-clock";
        let why = match nodes.iter().find(|(_, node)| node.membership.is_some()) {
            Some((_, node)) => format!(
                "--replace has to name all old members, in the order in which they were set up members={}",
                node.members
            ),
            None if is_replaced => return Ok(None),
            None if from_clock => return Ok(Some(self.made(0))),
            None => lost.into(),
        };
        Err(self.refused(&why))
    }

    /// Reserves all servers for one run, which makes the first quorum or replaces `old`; reads what they are, and
    /// checks that all are still reserved for it. Returns the run that may write them all, or `None` if some are
    /// members of the quorum already: the others come in by adoption.
    async fn reserve(
        &self,
        old: Option<u64>,
        limit: Duration,
    ) -> Result<Option<(u64, Vec<MemberNode>)>, Error> {
        let run = fastrand::u64(..) & !0xff;
        let mut nodes = Vec::new();
        for word in ["look", "reserve", "look"] {
            let mut is_set_up = false;
            nodes.clear();
            for (index, member) in self.members.iter().enumerate() {
                // Each server gets its own number of the reservation, which reveals two names of one server.
                let by = (run + index as u64).to_string();
                let arguments: &[&str] = if word == "reserve" { &[&by] } else { &[] };
                let node = member.node(word, arguments, limit).await;
                let node = node.map_err(|failed| self.unanswered(index, failed))?;
                is_set_up |= self.check(index, &node, old)?;
                self.check_distinct(&nodes, &node)?;
                nodes.push(node);
            }
            if is_set_up {
                return Ok(None);
            }
        }
        for (index, node) in nodes.iter().enumerate() {
            self.check_fit(index, node, run, old.is_none(), limit)
                .await?;
        }
        Ok(Some((run, nodes)))
    }

    /// Checks that a server is none of those before it, in the same or in another database.
    ///
    /// # Errors
    /// It is one of them.
    fn check_distinct(&self, before: &[MemberNode], node: &MemberNode) -> Result<(), Error> {
        let is_same = |other: &MemberNode| other.run() == node.run();
        let Some(other) = before.iter().position(is_same) else {
            return Ok(());
        };
        let other = self.members.location(other);
        let why = format!("it is the same server as {other}: name different servers");
        Err(self.refused_at(before.len(), &why))
    }

    /// Returns whether a server is already a member of the quorum that is being set up.
    ///
    /// # Errors
    /// It is one of another quorum, or of one that was closed.
    fn check(&self, index: usize, node: &MemberNode, old: Option<u64>) -> Result<bool, Error> {
        let is_other = |it: &Membership| Some(it.id.quorum) != old;
        let Some(member) = node.membership.filter(is_other) else {
            return Ok(false);
        };
        let quorum = old.map_or(member.id.quorum, |old| self.successor(old));
        let made = self.made(quorum);
        let is_ours = member.id == made.id(index) && node.members == made.members;
        let theirs = Duration::from_micros(member.max_ttl_us);
        let ours = self.members.max_ttl().filter(|ours| *ours != theirs);
        let why = match ours {
            _ if member.id.quorum == quorum && node.members == made.members && member.id != made.id(index) => {
                "it has the data of another member of this quorum, as after REPLICAOF: remove the keys of leases from it \
                 (they begin with the prefix), and it comes in after the longest ttl"
                    .into()
            }
            _ if !is_ours => format!(
                "it is a member of another quorum: use `leasehold init --replace URL` with the URL of that one members={}",
                node.members
            ),
            _ if member.closed_for.is_some() => CLOSED.into(),
            Some(ours) => format!(
                "the quorum is set up with another longest ttl, which cannot be changed: expected max_ttl={theirs:?} \
                 max_ttl={ours:?}"
            ),
            None => return Ok(true),
        };
        Err(self.refused_at(index, &why))
    }

    /// Checks that a server can be written by this run.
    ///
    /// # Errors
    /// Another run reserves it, it is one of the others, it has leases, or it may have forgotten some. A replacement
    /// waits for the end of all leases itself.
    async fn check_fit(
        &self,
        index: usize,
        node: &MemberNode,
        run: u64,
        is_first: bool,
        limit: Duration,
    ) -> Result<(), Error> {
        let left = self.made(0).left(node.away_us);
        let by_this_run = node.reserved_by.filter(|by| by & !0xff == run);
        let why = match by_this_run {
            None => "another `leasehold init` is under way: wait for it, and run this again".into(),
            Some(by) if by != run + index as u64 => {
                let other = self.members.location(usize::from(by as u8));
                format!("it is the same server as {other}: name different servers")
            }
            _ if node.membership.is_some() => return Ok(()),
            _ if is_first && node.asked_for.is_some() && !left.is_zero() => format!(
                "clients ask it for a quorum whose data it lost: wait for {left:.0?} until its leases have ended, and run this again"
            ),
            _ => {
                let server = &self.members[index].server;
                let found = server.any_key(Budget::new(limit)).await;
                let found = found.map_err(|failure| server.failed(failure, "init"))?;
                let Some(key) = found else {
                    return Ok(());
                };
                format!(
                    "the server is not new, it has leases or marks: remove them, or use another prefix key={key:?}"
                )
            }
        };
        Err(self.refused_at(index, &why))
    }

    async fn open_all(
        &self,
        quorum: u64,
        run: u64,
        highest: u64,
        limit: Duration,
    ) -> Result<(), Error> {
        let (of, mut written) = (self.members.len(), 0);
        let made = self.made(quorum);
        for index in self.members.all() {
            let by = (run + index as u64).to_string();
            let opening = self.write(&made, index, ["open", &by], highest, limit);
            match opening.await {
                Ok(is_in) => written += usize::from(is_in),
                // The others are written all the same: a majority is a quorum, and the rest come in by adoption.
                Err(failed) if written + (of - index - 1) >= majority(of) => {
                    let (member, error) = (self.members.location(index), failed.error);
                    tracing::warn!(member, %error, "a member was not written, it comes in later");
                }
                Err(failed) => return Err(self.unanswered(index, failed)),
            }
        }
        match written >= majority(of) {
            true => Ok(()),
            false => Err(self.refused("servers were restarted or reserved by another `leasehold init` meanwhile: run it again")),
        }
    }

    /// Returns the quorum that has these members.
    fn made(&self, quorum: u64) -> KnownQuorum {
        KnownQuorum {
            quorum,
            of: u8::try_from(self.members.len()).unwrap_or(u8::MAX),
            max_ttl: self.members.max_ttl().unwrap_or(MAX_TTL),
            members: self.members.locations(),
        }
    }

    /// Returns the id of the quorum that has these members and replaces an older one, so that a command that was
    /// stopped is the same when it is run again (FNV-1a, 64 bits).
    fn successor(&self, old: u64) -> u64 {
        let text = format!("{old} {}", self.members.locations());
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    fn unanswered(&self, member: usize, failed: Failed) -> Error {
        let location = self.members.location(member);
        let message = format!("init failed: all members have to answer member={location}");
        Error::new(failed.error.kind(), message).with_source(failed.error)
    }

    fn refused_at(&self, member: usize, why: &str) -> Error {
        self.refused(&format!("{why} member={}", self.members.location(member)))
    }

    fn refused(&self, why: &str) -> Error {
        self.error_of_all(Failure::misconfigured(why), "init")
    }
}

/// Opens the quorum at a URL for its set-up.
pub(crate) fn to_set_up(url: &str, settings: TableSettings) -> Result<Quorum, Error> {
    match settings.max_ttl {
        Some(_) => Err(Error::invalid(
            "init refused: a quorum has no tables; expected the longest ttl in its URL, as max_ttl=60s",
        )),
        None => Quorum::open(url),
    }
}
