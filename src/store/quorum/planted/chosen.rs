//! The bug that was given to a quorum.

use super::QuorumBug;

/// What is wrong in a quorum; by default, nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Planted(Option<QuorumBug>);

impl Planted {
    /// Returns a quorum's bug.
    pub const fn new(bug: Option<QuorumBug>) -> Self {
        Self(bug)
    }

    /// Whether this is wrong.
    pub const fn has(self, bug: QuorumBug) -> bool {
        match self.0 {
            Some(planted) => planted as u8 == bug as u8,
            None => false,
        }
    }
}

impl QuorumBug {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::MembersCount,
        Self::MembersCountByClock,
        Self::EqualTokenTaken,
        Self::HolderOfTheLastIgnored,
        Self::NoOwnerCheck,
        Self::AnyYesCounts,
        Self::HalfIsAMajority,
        Self::TakenBackByHolder,
        Self::SameTokenAfterTakingBack,
        Self::GrantTakenBack,
        Self::LostGrantTakenBack,
        Self::LostWithoutAMajority,
        Self::RenewalIgnoresTheToken,
        Self::RenewalCreates,
        Self::RepairUnchecked,
        Self::FreshWhenAskedAgain,
        Self::LossIgnored,
        Self::LossWithoutFloor,
        Self::LossWithoutKeepOut,
        Self::KeepOutTooShort,
        Self::FloorTooLow,
        Self::CounterForgottenEarly,
        Self::OldCopyTrusted,
        Self::RenewalAddsTheTtl,
        Self::EvictionKeepsTheHolder,
        Self::DeadlineFromTheReply,
        Self::NoMargin,
    ];
}
