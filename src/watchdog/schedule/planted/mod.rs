//! Bugs on purpose, for the project's own tests: each is one that a lease library has had, or that this one could get. A
//! simulator or a campaign that never catches a bug proves nothing.
//!
//! Which of them a schedule has is a value that is given to it when it is made. Without the feature `internals` there is
//! nothing to give: every question below is answered no when the crate is compiled.

#[cfg(feature = "internals")]
mod chosen;
#[cfg(not(feature = "internals"))]
mod none;

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use fastrand::Rng;

#[cfg(feature = "internals")]
pub use self::chosen::Planted;
#[cfg(not(feature = "internals"))]
pub use self::none::Planted;
use super::slot::{Leased, Leave, Phase, Slot};
use super::{Batch, Departure, LeaseId, Limits, Schedule, Ticket};
use crate::holder::{ClientId, Holder};
use crate::reason::LossReason;
use crate::store::{Outcome, Sent};
use crate::term::{self, Instant, Timing};
use crate::token::Token;
use crate::watchdog::doubtful::Doubt;

/// The attempt of a release that is sent before its lease was withdrawn.
const TOO_EARLY: NonZeroU64 = NonZeroU64::MAX;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
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
    /// A claim is forgotten although an attempt of it can still be carried out.
    NotHeldIsFinal,
    /// A claim that failed is taken for one that was answered.
    FailedIsAnswered,
    /// A grant that is less fresh than it must be is held all the same.
    LateGrantHeld,
    /// A grant is held although its token is not above what the client has seen.
    FallenTokenHeld,
    /// Each attempt of a claim carries the floor of the first.
    FloorOfTheFirstAttempt,
    /// The release is sent while the renewals go on.
    WithdrawAfterRelease,
    /// The release is sent when the lease is lost, not when its guard is gone.
    ReleaseAtLoss,
    /// A renewal is put off by up to a whole ttl.
    JitterPastTheDeadline,
    /// One id that fails makes its whole batch count as refused.
    OneErrorFailsItsBatch,
    /// A turn forgets one of the leases that are due.
    TurnSkipsALease,
    /// The limits that the holder set are ignored.
    LimitsForgotten,
    /// After a fork both processes draw the same holders.
    HolderReusedAfterFork,
    /// The leases of all shards share one queue.
    OneQueueForAllShards,
}

/// In the claim.
impl Planted {
    pub(crate) fn timing(self, timing: Timing) -> Timing {
        let without = std::time::Duration::from_nanos(1);
        match self.has(Bug::NoMargin) {
            true => Timing::new(timing.ttl(), Some(without)).unwrap_or(timing),
            false => timing,
        }
    }

    pub(super) fn shard(self, shard: u32) -> u32 {
        match self.has(Bug::OneQueueForAllShards) {
            true => 0,
            false => shard,
        }
    }

    pub(crate) fn limits(self, limits: Limits) -> Limits {
        match self.has(Bug::LimitsForgotten) {
            true => Limits::default(),
            false => limits,
        }
    }

    pub(crate) fn floor(self, first: Option<Token>, now: Option<Token>) -> Option<Token> {
        match self.has(Bug::FloorOfTheFirstAttempt) {
            true => first,
            false => now,
        }
    }

    pub(crate) fn sent(self, sent: Sent) -> Sent {
        match self.has(Bug::FailedIsAnswered) {
            true => Sent::Answered,
            false => sent,
        }
    }

    pub(crate) fn is_fresh(self, is_fresh: bool) -> bool {
        is_fresh || self.has(Bug::LateGrantHeld)
    }

    pub(crate) fn seen(self, seen: Option<Token>) -> Option<Token> {
        seen.filter(|_| !self.has(Bug::FallenTokenHeld))
    }
}

/// In the renewals.
impl Planted {
    pub(crate) fn counted_from(self, sent_at: Instant, now: Instant) -> Instant {
        match self.has(Bug::DeadlineFromTheReply) {
            true => now,
            false => sent_at,
        }
    }

    pub(crate) fn renew_at(self, planned: Instant, timing: &Timing, random: &mut Rng) -> Instant {
        match self.has(Bug::JitterPastTheDeadline) {
            true => planned.after(timing.ttl().mul_f64(random.f64())),
            false => planned,
        }
    }

