//! Bugs on purpose: those of the core, which it has behind `internals`, and those of a store. A simulator that never caught a
//! bug proves nothing.

use leasehold::internals::schedule::planted::Bug as InCore;

use super::ledger::Promise;

/// What is wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    Core(InCore),
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
}

/// Those of a store.
const IN_STORE: [Bug; 6] = [
    Bug::RenewalCreates,
    Bug::RenewalIgnoresTheToken,
    Bug::ReanswerKeepsTheOldEnd,
    Bug::NoKeepOut,
    Bug::KeepOutShorterThanATtl,
    Bug::KeepOutRefusesRenewals,
];

impl Bug {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let in_core = InCore::ALL.into_iter().map(Self::Core);
        in_core.chain(IN_STORE)
    }

    pub(super) fn of_the_core(self) -> Option<InCore> {
        match self {
            Self::Core(bug) => Some(bug),
            _ => None,
        }
    }

    /// The promise that it breaks; others that it breaks earlier are passed over, so that the harm itself is seen.
    pub(super) fn breaks(self) -> Promise {
        match self {
            Self::Core(bug) => broken_by(bug),
            Self::RenewalCreates => Promise::NothingIsCreatedByARenewal,
            Self::RenewalIgnoresTheToken => Promise::NoRenewalOfALaterGrant,
            Self::ReanswerKeepsTheOldEnd => Promise::NoYesWhileTheStoreCouldGrantToAnother,
            Self::NoKeepOut | Self::KeepOutShorterThanATtl => Promise::NoTwoHolders,
            Self::KeepOutRefusesRenewals => Promise::KeepOutEndsNoLease,
        }
    }
}

fn broken_by(bug: InCore) -> Promise {
    match bug {
        InCore::DeadlineFromTheReply | InCore::NoMargin | InCore::UnknownAsRenewed => {
            Promise::NoYesWhileTheStoreCouldGrantToAnother
        }
        InCore::LateReplyRevives => Promise::ALossIsFinal,
        InCore::UnknownAsLost | InCore::JitterPastTheDeadline | InCore::OneErrorFailsItsBatch => {
            Promise::TransientFaultsLoseNothing
        }
        InCore::NotHeldIsFinal | InCore::FailedIsAnswered => Promise::ADoubtfulClaimIsCleaned,
        InCore::LateGrantHeld => Promise::NoGrantWithLittleLeft,
        InCore::FallenTokenHeld => Promise::NoGrantBelowWhatWasSeen,
        InCore::FloorOfTheFirstAttempt => Promise::EachAttemptCarriesTheFloor,
        InCore::WithdrawAfterRelease => Promise::NoRenewalAfterAnExit,
        InCore::ReleaseAtLoss => Promise::NoReleaseWhileTheGuardIsThere,
        InCore::TurnSkipsALease => Promise::NoLeaseForgotten,
        InCore::LimitsForgotten => Promise::LimitsOfTheHolderAreKept,
        InCore::HolderReusedAfterFork => Promise::TokensRise,
        InCore::OneQueueForAllShards => Promise::AHungServerDelaysNoOther,
    }
}
