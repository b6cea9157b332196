//! Set-up, and change of members: what `leasehold init` does with a quorum.

use std::time::Duration;

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
        let Reserved::Blank { run, .. } = self.reserve(Some((old_id, id)), limit).await? else {
            return Ok(());
        };
        let Closed {
            closings,
            highest,
            failures,
        } = old.close_all(old_id, id, limit).await;
        if let Some(other) = closings.other() {
            return Err(self.refused(&format!(
                "the old members are closed for other new ones: finish that change first, by the command that began it \
                 quorum={other}"
            )));
        }
        let highest = match closings.highest() {
            Some(highest) => highest,
            None if from_clock => highest.max(wall_clock_us()),
            None => {
                let facts = format!(
                    "too few of the old members are in and answer: start them, or use --from-clock store={}",
                    old.shared.place
                );
                let answered = old.members.len() - failures.len();
                let error = old.error("init", answered, &failures, facts);
                return Err(error);
            }
        };
        let keep_out = keep_out_us(old_ttl_us.max(micros(self.max_ttl_to_write())));
        Boottime
            .nap_until(Boottime.now().after(Duration::from_micros(keep_out)))
            .await;
        self.open_all(id, run, highest, limit).await
    }

    /// Closes these members, which are to be replaced, for the quorum `id`.
    async fn close_all(&self, old_id: u64, id: u64, limit: Duration) -> Closed {
        let mut closings = Closings::new(id, self.members.len());
        let mut highest = 0;
        let mut failures = Vec::new();
        let mut asked = self.members.ask(limit, |index, member| async move {
            let id_of = member_id(old_id, index, 0);
            let place = member.look(limit).await?;
            let of = place
                .node
                .membership
                .as_ref()
                .map_or(id_of, |member| member.id);
            member.close_for(of, id, limit).await
        });
        while let Some((member, place)) = asked.next().await {
            match place.map(|place| place.node.membership) {
                Ok(Some(closed)) if closed.id.quorum == id => {
                    closings.note(member, (id, Some(closed.max)))
                }
                Ok(Some(closed)) if closed.id.quorum == old_id => {
                    let is_in = !closed.incarnation.is_empty();
                    highest = highest.max(closed.max);
                    let closed_for = closed.closed_for.unwrap_or_default();
                    closings.note(member, (closed_for, is_in.then_some(closed.max)));
                }
                Ok(_) => {}
                Err(failed) => failures.push((member, failed)),
            }
        }
        Closed {
            closings,
            highest,
            failures,
        }
    }

    /// Returns what [`init`](Self::init) would do.
    pub(super) fn plan(&self) -> String {
        format!(
            "-- Checks that each of {} answers, is a master, is another server than the others and has no key with this prefix,\n\
             -- and writes its place and the longest ttl, {:?}, on each of them, in one hash: leasehold:node.\n",
            self.members.places(),
            self.max_ttl_to_write()
        )
    }

    fn max_ttl_to_write(&self) -> Duration {
        self.shared.max_ttl.unwrap_or(MAX_TTL)
    }

    /// Returns the quorum of these members and its longest ttl, unless all of them were replaced already.
    async fn quorum_to_replace(&self, new: &Self, limit: Duration) -> Result<ToReplace, Error> {
        let mut asked = self
            .members
            .ask(limit, |_, member| async move { member.look(limit).await });
        let (mut told, mut is_replaced) = (Vec::new(), false);
        while let Some((_, place)) = asked.next().await {
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
        // Each server is reserved under a number of its own, which shows two names of one server.
        let run = draw()? & !0xff;
        let mut is_set_up = false;
        for (index, member) in self.members.iter().enumerate() {
            let place = member
                .look(limit)
                .await
                .map_err(|failed| self.failed(index, failed))?;
            is_set_up |= self.check(index, &place, change)?;
        }
        if is_set_up {
            return Ok(Reserved::SetUp);
        }
        for (index, member) in self.members.iter().enumerate() {
            let reserved = member.reserve(run + index as u64, limit).await;
            let place = reserved.map_err(|failed| self.failed(index, failed))?;
            is_set_up |= self.check(index, &place, change)?;
            if place.node.membership.is_none()
                && let Some(key) = member.any_key(limit).await?
            {
                return Err(self.refused_at(index, &format!(
                    "the server is not new, it has leases or marks: remove them, or use another prefix key={key:?}"
                )));
            }
        }
        let mut places = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            let place = member
                .look(limit)
                .await
                .map_err(|failed| self.failed(index, failed))?;
            is_set_up |= self.check(index, &place, change)?;
            match place.node.reserved_by {
                Some(by) if by == run + index as u64 => {}
                Some(by) if by & !0xff == run => {
                    let other = self.members.place(usize::from(by as u8));
                    return Err(self.refused_at(
                        index,
                        &format!("it is the same server as {other}: name different servers"),
                    ));
                }
                _ => {
                    return Err(self.refused_at(
                        index,
                        "another `leasehold init` is under way: wait for it, and run this again",
                    ));
                }
            }
            places.push(place);
        }
        Ok(match is_set_up {
            true => Reserved::SetUp,
            false => Reserved::Blank { run, places },
        })
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
