//! Bugs on purpose, for the project's own tests: each leaves out one rule of the protocol. A model or a simulator that
//! never catches a bug proves nothing.
//!
//! Which of them a quorum has is a value that is given to it when it is made. Without the feature `internals` there is
//! nothing to give: every question below is answered no when the crate is compiled.

#[cfg(feature = "internals")]
mod chosen;
#[cfg(not(feature = "internals"))]
mod none;

use std::time::Duration;

#[cfg(feature = "internals")]
pub use self::chosen::Planted;
#[cfg(not(feature = "internals"))]
pub use self::none::Planted;
use super::{NextProposal, Proposal, Tenure};
use crate::holder::Holder;
use crate::token::Token;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuorumBug {
    /// Each member counts on its own, and the highest number of a majority is the token.
    MembersCount,
    /// The same, with the counters lifted to the members' clocks.
    MembersCountByClock,
    /// A member takes the token again that it took last.
    EqualTokenTaken,
    /// A member takes the last token again without comparing its holder.
    HolderOfTheLastIgnored,
    /// A member does not look who has the name.
    NoOwnerCheck,
    /// A yes to an earlier proposal counts for the present one.
    AnyYesCounts,
    /// Half of the members count as a majority.
    HalfIsAMajority,
    /// What is taken back is compared by its holder, not by its token.
    TakenBackByHolder,
    /// After taking back, the same token is proposed again.
    SameTokenAfterTakingBack,
    /// A grant that is asked for again without success is taken back like a try.
    GrantTakenBack,
    /// A holder that lost its grant frees it, too, when it takes back what it proposed after it.
    LostGrantTakenBack,
    /// A grant that is asked for again counts as lost as soon as one member does not have it.
    LostWithoutAMajority,
    /// A renewal does not compare the token.
    RenewalIgnoresTheToken,
    /// A renewal creates the lease where it is missing.
    RenewalCreates,
    /// A lease is put back whatever was granted since.
    RepairUnchecked,
    /// A holder that has a grant proposes a fresh token when it asks again.
    FreshWhenAskedAgain,
    /// A member that lost its data goes on as if nothing had been lost.
    LossIgnored,
    /// A member that lost its data keeps out, but does not lift its tokens.
    LossWithoutFloor,
    /// A member that lost its data lifts its tokens, but does not keep out.
    LossWithoutKeepOut,
    /// A member that lost its data keeps out for half of the longest ttl.
    KeepOutTooShort,
    /// A member that lost its data lifts its tokens by less than they may have been in front of its clock.
    FloorTooLow,
    /// A counter is forgotten before the clock has passed it.
    CounterForgottenEarly,
    /// A member that comes back with an old copy of its data takes it for its data.
    OldCopyTrusted,
    /// A renewal adds the ttl to what is left of the lease.
    RenewalAddsTheTtl,
    /// After an eviction a member takes the last token of the evicted holder again.
    EvictionKeepsTheHolder,
    /// The term of a lease is counted from the reply.
    DeadlineFromTheReply,
    /// A holder believes in its lease for as long as the members do.
    NoMargin,
}

/// In a member.
impl Planted {
    /// Whether this lease keeps the proposal out.
    pub(super) fn blocks(self, tenure: &Tenure, proposal: &Proposal) -> bool {
        let is_own = tenure.holder == Some(proposal.holder) && !tenure.is_evicted;
        !is_own && !self.has(QuorumBug::NoOwnerCheck)
    }

    /// Whether members count on their own.
    pub(super) const fn nodes_mint(self) -> bool {
        self.has(QuorumBug::MembersCount) || self.has(QuorumBug::MembersCountByClock)
    }

    pub(super) fn minted(self, proposed: Token, last: Option<u64>, now_us: u64) -> Token {
        let last = match self.has(QuorumBug::MembersCountByClock) {
            true => last.unwrap_or(now_us).max(now_us),
            false => last.unwrap_or(now_us),
        };
        match self.nodes_mint() {
            true => Token::new(last + 1).unwrap_or(proposed),
            false => proposed,
        }
    }

    pub(super) fn is_again(self, by: Option<(Holder, Token)>, proposal: &Proposal) -> bool {
        by.is_some_and(|(holder, token)| {
            token == proposal.token
                && (holder == proposal.holder || self.has(QuorumBug::HolderOfTheLastIgnored))
        })
    }

    pub(super) const fn is_above(self, token: u64, floor: u64) -> bool {
        token > floor || token == floor && self.has(QuorumBug::EqualTokenTaken)
    }

    pub(super) const fn repairs(self, may: bool) -> bool {
        may || self.has(QuorumBug::RepairUnchecked)
    }

    pub(super) const fn in_front(self, us: u64) -> u64 {
        match self.has(QuorumBug::CounterForgottenEarly) {
            true => 0,
            false => us,
        }
    }

    /// Returns from when the ttl of a renewal is counted.
    pub(super) const fn extended_from(self, now_us: u64, ends_at_us: u64) -> u64 {
        match self.has(QuorumBug::RenewalAddsTheTtl) {
            true => ends_at_us,
            false => now_us,
        }
    }

    /// Returns for how long a member keeps out after a loss of its data, and by how much it lifts its tokens.
    pub(super) fn after_a_loss(
        self,
        keep_out: Duration,
        ahead: Duration,
    ) -> (Duration, Option<Duration>) {
        let is_ignored = self.has(QuorumBug::LossIgnored);
        let keep_out = if is_ignored || self.has(QuorumBug::LossWithoutKeepOut) {
            Duration::ZERO
        } else if self.has(QuorumBug::KeepOutTooShort) {
            keep_out / 2
        } else {
            keep_out
        };
        let ahead = if is_ignored || self.has(QuorumBug::LossWithoutFloor) {
            None
        } else if self.has(QuorumBug::FloorTooLow) {
            Some(ahead / 1_000)
        } else {
            Some(ahead)
        };
        (keep_out, ahead)
    }
}

/// In a client.
impl Planted {
    pub(super) fn majority(self, majority: fn(usize) -> usize, members: usize) -> usize {
        match self.has(QuorumBug::HalfIsAMajority) {
            true => members.div_ceil(2),
            false => majority(members),
        }
    }

    pub(super) fn granted(self, proposed: Token, taken: impl Iterator<Item = Token>) -> Token {
        match self.nodes_mint() {
            true => taken.max().unwrap_or(proposed),
            false => proposed,
        }
    }

    /// Returns the least token that follows what this holder proposed before.
    pub(super) const fn above(self, next: NextProposal) -> u64 {
        match next {
            NextProposal::Fresh => 0,
            NextProposal::Above(token) | NextProposal::Again(token) => {
                token.get() + !self.has(QuorumBug::SameTokenAfterTakingBack) as u64
            }
        }
    }

    pub(super) const fn kept_when_taking_back(self, granted: Option<Token>) -> Option<Token> {
        match self.has(QuorumBug::LostGrantTakenBack) {
            true => None,
            false => granted,
        }
    }

    pub(super) const fn is_remembered_as_granted(self, is_granted: bool) -> bool {
        is_granted && !self.has(QuorumBug::FreshWhenAskedAgain)
    }
}
