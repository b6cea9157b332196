//! Bugs on purpose: those of the core, which it has behind `internals`, and three of a store. A simulator that never caught a
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
}

impl Bug {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let in_core = InCore::ALL.into_iter().map(Self::Core);
        in_core.chain([
            Self::RenewalCreates,
            Self::RenewalIgnoresTheToken,
            Self::ReanswerKeepsTheOldEnd,
        ])
    }

    pub(super) fn of_the_core(self) -> Option<InCore> {
        match self {
            Self::Core(bug) => Some(bug),
            Self::RenewalCreates | Self::RenewalIgnoresTheToken | Self::ReanswerKeepsTheOldEnd => {
                None
            }
        }
    }

    /// The promise that it breaks; others that it breaks earlier are passed over, so that the harm itself is seen.
    pub(super) fn breaks(self) -> Promise {
        match self {
            Self::Core(bug) => broken_by(bug),
            Self::RenewalCreates => Promise::NothingIsCreatedByARenewal,
            Self::RenewalIgnoresTheToken => Promise::NoRenewalOfALaterGrant,
            Self::ReanswerKeepsTheOldEnd => Promise::NoYesWhileTheStoreCouldGrantToAnother,
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
