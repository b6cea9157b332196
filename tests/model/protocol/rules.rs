//! The rules as they are built, each of which a search can replace by a wrong one.
//!
//! A wrong rule distorts what goes into a function of the library, or what comes out of it; the library has none.

use leasehold::clock::Instant;
use leasehold::store::Outcome;
use leasehold::store::quorum::protocol::{Absence, Answers, ClaimOutcome, MemberAnswer, adoption};
use leasehold::{ClientId, Holder};

use super::library::LATE_US;
use super::node::{At, MemberRequest, NameState, Node, Writing};

/// A rule that is replaced by a wrong one, or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Adoption asks the others at the beginning of the keep-out.
    AdoptionAsksEarly,
    /// Adoption takes the highest token of fewer than a majority.
    AdoptionAsksFewer,
    /// A yes counts later than one ttl after the send.
    CountedLate,
    /// A renewal takes a free name whatever the mark.
    RepairAnyMark,
    /// A renewal takes a free name where the mark is its token.
    RepairEqualMark,
    /// A renewal does not check the floor.
    RepairBelowFloor,
    /// A member that lost its data does not keep out.
    NoKeepOut,
    /// A loss of data leaves the incarnation as it was.
    LossUnseen,
    /// Claims are not compared with the floor.
    ClaimBelowFloor,
    /// Adoption's write sets what it has, also at a member that is in.
    AdoptionSets,
    /// Adoption's write is for any incarnation.
    AdoptionOfAny,
    /// Adoption does not write a floor.
    NoFloor,
    /// What a member had before its adoption counts after it.
    AdoptionKeepsLeases,
    /// A kept name that was kept before the adoption does not count after it.
    AdoptionForgetsKept,
    /// A release that finds nothing leaves the mark.
    ReleaseLeavesMark,
    /// A release is compared by its holder only.
    ReleaseByHolder,
    /// After taking back, the same token is proposed again.
    SameTokenAgain,
    /// A yes of an earlier round counts.
    AnyYesCounts,
    /// A request shortens a lease.
    Shortens,
    /// Renewals count the yes of a member that is away.
    OutCounts,
    /// An eviction marks the slot and not the lease.
    EvictionBySlot,
    /// An eviction that finds nothing leaves nothing.
    EvictionLeavesNothing,
    /// An evicted lease ends when it would have.
    EvictionNotLonger,
    /// A vouched repair is taken whatever the mark.
    VouchAnyMark,
    /// A holder vouches without a majority.
    VouchAlone,
    /// A holder vouches after its deadline.
    VouchLate,
    /// A repair is taken only where no token above its own was taken since the adoption (the first version's A8).
    VouchBelowMark,
    /// A member takes a token that is equal to its mark.
    EqualTokenTaken,
    /// A member takes a claim although another holder has the name.
    HolderIgnored,
    /// Half of the members are a majority.
    HalfIsEnough,
    /// A member forgets its mark when a lease ends.
    MarkForgotten,
    /// A holder believes in its lease for longer than its ttl.
    BelievesLonger,
}

/// The rules of one search.
#[derive(Debug, Clone, Copy)]
pub struct Rules(pub Option<Wrong>);

/// The deadline of each round in the model, and a moment before it.
const DEADLINE: Instant = Instant::from_nanos(2);
const IN_TIME: Instant = Instant::from_nanos(1);

/// The answers of the members to an adopter.
pub(super) type Looks = [Option<Result<u64, Absence>>];

impl Rules {
    /// Whether this rule is replaced.
    pub fn has(self, wrong: Wrong) -> bool {
        self.0 == Some(wrong)
    }

    pub(super) fn claim(
        self,
        node: &mut Node<u8>,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<u8>,
    ) -> MemberAnswer {
        let before = (node.clone(), *record);
        match self.0 {
            Some(Wrong::HolderIgnored) => {
                record.lease = record.lease.filter(|lease| lease.holder == asked.holder);
            }
            Some(Wrong::EqualTokenTaken) if record.mark == asked.token.get() => record.mark -= 1,
            Some(Wrong::ClaimBelowFloor) => lower_the_floor(node, record),
            _ => {}
        }
        let answer = node.claim(record, asked, at);
        if self.has(Wrong::ClaimBelowFloor) {
            restore_the_floor(node, record, &before.0);
        } else if answer != MemberAnswer::Yes {
            *record = before.1;
        }
        answer
    }

    pub(super) fn renew(
        self,
        node: &mut Node<u8>,
        record: &mut NameState,
        asked: &MemberRequest,
        vouched: Option<u64>,
        at: &At<u8>,
    ) -> MemberAnswer {
        let mut at = *at;
        let (mark, floor, incarnation) = match &node.membership {
            Some(member) => (member.mark(record), member.floor, member.incarnation),
            None => (0, 0, 0),
        };
        if self.has(Wrong::OutCounts) && incarnation > 0 {
            at.incarnation = incarnation;
        }
        let now = Some(mark);
        let token = asked.token.get();
        let since_adoption = if record.mark > floor { record.mark } else { 0 };
        let vouched = match (self.0, vouched) {
            (Some(Wrong::RepairAnyMark), _) => now,
            (Some(Wrong::RepairEqualMark), _) if mark == token => now,
            (Some(Wrong::RepairBelowFloor), _) if since_adoption < token => now,
            (Some(Wrong::VouchAnyMark), Some(_)) => now,
            (Some(Wrong::VouchBelowMark), Some(_)) if since_adoption >= token => None,
            (_, vouched) => vouched,
        };
        node.renew(record, asked, vouched, &at)
    }

