//! Bugs on purpose: each is one that a lease library has had, or that this one could get. A simulator that never caught
//! a bug proves nothing.

use leasehold::ClientId;
use leasehold::clock::Instant;
use leasehold::internals::schedule::Batch;
use leasehold::{Holder, LossReason};

use super::ledger::Promise;
use super::process::Process;
use super::stage::Stage;
use super::store::Verdict;

/// What is wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// The term is counted from the reply instead of from the send.
    DeadlineFromTheReply,
    /// The holder believes in the lease for as long as the store does.
    NoMargin,
    /// A renewal that is confirmed after the loss makes the lease count again.
    LateReplyRevives,
    /// No answer is taken for a yes.
    UnknownAsRenewed,
    /// No answer is taken for a no.
    UnknownAsLost,
    /// A renewal sets the row, whether it is there or not.
    RenewalCreates,
    /// Asked again by its holder, the store answers the token without the full ttl.
    ReanswerKeepsTheOldEnd,
    /// A claim is forgotten although an attempt of it may yet be carried out.
    NotHeldIsFinal,
    /// The release is sent while the renewals go on.
    WithdrawAfterRelease,
    /// The release is sent when the lease is lost, not when its guard is gone.
    ReleaseAtLoss,
    /// A renewal is put off by up to a whole ttl.
    JitterPastTheDeadline,
    /// One key that fails makes its whole batch count as refused.
    OneErrorFailsItsBatch,
    /// A turn forgets one of the leases that are due.
    TurnSkipsALease,
    /// What the holder allows itself is not heeded.
    LimitsForgotten,
    /// After a fork both processes draw the same holders.
    HolderReusedAfterFork,
}

impl Bug {
    pub(super) const ALL: [Self; 15] = [
        Self::DeadlineFromTheReply,
        Self::NoMargin,
        Self::LateReplyRevives,
        Self::UnknownAsRenewed,
        Self::UnknownAsLost,
        Self::RenewalCreates,
        Self::ReanswerKeepsTheOldEnd,
        Self::NotHeldIsFinal,
        Self::WithdrawAfterRelease,
        Self::ReleaseAtLoss,
        Self::JitterPastTheDeadline,
        Self::OneErrorFailsItsBatch,
        Self::TurnSkipsALease,
        Self::LimitsForgotten,
        Self::HolderReusedAfterFork,
    ];

    /// The promise that it breaks; others that it breaks earlier are passed over, so that the harm itself is seen.
    pub(super) fn breaks(self) -> Promise {
        match self {
            Self::DeadlineFromTheReply
            | Self::NoMargin
            | Self::UnknownAsRenewed
            | Self::ReanswerKeepsTheOldEnd => Promise::NoYesWhileTheStoreCouldGrantToAnother,
            Self::LateReplyRevives => Promise::ALossIsFinal,
            Self::UnknownAsLost | Self::JitterPastTheDeadline | Self::OneErrorFailsItsBatch => {
                Promise::TransientFaultsLoseNothing
            }
            Self::RenewalCreates => Promise::NothingIsCreatedByARenewal,
            Self::NotHeldIsFinal => Promise::ADoubtfulClaimIsCleaned,
            Self::WithdrawAfterRelease => Promise::NoRenewalAfterAnExit,
            Self::ReleaseAtLoss => Promise::NoReleaseWhileTheGuardIsThere,
            Self::TurnSkipsALease => Promise::NoLeaseForgotten,
            Self::LimitsForgotten => Promise::LimitsOfTheHolderAreKept,
            Self::HolderReusedAfterFork => Promise::TokensRise,
        }
    }
}

/// The moment from which a confirmed request counts.
pub(super) fn counted_from(stage: &Stage, sent_at: Instant, seen_at: Instant) -> Instant {
    if stage.plan.has(Bug::DeadlineFromTheReply) {
        seen_at
    } else {
        sent_at
    }
}

/// What is made of a batch's verdicts before they are taken in.
pub(super) fn distort(stage: &Stage, verdicts: &mut [Verdict]) {
    let replace_unknown = |verdicts: &mut [Verdict], by| {
        for verdict in verdicts
            .iter_mut()
            .filter(|verdict| **verdict == Verdict::Unknown)
        {
            *verdict = by;
        }
    };
    match stage.plan.bug {
        Some(Bug::UnknownAsRenewed) => replace_unknown(verdicts, Verdict::Renewed),
        Some(Bug::UnknownAsLost) => replace_unknown(verdicts, Verdict::Refused),
        Some(Bug::OneErrorFailsItsBatch) if verdicts.contains(&Verdict::Unknown) => {
            verdicts.fill(Verdict::Refused);
        }
        _ => {}
    }
}

/// The holder of a process's next claim.
pub(super) fn holder(stage: &mut Stage, process: &Process, claims: u64) -> Holder {
    if stage.plan.has(Bug::HolderReusedAfterFork) {
        Holder::new(ClientId::from_u128(1), claims)
    } else {
        Holder::new(process.client, stage.rng.u64(..))
    }
}

/// How long a batch lies about before it is sent.
pub(super) fn put_off(stage: &mut Stage) -> u64 {
    if stage.plan.has(Bug::JitterPastTheDeadline) {
        let most = super::time::nanos(stage.plan.timing.ttl());
        stage.rng.u64(..most)
    } else {
        0
    }
}

/// Takes the last lease out of some batches.
pub(super) fn skip(stage: &mut Stage, batch: &mut Batch) {
    if stage.plan.has(Bug::TurnSkipsALease) && stage.rng.u8(..8) == 0 {
        batch.tickets.pop();
        batch.renewals.pop();
    }
}

/// Makes a lost lease count again, if its renewal was confirmed.
pub(super) fn revive(stage: &mut Stage, holder: Holder, deadline: Instant) {
    if !stage.plan.has(Bug::LateReplyRevives) {
        return;
    }
    if let Some(guard) = stage.ledger.guards.get_mut(&holder)
        && guard.signal.deadline() == Err(LossReason::Deadline)
    {
        let signal = leasehold::internals::signal::Signal::new(deadline);
        signal.extend(deadline).expect("a new signal is not lost");
        guard.signal = std::sync::Arc::new(signal);
    }
}
