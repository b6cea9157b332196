//! Bugs on purpose: those of a store, and of what a client gets from its system. A simulator that never caught a bug proves
//! nothing. The bugs of the core are rows of `tests/mutants/table.toml`.

use super::ledger::Promise;

/// What is wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// A renewal sets the row, whether it is there or not.
    RenewalCreates,
    /// A renewal compares the holder and not the token.
    RenewalIgnoresTheToken,
    /// Asked again by its holder, the store answers the token without the full ttl.
    ReanswerKeepsTheOldEnd,
    /// The store grants again at once after it came back without its data, or was promoted.
    NoKeepOut,
    /// It keeps out for less than the ttl of a lease that it may have forgotten.
    KeepOutShorterThanATtl,
    /// While it keeps out, it refuses what it should renew.
    KeepOutRefusesRenewals,
    /// After a fork both processes draw the same holders.
    HolderReusedAfterFork,
}

impl Bug {
    pub(super) const ALL: [Self; 7] = [
        Self::RenewalCreates,
        Self::RenewalIgnoresTheToken,
        Self::ReanswerKeepsTheOldEnd,
        Self::NoKeepOut,
        Self::KeepOutShorterThanATtl,
        Self::KeepOutRefusesRenewals,
        Self::HolderReusedAfterFork,
    ];

    /// The promise that it breaks; others that it breaks earlier are passed over, so that the harm itself is seen.
    pub(super) fn breaks(self) -> Promise {
        match self {
            Self::RenewalCreates => Promise::NothingIsCreatedByARenewal,
            Self::RenewalIgnoresTheToken => Promise::NoRenewalOfALaterGrant,
            Self::ReanswerKeepsTheOldEnd => Promise::NoYesWhileTheStoreCouldGrantToAnother,
            Self::NoKeepOut | Self::KeepOutShorterThanATtl => Promise::NoTwoHolders,
            Self::KeepOutRefusesRenewals => Promise::KeepOutEndsNoLease,
            Self::HolderReusedAfterFork => Promise::TokensRise,
        }
    }
}
