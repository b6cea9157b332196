//! A member's work on a request for a name: each function is what one script does.
//!
//! The slot's mark is the highest token that was taken, released or evicted in it, and it *moves* with every change of
//! a name in the slot but an extension. So it says two things: which claims are too low, and whether anything has
//! happened since it was last told.

use super::node::{Absence, At, MemberId, Membership, Node};
use crate::holder::Holder;
use crate::token::Token;

/// The state that a member keeps of a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameState {
    /// The mark of the name's slot; 0 where there is none. It has no expiry.
    pub mark: u64,
    /// The lease. It has an expiry.
    pub lease: Option<MemberLease>,
}

/// A lease at one member. It counts for the quorum only where a majority has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberLease {
    /// The holder.
    pub holder: Holder,
    /// The token that was taken.
    pub token: Token,
    /// When it ends, by the member's clock.
    pub ends_at_us: u64,
    /// The floor under which it was taken.
    pub floor: u64,
    /// The standing of the lease.
    pub standing: Standing,
}

/// The standing of a lease at a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Its holder has it. Exits: Evicted, Kept, and its end.
    Held,
    /// An operator evicted the holder. The name stays taken. Exits: its end, and a release.
    Evicted,
    /// The holder released it, and the name stays taken for a while. Exits: its end.
    Kept,
}

/// A request for a name: a claim, a renewal, a release or an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberRequest {
    /// The member that is meant.
    pub id: MemberId,
    /// The holder.
    pub holder: Holder,
    /// The token that the holder proposes or has.
    pub token: Token,
    /// The time from now: how long a released name is kept, and an evicted one at least.
    pub ttl_us: u64,
}

/// A member's answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberAnswer<I> {
    /// Done: the lease is there, for the ttl from now at least (evicted, for an eviction).
    Yes,
    /// The name is taken, by this lease.
    Taken(MemberLease),
    /// The name is free, and the token is not above this mark. Told back by a client that may vouch for the lease, the
    /// mark says that nothing has happened in the slot since.
    Low(u64),
    /// The member takes no part.
    Away(Absence<I>),
}

impl NameState {
    /// Returns the lease, if it is not over and was taken under this floor.
    pub fn lease(&self, floor: u64, now_us: u64) -> Option<MemberLease> {
        let is_live = |lease: &MemberLease| lease.ends_at_us > now_us && lease.floor == floor;
        self.lease.filter(is_live)
    }
}

