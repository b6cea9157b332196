//! One lease in the schedule, and its phase.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::{EARLY, Limits};
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::term::{Instant, Timing};
use crate::watchdog::doubtful::Doubt;
use crate::watchdog::signal::Signal;

/// The index of a lease's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(u32);

impl LeaseId {
    /// The index of the first lease of all.
    pub const FIRST: Self = Self(0);

    pub(super) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("memory ends before 2^32 leases"))
    }

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One request for a lease: an answer counts only for the attempt that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The lease.
    pub id: LeaseId,
    /// The number of this renewal or release.
    pub attempt: NonZeroU64,
}

/// A lease, from its claim to its last release.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) lease: Leased,
    /// The index of its shard. It follows the store's answer: see [`Schedule::follow`](super::Schedule::follow).
    pub(super) shard: usize,
    /// When the last request that can prolong it was sent.
    pub(super) last_sent: Instant,
    /// The moment until which an attempt of its claim that got no answer can still be carried out; zero if there is
    /// none: an `Option` would take twice the space.
    pub(super) unanswered_until: Instant,
    pub(super) phase: Phase,
}

/// The lease of a slot.
#[derive(Debug)]
pub(super) struct Leased {
    pub(super) name: Name,
    pub(super) holder: Holder,
    pub(super) timing: Timing,
    /// Few leases have any.
    pub(super) bounds: Option<Box<Bounds>>,
    pub(super) signal: Arc<Signal>,
}

/// The limits of a lease, and when its longest hold ends.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) limits: Limits,
    pub(super) hold_until: Instant,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The claim is under way. Exits: Held (granted in time), Lost, Leaving (given up, in doubt or in the store), gone
    /// (given up, answered).
    Claiming {
        /// Whether the store has it: in a queue, or granted too late to be held.
        is_in_store: bool,
    },
    /// Held and renewed. Exits: Lost, Leaving (its guard was dropped).
    Held(Holding),
    /// The holder was cancelled. Exits: Leaving (its guard was dropped), removed (its guard was dropped, and the store
    /// said that the name is not ours).
    Lost(LossReason),
    /// Not held, but perhaps still in the store. Exits: gone (released, or run out).
    /// Boxed, since few leave at a time.
    Leaving(Box<Leave>),
}

/// The moments when the schedule has to act on a held lease.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) deadline: Instant,
    pub(super) ends_at: Instant,
    pub(super) renew_at: Instant,
    /// The renewal in flight. One that counts as unanswered is not in flight, though its answer may still count.
    pub(super) attempt: Option<NonZeroU64>,
    /// The first attempt whose answer counts: later than the last one that was confirmed.
    pub(super) counts_from: u64,
    /// The number of renewals in a row that got no answer.
    pub(super) failures: u32,
}

/// A release that is to be sent, or is under way.
#[derive(Debug)]
pub(super) struct Leave {
    pub(super) doubt: Doubt,
    pub(super) keep_for: Option<Duration>,
    pub(super) release_at: Instant,
    /// The release in flight.
    pub(super) attempt: Option<NonZeroU64>,
}

impl Slot {
    /// Returns whether an attempt of its claim got no answer.
    pub(super) fn is_doubtful(&self) -> bool {
        self.unanswered_until > Instant::ZERO
    }

    /// The moments of a lease that was found in a queue for ends or renewals, and so is held.
    pub(super) fn holding(&self) -> &Holding {
        match &self.phase {
            Phase::Held(holding) => holding,
            _ => not_held(),
        }
    }

    /// The same, mutable, and the lease.
    pub(super) fn holding_mut(&mut self) -> (&mut Holding, &mut Leased) {
        match &mut self.phase {
            Phase::Held(holding) => (holding, &mut self.lease),
            _ => not_held(),
        }
    }

    /// Returns whether the answer to this attempt still counts.
    pub(super) fn is_waiting_for(&self, attempt: NonZeroU64) -> bool {
        match &self.phase {
            Phase::Held(holding) => holding.counts_from <= attempt.get(),
            Phase::Leaving(leave) => leave.attempt == Some(attempt),
            Phase::Claiming { .. } | Phase::Lost(_) => false,
        }
    }
}

fn not_held() -> ! {
    unreachable!("only a lease that is held is queued for its end or its renewal")
}

impl Holding {
    /// Returns when the lease ends unless something happens first.
    pub(super) fn end(&self, lease: &Leased) -> Instant {
        let end = self.deadline.before(EARLY);
        let Some(Bounds { limits, hold_until }) = lease.bounds.as_deref() else {
            return end;
        };
        let within = limits.progress_within;
        let idle = within.map_or(Instant::FAR_FUTURE, |within| {
            lease.signal.progress().after(within)
        });
        end.min(*hold_until).min(idle)
    }

    /// Returns why it ends now.
    pub(super) fn reason(&self, lease: &Leased, now: Instant) -> LossReason {
        let bounds = lease.bounds.as_deref();
        if bounds.is_some_and(|bounds| now >= bounds.hold_until) {
            LossReason::MaxHold
        } else if now >= self.deadline.before(EARLY) {
            LossReason::Deadline
        } else {
            LossReason::NoProgress
        }
    }
}
