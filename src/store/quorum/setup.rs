//! Set-up, and change of members: what `leasehold init` does with a quorum.

use std::time::Duration;

use futures_util::future::join_all;

use super::members::MemberPlace;
use super::protocol::{Closings, MemberId, Writing, keep_out_us, majority};
use super::store::Quorum;
use super::{MAX_TTL, micros};
use crate::clock::{Boottime, Clock as _, wall_clock_us};
use crate::error::{Error, ErrorKind};
use crate::store::Failed;

impl Quorum {
    /// Makes these servers the members of a new quorum, with the longest ttl of this store, by default 60 s. The first
    /// grant takes no wait. All of them have to answer, be masters, be different servers, and have no key with this
    /// prefix.
    ///
    /// Run again, it succeeds if they are members already. Servers that an earlier run left blank come in on their own,
    /// one longest ttl after a client first meets them.
    ///
    /// # Errors
    /// `Misconfigured` with the member and what to do about it: nothing was granted meanwhile. Otherwise the errors of
    /// a request; after one of these run it again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown: run it again.
    pub async fn init(&self, limit: Duration) -> Result<(), Error> {
        let reserved = self.reserve(None, limit).await?;
        let Reserved::Blank { run, places } = reserved else {
            return Ok(());
        };
        let mut id = 0;
        while id == 0 {
            id = draw()?;
        }
        let highest = places
            .iter()
            .map(|place| place.at.now_us)
            .max()
            .unwrap_or(0);
        self.open_all(id, run, highest, limit).await
    }

