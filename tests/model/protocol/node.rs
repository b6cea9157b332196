//! A member as plain functions, each of which is what one script does: `node.lua` and `names.lua`, which are compared
//! with them by `tests/it/quorum/agreement.rs`. First what a member knows of itself: which quorum it belongs to,
//! whether it is in, and how it comes in.
//!
//! ```text
//!   blank ──open──► in ──close──► closed ──open or adopt, for the successor──► in
//!     │             │ ▲
//!     │    another incarnation: restarted, promoted, restored
//!     │             ▼ │
//!     └── seen ──► out ── adopt, once the keep-out has passed
//! ```

use leasehold::store::HeldState;
use leasehold::store::quorum::protocol::{
    Absence, MemberAnswer, MemberId, MemberLease, Membership, keep_out_us,
};
use leasehold::{Holder, Token};

/// The incarnation of a server, which changes with every start and with every promotion: a text of the server, or a
/// number of the model.
pub(super) trait Incarnation: Clone + Eq {
    /// How far ahead of a mark `max` is written, so that most marks need no write of it.
    const AHEAD: u64;
}

/// What makes a member a member: the key `node`. `I` is the incarnation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Node<I> {
    /// `None` on a server that `init` never wrote, or that lost its data.
    pub(super) membership: Option<MemberRecord<I>>,
    /// Since when the member is away.
    pub(super) seen: Option<FirstSeen<I>>,
    /// The run of `init` that may write the server: the last one that reserved it.
    pub(super) reserved_by: Option<u64>,
}

/// What `init` or an adoption wrote, and the highest token since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemberRecord<I> {
    /// Which member of which quorum it is.
    pub(super) id: MemberId,
    /// The longest ttl of the quorum.
    pub(super) max_ttl_us: u64,
    /// The incarnation that came in. The member is away while its present one is another.
    pub(super) incarnation: I,
    /// Not below the mark of any slot.
    pub(super) max: u64,
    /// What `max` was when the member came in. No claim at or below it is taken, and a lease that was taken under
    /// another floor does not count: a member comes in without its leases, but for the names that are kept taken.
    pub(super) floor: u64,
    /// The quorum that this one was closed for. The first one stays.
    pub(super) closed_for: Option<u64>,
}

/// When an incarnation that is away was first seen, by any request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FirstSeen<I> {
    /// The incarnation.
    pub(super) incarnation: I,
    /// When it was first seen, by the member's clock.
    pub(super) at_us: u64,
}

/// What the server is at the moment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At<I> {
    /// Its clock.
    pub(super) now_us: u64,
    /// Its incarnation.
    pub(super) incarnation: I,
}

/// What `init` or an adoption writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Writing<I> {
    /// Which member the server becomes or is.
    pub(super) id: MemberId,
    /// The longest ttl of the quorum.
    pub(super) max_ttl_us: u64,
    /// The incarnation that this was found out for. An adoption writes no other.
    pub(super) found: I,
    /// The highest token that any grant can have.
    pub(super) highest: u64,
}

impl<I: Incarnation> Node<I> {
    /// Returns the membership if the member is the one that is asked, and is in.
    ///
    /// # Errors
    /// Why it takes no part.
    pub(super) fn look(
        &mut self,
        id: MemberId,
        at: &At<I>,
    ) -> Result<&mut MemberRecord<I>, Absence> {
        match (self.absence(id, at), &mut self.membership) {
            (None, Some(member)) => Ok(member),
            (Some(absence), _) => {
                if matches!(absence, Absence::Away(_)) {
                    see(&mut self.seen, at);
                }
                Err(absence)
            }
            (None, None) => unreachable!("one that is in is a member"),
        }
    }

    pub(super) fn absence(&self, id: MemberId, at: &At<I>) -> Option<Absence> {
        let away_us = match &self.seen {
            Some(seen) if seen.incarnation == at.incarnation => {
                at.now_us.saturating_sub(seen.at_us)
            }
            _ => 0,
        };
        let told = self.membership.as_ref().map(|member| member.told(at));
        Membership::absence(told, id, away_us)
    }