    pub(crate) fn skip(self, batch: &mut Batch, random: &mut Rng) {
        if self.has(Bug::TurnSkipsALease) && random.u8(..8) == 0 {
            batch.tickets.pop();
            batch.renewals.pop();
        }
    }

    pub(crate) fn distort(self, outcomes: &mut [Outcome]) {
        let is_unknown = |outcome: &Outcome| matches!(outcome, Outcome::Unknown(_));
        let has_failed = outcomes.iter().any(is_unknown);
        for outcome in outcomes {
            if self.has(Bug::OneErrorFailsItsBatch) && has_failed
                || self.has(Bug::UnknownAsLost) && is_unknown(outcome)
            {
                *outcome = Outcome::Refused;
            } else if self.has(Bug::UnknownAsRenewed) && is_unknown(outcome) {
                *outcome = Outcome::Renewed;
            }
        }
    }
}

/// In the exits.
impl Planted {
    pub(crate) fn unanswered_until(self, until: Option<Instant>) -> Option<Instant> {
        until.filter(|_| !self.has(Bug::NotHeldIsFinal))
    }
}

impl Schedule {
    /// The holder of the next claim.
    pub(crate) fn holder_of_next(&self, drawn: Holder) -> Holder {
        match self.planted.has(Bug::HolderReusedAfterFork) {
            true => {
                let nth = (self.attempts << 16) + self.enrolled() as u64;
                Holder::new(ClientId::from_u128(1), nth)
            }
            false => drawn,
        }
    }

    /// The outcome of an attempt that its lease waits for no longer: makes a lease that was lost at its deadline count again.
    pub(super) fn answered_late(&self, id: LeaseId, outcome: &Outcome, sent_at: Instant) {
        if self.planted.has(Bug::LateReplyRevives)
            && matches!(outcome, Outcome::Renewed)
            && let Some(slot) = self.shards[id.shard()].slots.get(id.index())
            && matches!(slot.phase, Phase::Lost(LossReason::Deadline))
        {
            let deadline = slot.lease.timing.term(sent_at).deadline();
            let state = &slot.lease.signal.state;
            state.store(deadline.as_nanos(), Ordering::Release);
        }
    }

    /// Has a lease that was just lost released although its guard is there.
    pub(super) fn release_at_loss(&mut self, id: LeaseId) {
        if !self.planted.has(Bug::ReleaseAtLoss) {
            return;
        }
        let slot = self.slot(id);
        let leave = Leave {
            doubt: Doubt::new(slot.last_sent, slot.lease.timing.ttl(), None),
            keep_for: None,
            release_at: Instant::FAR_FUTURE,
            attempt: None,
        };
        let twin = Slot {
            lease: Leased {
                name: slot.lease.name.clone(),
                holder: slot.lease.holder,
                timing: slot.lease.timing,
                bounds: None,
                signal: slot.lease.signal.clone(),
            },
            last_sent: slot.last_sent,
            unanswered_until: slot.unanswered_until,
            phase: Phase::Leaving(Box::new(leave)),
        };
        let twin = self.shards[id.shard()].slots.insert(twin);
        let twin = LeaseId::new(twin, id.shard());
        self.release_at(twin, Instant::ZERO);
    }

    /// A release of what is renewed until the answer to it.
    pub(crate) fn depart_too_early(&self, id: LeaseId) -> Option<Departure> {
        let lease = &self.slot(id).lease;
        self.planted
            .has(Bug::WithdrawAfterRelease)
            .then(|| Departure {
                ticket: Ticket {
                    id,
                    attempt: TOO_EARLY,
                },
                name: lease.name.clone(),
                holder: lease.holder,
                keep_for: None,
                limit: term::request_limit(lease.timing.ttl()),
            })
    }

    /// Takes what departed too early out of the renewals.
    pub(crate) fn withdraw_too_late(&mut self, departure: &mut Departure, now: Instant) {
        if self.planted.has(Bug::WithdrawAfterRelease)
            && departure.ticket.attempt == TOO_EARLY
            && let (Some(departed), _) = self.withdraw(departure.ticket.id, now, None)
        {
            *departure = departed;
        }
    }
}