impl<I: Clone + Eq> Node<I> {
    /// Takes the token of a claim, if the name is free and the token is above the mark. A lease of this very holder and
    /// token is extended, and one of an older token of this holder bars nothing.
    pub fn claim(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> MemberAnswer<I> {
        let member = match self.taking(asked, at) {
            Ok(member) => member,
            Err(absence) => return MemberAnswer::Away(absence),
        };
        match record.lease(member.floor, at.now_us) {
            Some(lease) if lease.is(asked) => record.extend(asked, at),
            Some(lease) if lease.holder != asked.holder || lease.standing != Standing::Held => {
                MemberAnswer::Taken(lease)
            }
            _ if asked.token.get() > member.mark(record) => member.take(record, asked, at),
            _ => MemberAnswer::Low(member.mark(record)),
        }
    }

    /// Extends a lease. Where the name is free the lease is taken as a late answer to its claim, if its token is above
    /// the mark; else only if a client vouches that a majority has it, and nothing has happened here since it asked.
    pub fn renew(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        vouched: Option<u64>,
        at: &At<I>,
    ) -> MemberAnswer<I> {
        let member = match self.taking(asked, at) {
            Ok(member) => member,
            Err(absence) => return MemberAnswer::Away(absence),
        };
        match record.lease(member.floor, at.now_us) {
            Some(lease) if lease.is(asked) => return record.extend(asked, at),
            Some(lease) => return MemberAnswer::Taken(lease),
            None => {}
        }
        let mark = member.mark(record);
        match asked.token.get() > mark || vouched == Some(mark) {
            true => member.take(record, asked, at),
            false => MemberAnswer::Low(mark),
        }
    }

    /// Frees the name, if this holder has it under this token or an older one, and keeps it for `ttl_us` unless the
    /// holder was evicted. The mark moves in any case, also at a member that is out: a claim that comes later is too
    /// late. Returns whether the name was freed.
    ///
    /// # Errors
    /// The member is another one or blank: the holder has nothing there.
    pub fn release(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> Result<bool, Absence<I>> {
        let absence = self.look(asked.id, at).err();
        let member = match (absence, &mut self.membership) {
            (None | Some(Absence::Out(_) | Absence::Closed(_)), Some(member)) => member,
            (Some(absence), _) => return Err(absence),
            (None, None) => unreachable!("one that is in is a member"),
        };
        let lease = record.lease(member.floor, at.now_us).filter(|lease| {
            lease.holder == asked.holder
                && lease.token <= asked.token
                && lease.standing != Standing::Kept
        });
        member.move_mark(record, asked.token);
        if let Some(lease) = lease {
            let keeps = asked.ttl_us > 0 && lease.standing == Standing::Held;
            record.lease = keeps.then_some(MemberLease {
                ends_at_us: at.now_us + asked.ttl_us,
                standing: Standing::Kept,
                ..lease
            });
        }
        Ok(lease.is_some())
    }

    /// Evicts the holder: its lease is extended no more, and the name stays taken for `ttl_us` at least, which is as
    /// long as a renewal that is on its way may count. Where the name is free the evicted lease is put there, so that
    /// none comes.
    pub fn evict(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> MemberAnswer<I> {
        let member = match self.look(asked.id, at) {
            Ok(member) => member,
            Err(absence) => return MemberAnswer::Away(absence),
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
            lease.standing = Standing::Evicted;
        }
        MemberAnswer::Yes
    }

    fn taking(
        &mut self,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> Result<&mut Membership<I>, Absence<I>> {
        let member = self.look(asked.id, at)?;
        match asked.ttl_us > member.max_ttl_us {
            true => Err(Absence::TooLong(member.max_ttl_us)),
            false => Ok(member),
        }
    }
}

impl MemberLease {
    fn is(&self, asked: &MemberRequest) -> bool {
        self.holder == asked.holder && self.token == asked.token && self.standing == Standing::Held
    }
}

impl NameState {
    /// No request shortens what is left of a lease.
    fn extend<I>(&mut self, asked: &MemberRequest, at: &At<I>) -> MemberAnswer<I> {
        if let Some(lease) = &mut self.lease {
            lease.ends_at_us = lease.ends_at_us.max(at.now_us + asked.ttl_us);
        }
        MemberAnswer::Yes
    }
}

impl<I: Clone> Membership<I> {
    /// Returns what a token has to be above.
    pub fn mark(&self, record: &NameState) -> u64 {
        record.mark.max(self.floor)
    }

    fn take(
        &mut self,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<I>,
    ) -> MemberAnswer<I> {
        self.move_mark(record, asked.token);
        record.lease = Some(MemberLease {
            holder: asked.holder,
            token: asked.token,
            ends_at_us: at.now_us + asked.ttl_us,
            floor: self.floor,
            standing: Standing::Held,
        });
        MemberAnswer::Yes
    }

    /// Moves the mark to the token, or by one where it is as high already.
    fn move_mark(&mut self, record: &mut NameState, token: Token) {
        record.mark = token.get().max(self.mark(record) + 1);
        self.max = self.max.max(record.mark);
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Writing;
    use super::*;
    use crate::holder::ClientId;

    const ID: MemberId = MemberId {
        quorum: 7,
        index: 0,
        of: 3,
    };

    const fn at(now_us: u64) -> At<u8> {
        At {
            now_us,
            incarnation: 1,
        }
    }

    fn asked(holder: u64, token: u64, ttl_us: u64) -> MemberRequest {
        MemberRequest {
            id: ID,
            holder: Holder::new(ClientId::from_u128(0), holder),
            token: Token::new(token).expect("within the limits"),
            ttl_us,
        }
    }

    /// A member with a floor of 1.
    fn member() -> (Node<u8>, NameState) {
        let mut node = Node::blank();
        let writing = Writing {
            id: ID,
            max_ttl_us: 1_000,
            found: 1,
            highest: 0,
        };
        node.reserve(3);
        node.open(&writing, 3, &at(0)).expect("it is blank");
        (node, NameState::default())
    }

    #[test]
    fn a_claim_is_taken_above_the_mark_where_the_name_is_free() {
        let (mut node, mut record) = member();
        assert_eq!(
            node.claim(&mut record, &asked(1, 1, 100), &at(0)),
            MemberAnswer::Low(1)
        );
        assert_eq!(
            node.claim(&mut record, &asked(1, 5, 100), &at(0)),
            MemberAnswer::Yes
        );
        let taken = node.claim(&mut record, &asked(2, 6, 100), &at(99));
        assert!(matches!(taken, MemberAnswer::Taken(lease) if lease.token.get() == 5));
        assert_eq!(
            node.claim(&mut record, &asked(2, 5, 100), &at(100)),
            MemberAnswer::Low(5)
        );
        assert_eq!(
            node.claim(&mut record, &asked(2, 6, 100), &at(100)),
            MemberAnswer::Yes
        );
    }

    #[test]
    fn an_older_token_of_the_same_holder_bars_nothing() {
        let (mut node, mut record) = member();
        assert_eq!(
            node.claim(&mut record, &asked(1, 5, 100), &at(0)),
            MemberAnswer::Yes
        );
        assert_eq!(
            node.claim(&mut record, &asked(1, 6, 100), &at(0)),
            MemberAnswer::Yes
        );
        assert_eq!(
            node.release(&mut record, &asked(1, 5, 0), &at(0)),
            Ok(false)
        );
        assert_eq!(node.release(&mut record, &asked(1, 6, 0), &at(0)), Ok(true));
    }

    #[test]
    fn nothing_shortens_a_lease() {
        let (mut node, mut record) = member();
        let _ = node.claim(&mut record, &asked(1, 5, 100), &at(0));
        let shorter = asked(1, 5, 10);
        assert_eq!(
            node.renew(&mut record, &shorter, None, &at(0)),
            MemberAnswer::Yes
        );
        assert_eq!(record.lease.expect("taken").ends_at_us, 100);
        assert_eq!(node.evict(&mut record, &shorter, &at(0)), MemberAnswer::Yes);
        assert_eq!(record.lease.expect("evicted").ends_at_us, 100);
    }

    #[test]
    fn a_vouched_lease_is_taken_unless_something_has_happened() {
        let (mut node, mut record) = member();
        let _ = node.claim(&mut record, &asked(2, 8, 100), &at(0));
        let _ = node.release(&mut record, &asked(2, 8, 0), &at(1));
        let renewal = asked(1, 5, 100);
        assert_eq!(
            node.renew(&mut record, &renewal, None, &at(2)),
            MemberAnswer::Low(9)
        );
        let _ = node.release(&mut record, &renewal, &at(3));
        assert_eq!(
            node.renew(&mut record, &renewal, Some(9), &at(4)),
            MemberAnswer::Low(10)
        );
        assert_eq!(
            node.renew(&mut record, &renewal, Some(10), &at(4)),
            MemberAnswer::Yes
        );
    }

    #[test]
    fn an_evicted_lease_is_there_also_where_there_was_none_and_is_not_extended() {
        let (mut node, mut record) = member();
        assert_eq!(
            node.evict(&mut record, &asked(1, 5, 100), &at(0)),
            MemberAnswer::Yes
        );
        let answer = node.renew(&mut record, &asked(1, 5, 100), None, &at(1));
        assert!(
            matches!(answer, MemberAnswer::Taken(lease) if lease.standing == Standing::Evicted)
        );
        assert_eq!(node.release(&mut record, &asked(1, 5, 0), &at(2)), Ok(true));
    }

    #[test]
    fn a_kept_name_is_taken_until_its_time_is_over() {
        let (mut node, mut record) = member();
        let _ = node.claim(&mut record, &asked(1, 5, 100), &at(0));
        assert_eq!(
            node.release(&mut record, &asked(1, 5, 50), &at(0)),
            Ok(true)
        );
        assert_eq!(
            node.release(&mut record, &asked(1, 5, 0), &at(0)),
            Ok(false)
        );
        let taken = node.claim(&mut record, &asked(2, 9, 100), &at(49));
        assert!(matches!(taken, MemberAnswer::Taken(lease) if lease.standing == Standing::Kept));
        assert_eq!(
            node.claim(&mut record, &asked(2, 9, 100), &at(50)),
            MemberAnswer::Yes
        );
    }

    #[test]
    fn a_ttl_longer_than_the_longest_is_refused() {
        let (mut node, mut record) = member();
        let answer = node.claim(&mut record, &asked(1, 5, 1_001), &at(0));
        assert_eq!(answer, MemberAnswer::Away(Absence::TooLong(1_000)));
    }
}