    pub(super) fn renew_unvouched(
        self,
        node: &mut Node<u8>,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<u8>,
    ) -> MemberAnswer {
        self.renew(node, record, asked, None, at)
    }

    pub(super) fn release(
        self,
        node: &mut Node<u8>,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<u8>,
    ) -> MemberAnswer {
        let mut asked = *asked;
        let before = (record.mark, node.clone());
        if let (true, Some(lease)) = (self.has(Wrong::ReleaseByHolder), record.lease) {
            asked.token = asked.token.max(lease.token);
        }
        let released = node.release(record, &asked, at);
        if self.has(Wrong::ReleaseLeavesMark) && released != MemberAnswer::Yes {
            (record.mark, *node) = before;
        }
        released
    }

    pub(super) fn evict(
        self,
        node: &mut Node<u8>,
        record: &mut NameState,
        asked: &MemberRequest,
        at: &At<u8>,
    ) -> MemberAnswer {
        let before = record.lease;
        let answer = node.evict(record, asked, at);
        let is_left_out = match self.0 {
            Some(Wrong::EvictionBySlot) => true,
            Some(Wrong::EvictionLeavesNothing) => before.is_none(),
            _ => false,
        };
        if is_left_out {
            record.lease = before;
        }
        answer
    }

    pub(super) fn adopt(self, node: &mut Node<u8>, writing: &Writing<u8>, at: &At<u8>) {
        let (mut writing, mut at) = (writing.clone(), *at);
        let before = node.membership.clone();
        match self.0 {
            Some(Wrong::AdoptionOfAny) => {
                writing.found = at.incarnation;
                at.now_us = LATE_US;
            }
            Some(Wrong::AdoptionSets) => node.membership = None,
            _ => {}
        }
        match (self.0, node.adopt(&writing, &at)) {
            (_, Err(_)) => node.membership = before,
            (Some(Wrong::NoFloor), Ok(())) => {
                if let Some(member) = &mut node.membership {
                    let kept = before.map_or((0, 0), |before| (before.max, before.floor));
                    (member.max, member.floor) = kept;
                }
            }
            _ => {}
        }
    }

    pub(super) fn is_granted(self, members: usize, yes: usize, is_late: bool) -> bool {
        let members = self.counted(members);
        let mut round: Answers = Answers::new(members, DEADLINE);
        let is_late = is_late && !self.has(Wrong::CountedLate);
        for member in 0..yes.min(members) {
            round.count(member, MemberAnswer::Yes, moment(is_late));
        }
        round.close() == ClaimOutcome::Granted
    }

    pub(super) fn is_renewed(self, members: usize, yes: usize, is_late: bool) -> bool {
        let members = self.counted(members);
        let holder = Holder::new(ClientId::from_u128(0), 0);
        let mut round: Answers = Answers::new(members, DEADLINE);
        for member in 0..yes.min(members) {
            round.count(member, MemberAnswer::Yes, moment(is_late));
        }
        matches!(round.renewing(holder), Some(Outcome::Renewed))
    }

    fn counted(self, members: usize) -> usize {
        match self.has(Wrong::HalfIsEnough) {
            true => members - 2,
            false => members,
        }
    }

    pub(super) fn highest(self, looks: &Looks, clock_us: u64) -> Option<u64> {
        if self.has(Wrong::AdoptionAsksFewer) {
            let told = looks.iter().flatten();
            return told.filter_map(|look| look.as_ref().ok().copied()).max();
        }
        let told: Vec<_> = looks.iter().flatten().copied().collect();
        adoption(&told, looks.len(), clock_us)
    }
}

const fn moment(is_late: bool) -> Instant {
    if is_late { DEADLINE } else { IN_TIME }
}

/// Makes the floor 0, for its lease too. A lease under another floor does not count in any case.
fn lower_the_floor(node: &mut Node<u8>, record: &mut NameState) {
    if let Some(member) = &mut node.membership {
        record.lease = record.lease.filter(|lease| lease.floor == member.floor);
        member.floor = 0;
    }
    if let Some(lease) = &mut record.lease {
        lease.floor = 0;
    }
}

fn restore_the_floor(node: &mut Node<u8>, record: &mut NameState, before: &Node<u8>) {
    let floor = before.membership.as_ref().map_or(0, |member| member.floor);
    if let Some(member) = &mut node.membership {
        member.floor = floor;
    }
    if let Some(lease) = &mut record.lease {
        lease.floor = floor;
    }
}