    /// Takes a member in that was away for the keep-out. What it had of leases does not count any more, and no claim at
    /// or below `highest` is taken.
    ///
    /// # Errors
    /// The member is away still: the write is for another incarnation, or comes too early. Or it is closed, or another.
    pub(super) fn adopt(&mut self, writing: &Writing<I>, at: &At<I>) -> Result<(), Absence> {
        let absence = match self.look(writing.id, at) {
            Ok(_) => return Ok(()),
            Err(absence) => absence,
        };
        let away_us = match absence {
            Absence::Away(away_us) => away_us,
            _ if self.is_displaced(writing.id, at) => see(&mut self.seen, at),
            _ => return Err(absence),
        };
        let it = self.membership.as_ref();
        let it = it.filter(|member| member.id == writing.id);
        let max_ttl_us = it.map_or(writing.max_ttl_us, |member| member.max_ttl_us);
        let is_over = away_us >= keep_out_us(max_ttl_us);
        if !is_over || writing.found != at.incarnation {
            return Err(absence);
        }
        self.write(writing, max_ttl_us, at);
        Ok(())
    }

    /// Returns whether it has the data of another member of this quorum, as one that was its replica. Who adopts it has
    /// seen that the other one answers, and is another server.
    fn is_displaced(&self, id: MemberId, at: &At<I>) -> bool {
        self.membership.as_ref().is_some_and(|member| {
            (member.id.quorum, member.id.of) == (id.quorum, id.of)
                && member.id != id
                && member.closed_for.is_none()
                && member.incarnation != at.incarnation
        })
    }

    /// Reserves a server for a run of `init`, and returns which member it is already. What an earlier run sends is
    /// refused from now on. A server that loses its data loses this too. The run writes once it has reserved all
    /// servers and has seen after the last one that all are reserved by it still.
    pub(super) const fn reserve(&mut self, run: u64) -> Option<MemberId> {
        self.reserved_by = Some(run);
        match &self.membership {
            Some(member) => Some(member.id),
            None => None,
        }
    }

    /// Makes a server that this run has reserved a member that is in. It is blank, or its quorum was closed for this
    /// one.
    ///
    /// # Errors
    /// It is a member of another quorum, was written already, or is not reserved: then an adoption takes it in.
    pub(super) fn open(
        &mut self,
        writing: &Writing<I>,
        run: u64,
        at: &At<I>,
    ) -> Result<(), Absence> {
        match &self.membership {
            Some(member) if member.id == writing.id => self.look(writing.id, at).map(|_| ()),
            Some(member) if member.closed_for != Some(writing.id.quorum) => {
                Err(Absence::Other(member.id))
            }
            _ if self.reserved_by != Some(run) => Err(Absence::Away(see(&mut self.seen, at))),
            _ => {
                self.write(writing, writing.max_ttl_us, at);
                Ok(())
            }
        }
    }

    /// Closes the member's quorum for another one: it takes no claim and extends nothing from now on. Returns its
    /// highest token if it is in, whatever it was closed for before, and for which quorum it is closed.
    ///
    /// # Errors
    /// It is another member, or blank.
    pub(super) fn close(
        &mut self,
        id: MemberId,
        successor: u64,
        at: &At<I>,
    ) -> Result<(u64, Option<u64>), Absence> {
        match &mut self.membership {
            None => Err(Absence::Away(see(&mut self.seen, at))),
            Some(member) if member.id.quorum == successor => Ok((successor, Some(member.max))),
            Some(member) if member.id != id => Err(Absence::Other(member.id)),
            Some(member) => {
                let is_in = member.incarnation == at.incarnation;
                let closed_for = *member.closed_for.get_or_insert(successor);
                Ok((closed_for, is_in.then_some(member.max)))
            }
        }
    }

    fn write(&mut self, writing: &Writing<I>, max_ttl_us: u64, at: &At<I>) {
        let max = self.membership.as_ref().map_or(0, |member| member.max);
        // Above each floor that it had, because a lease is told from an older one by its floor.
        let floor = writing.highest.max(max) + 1;
        self.membership = Some(MemberRecord {
            id: writing.id,
            max_ttl_us,
            incarnation: at.incarnation.clone(),
            max: floor,
            floor,
            closed_for: None,
        });
        self.seen = None;
        self.reserved_by = None;
    }
}

/// Records when the incarnation was first seen, and returns for how long it has been away. A clock that was ahead then
/// does not make the keep-out longer.
fn see<I: Incarnation>(noted: &mut Option<FirstSeen<I>>, at: &At<I>) -> u64 {
    let seen = match noted.take() {
        Some(seen) if seen.incarnation == at.incarnation => FirstSeen {
            at_us: seen.at_us.min(at.now_us),
            ..seen
        },
        _ => FirstSeen {
            incarnation: at.incarnation.clone(),
            at_us: at.now_us,
        },
    };
    at.now_us - noted.insert(seen).at_us
}