    /// Makes these servers the members of the quorum in place of those of `old`. Some of them may be members of it. It
    /// closes the old members first, and writes the new ones after the longest ttl, so it takes as long; meanwhile
    /// nothing is granted. All leases end. If it fails or is stopped, run it again: until then nothing is granted
    /// either.
    ///
    /// The members that are left out, and those that did not answer, must be shut down.
    ///
    /// With `from_clock` it goes on without a majority of the old members. Then no token falls as long as the clock of
    /// this machine is ahead of each that was granted, and no two holders meet as long as the old members that did not
    /// answer stay down.
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
        if old.members.places() == self.members.places() {
            return Err(self.refused("the new members are the old ones"));
        }
        let (old_id, old_ttl_us) = match old.quorum_to_replace(self, limit).await? {
            ToReplace::Quorum(id, max_ttl_us) => (id, max_ttl_us),
            ToReplace::Replaced => return self.init(limit).await,
            ToReplace::Lost if from_clock => (0, 0),
            ToReplace::Lost => {
                return Err(old.refused(
                    "none of the old members has its data: start those that have it, or use --from-clock",
                ));
            }
        };
        let id = successor(old_id, &self.members.places());
        let reserved = self.reserve(Some((old_id, id)), limit).await?;
        let closed = old.close_all(old_id, id, limit).await;
        let Reserved::Blank { run, .. } = reserved else {
            return Ok(());
        };
        let highest = self.highest(old, &closed, from_clock)?;
        let keep_out = keep_out_us(old_ttl_us.max(micros(self.max_ttl_to_write())));
        Boottime
            .nap_until(Boottime.now().after(Duration::from_micros(keep_out)))
            .await;
        self.open_all(id, run, highest, limit).await
    }

    /// Returns the highest token of the old members, which are closed.
    fn highest(&self, old: &Self, closed: &Closed, from_clock: bool) -> Result<u64, Error> {
        if let Some(other) = closed.closings.other() {
            return Err(self.refused(&format!(
                "the old members are closed for other new ones: finish that change first, by the command that began it \
                 quorum={other}"
            )));
        }
        match closed.closings.highest() {
            Some(highest) => Ok(highest),
            None if from_clock => Ok(closed.highest.max(wall_clock_us())),
            None => {
                let facts = format!(
                    "too few of the old members are in and answer: start them, or use --from-clock store={}",
                    old.shared.place
                );
                let answered = old.members.len() - closed.failures.len();
                Err(old.error("init", answered, &closed.failures, facts))
            }
        }
    }

    /// Closes these members, which are to be replaced, for the quorum `id`: all that answer.
    async fn close_all(&self, old_id: u64, id: u64, limit: Duration) -> Closed {
        let asked = self.members.iter().enumerate();
        let asked = asked.map(async |(index, member)| {
            let place = member.look(limit).await?;
            let blank = member_id(old_id, index, 0);
            let it = place.node.membership.map_or(blank, |member| member.id);
            member.close_for(it, id, limit).await
        });
        let mut closed = Closed {
            closings: Closings::new(id, self.members.len()),
            highest: 0,
            failures: Vec::new(),
        };
        for (index, place) in join_all(asked).await.into_iter().enumerate() {
            match place.map(|place| place.node.membership) {
                Ok(Some(member)) if member.id.quorum == id => {
                    closed.closings.note(index, (id, Some(member.max)));
                }
                Ok(Some(member)) if member.id.quorum == old_id => {
                    let is_in = !member.incarnation.is_empty();
                    closed.highest = closed.highest.max(member.max);
                    let closed_for = member.closed_for.unwrap_or_default();
                    let max = is_in.then_some(member.max);
                    closed.closings.note(index, (closed_for, max));
                }
                Ok(_) => {}
                Err(failed) => {
                    let place = self.members.place(index);
                    tracing::warn!(member = place, error = %failed.error, "an old member was not closed: shut it down");
                    closed.failures.push((index, failed));
                }
            }
        }
        closed
    }

    /// Returns what [`init`](Self::init) would do, or [`replace`](Self::replace) with these old members.
    pub(super) fn plan(&self, old: Option<&Self>) -> String {
        let (new, max_ttl) = (self.members.places(), self.max_ttl_to_write());
        let begin = match old {
            None => String::new(),
            Some(old) => format!(
                "-- Closes each of {}: from then on nothing is granted, and all leases end.\n\
                 -- Waits {:?}, or for the longest ttl of the old members and a hundredth more if that is longer.\n",
                old.members.places(),
                Duration::from_micros(keep_out_us(micros(max_ttl)))
            ),
        };
        let whose = match old {
            None => "has no key with this prefix",
            Some(_) => "is one of the old members or has no key with this prefix",
        };
        format!(
            "-- Checks that each of {new} answers, is a master, is another server than the others and {whose}.\n\
             {begin}-- Writes its place and the longest ttl, {max_ttl:?}, on each of {new}, in one hash: leasehold:node.\n"
        )
    }

    fn max_ttl_to_write(&self) -> Duration {
        self.shared.max_ttl.unwrap_or(MAX_TTL)
    }

    /// Returns the quorum of these members and its longest ttl, unless all of them were replaced already.
    async fn quorum_to_replace(&self, new: &Self, limit: Duration) -> Result<ToReplace, Error> {
        let asked = self.members.iter().map(|member| member.look(limit));
        let (mut told, mut is_replaced) = (Vec::new(), false);
        for place in join_all(asked).await {
            match place {
                Ok(place) if place.members == new.members.places() => is_replaced = true,
                Ok(place) => told.extend(place.node.membership),
                // It may be down for good. Without a majority of the others the change is refused.
                Err(failed) if failed.error.is_transient() => {}
                Err(failed) => return Err(failed.error),
            }
        }
        let votes = |quorum: u64| {
            told.iter()
                .filter(|member| member.id.quorum == quorum)
                .count()
        };
        let most = told.iter().max_by_key(|member| votes(member.id.quorum));
        Ok(match most {
            Some(member) => ToReplace::Quorum(member.id.quorum, member.max_ttl_us),
            None if is_replaced => ToReplace::Replaced,
            None => ToReplace::Lost,
        })
    }

    /// Reserves all servers for one run, sees what they are, and then that all are reserved by it still.
    async fn reserve(
        &self,
        change: Option<(u64, u64)>,
        limit: Duration,
    ) -> Result<Reserved, Error> {
        let (places, is_set_up) = self.each(None, change, limit).await?;
        if is_set_up {
            self.report_out(&places);
            return Ok(Reserved::SetUp);
        }
        // Each server is reserved under a number of its own, which shows two names of one server.
        let run = draw()? & !0xff;
        let (places, was_written) = self.each(Some(run), change, limit).await?;
        for (index, (place, member)) in places.iter().zip(self.members.iter()).enumerate() {
            if place.node.membership.is_none()
                && let Some(key) = member.any_key(limit).await?
            {
                return Err(self.refused_at(index, &format!(
                    "the server is not new, it has leases or marks: remove them, or use another prefix key={key:?}"
                )));
            }
        }
        let (places, is_written) = self.each(None, change, limit).await?;
        for (index, place) in places.iter().enumerate() {
            self.check_reservation(index, place.node.reserved_by, run)?;
        }
        Ok(match was_written || is_written {
            true => Reserved::SetUp,
            false => Reserved::Blank { run, places },
        })
    }

    /// Looks at each server, or reserves it for this run. Returns what they are, and whether some are members of the
    /// quorum already.
    async fn each(
        &self,
        run: Option<u64>,
        change: Option<(u64, u64)>,
        limit: Duration,
    ) -> Result<(Vec<MemberPlace>, bool), Error> {
        let (mut places, mut is_set_up) = (Vec::new(), false);
        for (index, member) in self.members.iter().enumerate() {
            let place = match run {
                Some(run) => member.reserve(run + index as u64, limit).await,
                None => member.look(limit).await,
            };
            let place = place.map_err(|failed| self.failed(index, failed))?;
            is_set_up |= self.check(index, &place, change)?;
            places.push(place);
        }
        Ok((places, is_set_up))
    }

    fn check_reservation(
        &self,
        index: usize,
        reserved_by: Option<u64>,
        run: u64,
    ) -> Result<(), Error> {
        let why = match reserved_by {
            Some(by) if by == run + index as u64 => return Ok(()),
            Some(by) if by & !0xff == run => {
                let other = self.members.place(usize::from(by as u8));
                format!("it is the same server as {other}: name different servers")
            }
            _ => "another `leasehold init` is under way: wait for it, and run this again".into(),
        };
        Err(self.refused_at(index, &why))
    }

    /// Reports the servers that an earlier run left out, of a quorum that is set up.
    fn report_out(&self, places: &[MemberPlace]) {
        let ours = self.members.places();
        let is_in = |place: &MemberPlace| {
            let member = place.node.membership.as_ref();
            place.members == ours && member.is_some_and(|member| !member.incarnation.is_empty())
        };
        for (place, member) in places.iter().zip(self.members.iter()) {
            if !is_in(place) {
                let member = member.place();
                tracing::warn!(
                    member,
                    "a server is out: clients take it in after the longest ttl"
                );
            }
        }
    }

    /// Returns whether a server is a member already of the quorum that is set up.
    ///
    /// # Errors
    /// It is one of another quorum.
    fn check(
        &self,
        index: usize,
        place: &MemberPlace,
        change: Option<(u64, u64)>,
    ) -> Result<bool, Error> {
        let Some(member) = &place.node.membership else {
            return Ok(false);
        };
        let is_ours = match change {
            None => {
                place.members == self.members.places()
                    && (usize::from(member.id.index), usize::from(member.id.of))
                        == (index, self.members.len())
            }
            Some((_, new)) => member.id.quorum == new,
        };
        if is_ours {
            let theirs = Duration::from_micros(member.max_ttl_us);
            return match self.shared.max_ttl.filter(|ours| *ours != theirs) {
                Some(ours) => Err(self.refused_at(index, &format!(
                    "the quorum is set up with another longest ttl, which cannot be changed: expected max_ttl={theirs:?} \
                     max_ttl={ours:?}"
                ))),
                None => Ok(true),
            };
        }
        match change {
            Some((old, _)) if member.id.quorum == old => Ok(false),
            _ => Err(self.refused_at(index, &format!(
                "it is a member of another quorum: use `leasehold init --replace URL` with the URL of that one members={}",
                place.members
            ))),
        }
    }

    async fn open_all(
        &self,
        quorum: u64,
        run: u64,
        highest: u64,
        limit: Duration,
    ) -> Result<(), Error> {
        let max_ttl_us = micros(self.max_ttl_to_write());
        let members = self.members.places();
        let of = self.members.len();
        let mut written = 0;
        for (index, member) in self.members.iter().enumerate() {
            let writing = Writing {
                id: member_id(quorum, index, of),
                max_ttl_us,
                found: String::new(),
                highest,
            };
            let opened = member
                .open(&writing, run + index as u64, &members, limit)
                .await;
            match opened.map(|place| place.away(writing.id)) {
                Ok(None) => written += 1,
                Ok(Some(_)) => {}
                // The others are written all the same: a majority is a quorum, and the rest come in by adoption.
                Err(failed) if written + (of - index - 1) >= majority(of) => {
                    tracing::warn!(member = member.place(), error = %failed.error, "a member was not written, it comes in later");
                }
                Err(failed) => return Err(self.failed(index, failed)),
            }
        }
        match written >= majority(of) {
            true => Ok(()),
            false => Err(self.refused("servers were restarted or reserved by another `leasehold init` meanwhile: run it again")),
        }
    }

    fn failed(&self, member: usize, failed: Failed) -> Error {
        let place = self.members.place(member);
        let message = format!("init failed: all members have to answer member={place}");
        Error::new(failed.error.kind(), message).with_source(failed.error)
    }

    fn refused_at(&self, member: usize, why: &str) -> Error {
        self.refused(&format!("{why} member={}", self.members.place(member)))
    }

    fn refused(&self, why: &str) -> Error {
        let message = format!("init refused: {why} store={}", self.shared.place);
        Error::new(ErrorKind::Misconfigured, message)
    }
}

