//! Decides what the watchdog does next: which holders to cancel, what to renew, what to release. Knows no clock and
//! does no I/O: `now` is always an argument, so every test runs in zero time.
//!
//! # Invariants
//! 1. Each lease is in the queues of its shard that its phase asks for, and in no other: the queues' module says in
//!    which. Only [`Schedule::transition`] changes a phase.
//! 2. An answer counts only for the attempt that it belongs to. A lease that has left has no attempt, so a late answer
//!    finds nothing to change.
//! 3. Losses are taken before renewals: on waking late, cancel first.
//! 4. Every exit goes through [`Leaving::begin`] or [`Schedule::leave`], once.
//! 5. What one shard waits for delays no other: queues, requests in flight and the server's clock are kept per shard. A
//!    lease follows its name: the store is asked for the shard when a renewal falls due and when a release is sent, and
//!    again, for all that waits for room in a shard, after a request to that shard has failed.

mod enrollment;
mod leaving;
mod queues;
mod settle;
mod shard;
mod slot;
mod survey;
#[cfg(test)]
mod tests;
mod timings;
mod work;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::Duration;

use slab::Slab;

pub use self::leaving::{Leaving, ReleaseOutcome, Withdrawn};
pub use self::settle::Awaited;
#[cfg(any(test, feature = "internals"))]
pub use self::settle::Jump;
#[cfg(feature = "internals")]
pub use self::settle::Settled;
use self::shard::Shard;
pub use self::slot::{LeaseId, Ticket};
use self::slot::{Phase, Slot};
#[cfg(feature = "internals")]
pub use self::work::Work;
pub use self::work::{Batch, Loss};
use crate::reason::LossReason;
use crate::term::Instant;

/// Batches in flight on one shard: from two on its server is never idle between them; more only queue.
pub const BATCHES_IN_FLIGHT: usize = 4;
/// Releases in flight on one shard: enough to free a burst of dropped leases, few enough not to crowd out renewals.
pub const RELEASES_IN_FLIGHT: usize = 64;
/// Ends looked at in one turn, and renewals that fall due in one, so that a turn stays short; the next follows at once.
const STEPS_PER_TURN: usize = 4_096;
/// The time before its deadline at which a lease is ended, so that a late timer still ends it in time.
pub const EARLY: Duration = Duration::from_millis(5);

/// All leases of one client: those that are claimed or held, and those that are still to be released.
#[derive(Debug)]
pub struct Schedule {
    slots: Slab<Slot>,
    shards: Vec<Shard>,
    /// Held leases whose last renewals got no answer, and how many of them in a row.
    failing: HashMap<LeaseId, u32>,
    /// The moment at which the last turn began.
    turned_at: Instant,
    attempts: u64,
    /// Up to when the loop sleeps: only what is armed earlier needs to wake it.
    asleep_until: Instant,
    /// Source of jitter.
    random: fastrand::Rng,
    is_closing: bool,
}

/// The limits that the caller set for a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest hold, from the send of the claim.
    pub max_hold: Option<Duration>,
    /// The longest time without a sign of progress.
    pub progress_within: Option<Duration>,
}

/// The reason for which a grant cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Useless {
    /// Too little is left of its term.
    Late,
    /// The claim was ended before: the client is shutting down.
    Ended,
}

/// Says whether the loop has to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a loop that is not woken sleeps past what was armed"]
pub struct MustWake(pub bool);