// Its work on a request for a name. The slot's mark is the highest token that was taken, released or evicted in it, and
// it *moves* with every change of a name in the slot but an extension. So it says two things: which claims are too low,
// and whether anything has happened since it was last told.

/// The state that a member keeps of a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NameState {
    /// The mark of the name's slot; 0 where there is none. It has no expiry.
    pub(super) mark: u64,
    /// The lease. It has an expiry.
    pub(super) lease: Option<MemberLease>,
}

/// A request for a name: a claim, a renewal, a release or an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemberRequest {
    /// The member that is meant.
    pub(super) id: MemberId,
    /// The holder.
    pub(super) holder: Holder,
    /// The token that the holder proposes or has.
    pub(super) token: Token,
    /// The time from now: how long a released name is kept, and an evicted one at least.
    pub(super) ttl_us: u64,
}

impl NameState {
    /// Returns the lease, if it is not over and was taken under this floor. A name that is kept taken has no holder who
    /// would bring it back after an adoption, so it counts under any floor: nobody believes in it.
    pub(super) fn lease(&self, floor: u64, now_us: u64) -> Option<MemberLease> {
        let counts = |lease: &MemberLease| lease.floor == floor || lease.state == HeldState::Kept;
        self.lease
            .filter(|lease| lease.ends_at_us > now_us && counts(lease))
    }
}