/// The answers of the old members when they were closed.
struct Closed {
    closings: Closings,
    /// The highest token that any of them has, whether it is in or not.
    highest: u64,
    failures: Vec<(usize, Failed)>,
}

/// The state that the old members report.
enum ToReplace {
    /// Their quorum and its longest ttl.
    Quorum(u64, u64),
    /// Those that are left are members of the new quorum already.
    Replaced,
    /// None of them knows.
    Lost,
}

/// The state of the servers that were reserved.
enum Reserved {
    /// Some are members of the quorum already: the others come in by adoption.
    SetUp,
    /// All may be written by this run.
    Blank { run: u64, places: Vec<MemberPlace> },
}

fn member_id(quorum: u64, index: usize, of: usize) -> MemberId {
    MemberId {
        quorum,
        index: u8::try_from(index).unwrap_or(u8::MAX),
        of: u8::try_from(of).unwrap_or(u8::MAX),
    }
}

/// Returns the quorum that has these members in place of an older one, so that a command that was stopped is the same
/// when it is run again (FNV-1a, 64 bits).
fn successor(old: u64, members: &str) -> u64 {
    let text = format!("{old} {members}");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn draw() -> Result<u64, Error> {
    getrandom::u64().map_err(|source| {
        let message = "init failed: the operating system gave no random bits";
        Error::new(ErrorKind::Unavailable, message).with_source(source.to_string())
    })
}