impl Schedule {
    /// An empty schedule; the seed is for the jitter.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: Slab::new(),
            shards: Vec::new(),
            failing: HashMap::new(),
            turned_at: Instant::ZERO,
            attempts: 0,
            asleep_until: Instant::FAR_FUTURE,
            random: fastrand::Rng::with_seed(seed),
            is_closing: false,
        }
    }

    /// Returns when the next turn is due, and records that the loop sleeps until then: from now on only what is armed
    /// earlier wakes it.
    pub fn next_wake(&mut self) -> Instant {
        let next = self.shards.iter().map(Shard::next).min();
        self.asleep_until = next.unwrap_or(Instant::FAR_FUTURE);
        self.asleep_until
    }

    /// Returns whether the loop has to be woken after a change: because `armed` is earlier than its next wake, or
    /// because nothing is left for it to do and it has to end.
    pub(super) fn must_wake(&self, armed: Instant) -> MustWake {
        MustWake(armed < self.asleep_until || self.is_done())
    }

    fn slot(&self, id: LeaseId) -> &Slot {
        &self.slots[id.index()]
    }

    fn slot_mut(&mut self, id: LeaseId) -> &mut Slot {
        &mut self.slots[id.index()]
    }

    /// The slot of a lease, and its shard.
    fn with_shard(&mut self, id: LeaseId) -> (&mut Slot, &mut Shard) {
        let slot = &mut self.slots[id.index()];
        let shard = &mut self.shards[slot.shard];
        (slot, shard)
    }

    /// Returns where the shard of this number is. Shards are few, and most stores have one.
    fn index_of(&mut self, number: u32) -> usize {
        let known = self.shards.iter().position(|shard| shard.number == number);
        known.unwrap_or_else(|| {
            self.shards.push(Shard::new(number));
            self.shards.len() - 1
        })
    }

    /// Moves a lease, and what is queued for it, to the shard that keeps its name by now. What is under way stays where
    /// it was sent.
    fn follow(&mut self, id: LeaseId, number: u32) {
        let to = self.index_of(number);
        let slot = &mut self.slots[id.index()];
        let from = std::mem::replace(&mut slot.shard, to);
        let Ok([from, to]) = self.shards.get_disjoint_mut([from, to]) else {
            // It stays where it is.
            return;
        };
        match &slot.phase {
            Phase::Held(holding) => {
                from.queues.hand_over(&mut to.queues, id, holding);
                from.timings.remove(&slot.lease.timing);
                to.timings.add(&slot.lease.timing);
            }
            Phase::Leaving(leave) => {
                if from.queues.disarm_release(id, leave.release_at) {
                    to.queues.arm_release(id, leave.release_at);
                }
            }
            Phase::Claiming { .. } | Phase::Lost(_) => {}
        }
    }

    /// Moves a lease to its next phase, and into or out of the queues of a lease that is held. Returns the phase
    /// before.
    fn transition(&mut self, id: LeaseId, next: Phase) -> Phase {
        let slot = &mut self.slots[id.index()];
        let shard = &mut self.shards[slot.shard];
        if let Phase::Held(holding) = &slot.phase {
            shard.queues.disarm(id, holding);
            shard.timings.remove(&slot.lease.timing);
            if !self.failing.is_empty() {
                self.failing.remove(&id);
            }
        }
        if let Phase::Held(holding) = &next {
            shard.queues.arm(id, holding);
            shard.timings.add(&slot.lease.timing);
        }
        std::mem::replace(&mut slot.phase, next)
    }

    /// Forgets a lease of which nothing is left in the store.
    fn forget(&mut self, id: LeaseId) {
        self.slots.remove(id.index());
    }

    /// Ends a lease that is held or claimed. Returns `None` if it has ended already.
    pub(super) fn lose(&mut self, id: LeaseId, reason: LossReason) -> Option<Loss> {
        let slot = self.slot(id);
        if matches!(slot.phase, Phase::Lost(_) | Phase::Leaving(_)) {
            return None;
        }
        let reason = slot.lease.signal.lose(reason);
        let deadline = match self.transition(id, Phase::Lost(reason)) {
            Phase::Held(holding) => Some(holding.deadline),
            _ => None,
        };
        let lease = &self.slot(id).lease;
        Some(Loss {
            name: lease.name.clone(),
            reason,
            deadline,
            signal: lease.signal.clone(),
        })
    }

    /// Checks a lease whose guard is about to go. Returns whether it is held; and its loss, if a `check()`, this one
    /// included, found it and it was not yet reported to the holder. No check of its handles succeeds from then on.
    pub(super) fn last_check(&mut self, id: LeaseId, now: Instant) -> (bool, Option<Loss>) {
        let is_held = self.slot(id).lease.signal.check(now).is_ok();
        let loss = self.found(id);
        // Before the caller unlocks the schedule: from then on the release may be sent, and a rival granted the name.
        self.slot(id).lease.signal.lose(LossReason::Released);
        (is_held, loss)
    }

    /// Takes the loss that a `check()` found, if the holder was not told yet.
    pub fn found(&mut self, id: LeaseId) -> Option<Loss> {
        let reason = self.slot(id).lease.signal.deadline().err()?;
        self.lose(id, reason)
    }

    /// Refuses further claims, and ends all leases.
    pub fn close(&mut self, reason: LossReason) -> Vec<Loss> {
        self.is_closing = true;
        let ids: Vec<LeaseId> = self.ids().collect();
        let losses = ids.into_iter().filter_map(|id| self.lose(id, reason));
        losses.collect()
    }

    /// Refuses further claims. Leases that are held are still renewed.
    pub fn retire(&mut self) {
        self.is_closing = true;
    }

    /// Returns whether there is nothing to renew, to release, or to wait for.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn ids(&self) -> impl Iterator<Item = LeaseId> {
        self.slots.iter().map(|(index, _)| LeaseId::new(index))
    }

    /// Returns whether there will never be anything to do again.
    pub fn is_done(&self) -> bool {
        self.is_closing && self.is_empty()
    }

    fn next_attempt(&mut self) -> NonZeroU64 {
        self.attempts += 1;
        NonZeroU64::new(self.attempts).expect("it was raised")
    }
}