impl<I: Incarnation> Node<I> {
    /// Takes the token of a claim, if the name is free and the token is above the mark. A lease of this very holder and
    /// token is extended, and one of an older token of this holder bars nothing.
    pub(super) fn claim(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> MemberAnswer {
        let member = match self.taking(asked, at) {
            Ok(member) => member,
            Err(absence) => return MemberAnswer::Absent(absence),
        };
        let lease = record.lease(member.floor, at.now_us);
        if lease.is_none_or(|lease| !is_it(&lease, asked)) {
            record.shorten(member, at);
        }
        match record.lease(member.floor, at.now_us) {
            Some(lease) if is_it(&lease, asked) => record.extend(asked, at),
            Some(lease) if lease.holder != asked.holder || lease.state != HeldState::Leased => {
                MemberAnswer::Taken(lease)
            }
            _ if asked.token.get() > member.mark(record) => member.take(record, asked, at),
            _ => MemberAnswer::Low(member.mark(record)),
        }
    }

    /// Extends a lease. Where the name is free, or an older claim of this holder has it, the lease is taken as a late
    /// answer to its claim, if its token is above the mark; else only if a client vouches that a majority has it, and
    /// nothing has happened here since it asked.
    pub(super) fn renew(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        vouched: Option<u64>,
        at: &At<I>,
    ) -> MemberAnswer {
        let member = match self.taking(asked, at) {
            Ok(member) => member,
            Err(absence) => return MemberAnswer::Absent(absence),
        };
        match record.lease(member.floor, at.now_us) {
            Some(lease) if is_it(&lease, asked) => return record.extend(asked, at),
            Some(lease) if !is_older(&lease, asked) => return MemberAnswer::Taken(lease),
            _ => {}
        }
        let mark = member.mark(record);
        match asked.token.get() > mark || vouched == Some(mark) {
            true => member.take(record, asked, at),
            false => MemberAnswer::Low(mark),
        }
    }

    /// Frees the name, if this holder has it under this token or an older one, and keeps it for `ttl_us` unless the
    /// holder was evicted. The mark moves in any case, also at a member that is away: a claim that comes later is too
    /// late. So its incarnation is not checked. One that is another or blank takes no part: the holder has nothing
    /// there.
    pub(super) fn release(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> MemberAnswer {
        let absence = match self.membership {
            Some(_) => self.absence(asked.id, at),
            None => self.look(asked.id, at).err(),
        };
        let member = match (absence, &mut self.membership) {
            (None | Some(Absence::Away(_) | Absence::Closed(_)), Some(member)) => member,
            (Some(absence), _) => return MemberAnswer::Absent(absence),
            (None, None) => unreachable!("one that is in is a member"),
        };
        let lease = record.lease(member.floor, at.now_us).filter(|lease| {
            lease.holder == asked.holder
                && lease.token <= asked.token
                && lease.state != HeldState::Kept
        });
        member.move_mark(record, asked.token);
        let Some(lease) = lease else {
            return MemberAnswer::NotHeld;
        };
        let keeps = asked.ttl_us > 0 && lease.state == HeldState::Leased;
        record.lease = keeps.then_some(MemberLease {
            ends_at_us: at.now_us + asked.ttl_us,
            state: HeldState::Kept,
            ..lease
        });
        MemberAnswer::Yes
    }

    /// Evicts the holder: its lease is extended no more, and the name stays taken for `ttl_us` at least, which is as
    /// long as a renewal that is on its way may count. Where the name is free the evicted lease is put there, so that
    /// none comes.
    pub(super) fn evict(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> MemberAnswer {
        let member = match self.look(asked.id, at) {
            Ok(member) => member,
            Err(absence) => return MemberAnswer::Absent(absence),
        };
        let is_it =
            |lease: &MemberLease| (lease.holder, lease.token) == (asked.holder, asked.token);
        let lease = record.lease(member.floor, at.now_us);
        if let Some(other) = lease.filter(|lease| !is_it(lease)) {
            return MemberAnswer::Taken(other);
        }
        let ends_at_us = lease.map_or(0, |lease| lease.ends_at_us);
        member.take(record, asked, at);
        if let Some(lease) = &mut record.lease {
            lease.ends_at_us = lease.ends_at_us.max(ends_at_us);
            lease.state = HeldState::Evicted;
        }
        MemberAnswer::Yes
    }

    fn taking(
        &mut self,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> Result<&mut MemberRecord<I>, Absence> {
        let member = self.look(asked.id, at)?;
        match asked.ttl_us > member.max_ttl_us {
            true => Err(Absence::TooLong(member.max_ttl_us)),
            false => Ok(member),
        }
    }
}

fn is_it(lease: &MemberLease, asked: &MemberRequest) -> bool {
    lease.holder == asked.holder && lease.token == asked.token && lease.state == HeldState::Leased
}

fn is_older(lease: &MemberLease, asked: &MemberRequest) -> bool {
    lease.holder == asked.holder && lease.token < asked.token && lease.state == HeldState::Leased
}

impl NameState {
    /// A holder's lease lasts no longer from now than the longest ttl: the clock was ahead when it was written. What is
    /// evicted or kept may.
    fn shorten<I>(&mut self, member: &MemberRecord<I>, at: &At<I>) {
        let counted = self.lease(member.floor, at.now_us);
        if counted.is_some_and(|lease| lease.state == HeldState::Leased)
            && let Some(lease) = &mut self.lease
        {
            lease.ends_at_us = lease.ends_at_us.min(at.now_us + member.max_ttl_us);
        }
    }

    /// No request shortens what is left of a lease.
    fn extend<I>(&mut self, asked: &MemberRequest, at: &At<I>) -> MemberAnswer {
        if let Some(lease) = &mut self.lease {
            lease.ends_at_us = lease.ends_at_us.max(at.now_us + asked.ttl_us);
        }
        MemberAnswer::Yes
    }
}

impl<I: Incarnation> MemberRecord<I> {
    /// Returns what `node.lua` tells of it.
    pub(super) fn told(&self, at: &At<I>) -> Membership {
        Membership {
            id: self.id,
            max_ttl_us: self.max_ttl_us,
            is_in: self.incarnation == at.incarnation,
            max: self.max,
            closed_for: self.closed_for,
        }
    }

    /// Returns what a token has to be above.
    pub(super) fn mark(&self, record: &NameState) -> u64 {
        record.mark.max(self.floor)
    }

    fn take(&mut self, record: &mut NameState, asked: &MemberRequest, at: &At<I>) -> MemberAnswer {
        self.move_mark(record, asked.token);
        record.lease = Some(MemberLease {
            holder: asked.holder,
            token: asked.token,
            ends_at_us: at.now_us + asked.ttl_us,
            floor: self.floor,
            state: HeldState::Leased,
        });
        MemberAnswer::Yes
    }

    /// Moves the mark to the token, or by one where it is as high already.
    fn move_mark(&mut self, record: &mut NameState, token: Token) {
        record.mark = token.get().max(self.mark(record) + 1);
        if record.mark > self.max {
            self.max = record.mark + I::AHEAD;
        }
    }
}
