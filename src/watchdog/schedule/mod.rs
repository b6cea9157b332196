//! Decides what the watchdog does next: which holders to cancel, what to renew, what to release. Knows no clock and
//! does no I/O: `now` is always an argument, so every test runs in zero time.
//!
//! # Invariants
//! 1. Each lease is in the queues of its shard that its phase asks for, and in no other: the queues' module says in
//!    which. Only `Schedule::transition` changes a phase.
//! 2. An answer counts only for the attempt that it belongs to, and from when that was sent: also after its limit,
//!    until a later attempt was confirmed. A lease that has left has no attempt, so a late answer finds nothing to
//!    change.
//! 3. Losses are taken before renewals: on waking late, cancel first.
//! 4. Every exit goes through [`Schedule::withdraw`], [`Schedule::leave`] or [`Schedule::give_up`], once.
//! 5. The effects of a change on the world outside are in [`Effects`], which its caller takes before it unlocks the
//!    schedule.
//! 6. What one shard waits for delays no other: queues, requests in flight and the server's clock are kept per shard. A
//!    lease follows its name: the store is asked for the shard when a renewal falls due and when a release is sent, and
//!    again, for all that waits for room in a shard, after a request to that shard has failed.

mod enrollment;
mod queues;
mod settle;
mod shard;
mod slot;
#[cfg(test)]
mod tests;
mod work;

use std::num::NonZeroU64;
use std::time::Duration;

use slab::Slab;

pub use self::enrollment::{Leaving, ReleaseOutcome};
use self::queues::NextRenewal;
pub use self::settle::Awaited;
use self::shard::Shard;
pub use self::slot::{LeaseId, Ticket};
use self::slot::{Phase, Slot};
#[cfg(feature = "internals")]
pub use self::work::Work;
pub use self::work::{Batch, Loss};
use crate::reason::LossReason;
use crate::telemetry::Survey;
use crate::term::Instant;

/// Batches in flight on one shard: from two on its server is never idle between them; more only queue.
pub const BATCHES_IN_FLIGHT: usize = 4;
/// Releases in flight on one shard: enough to free a burst of dropped leases, few enough not to crowd out renewals.
pub const RELEASES_IN_FLIGHT: usize = 64;
/// Ends checked in one turn, and renewals that fall due in one, so that a turn stays short; the next follows at once.
const STEPS_PER_TURN: usize = 4_096;
/// Leases read for the gauges under one lock: a few tenths of a millisecond.
const SURVEYED_AT_ONCE: usize = 4_096;
/// How long before its deadline a lease is ended, so that a late timer still ends it in time.
pub const EARLY: Duration = Duration::from_millis(5);

/// All leases of one client: those that are claimed or held, and those that are still to be released.
#[derive(Debug)]
pub struct Schedule {
    slots: Slab<Slot>,
    shards: Vec<Shard>,
    /// When the last turn began.
    turned_at: Instant,
    attempts: u64,
    /// When the loop wakes by itself: only earlier instants need to wake it.
    asleep_until: Instant,
    /// Source of jitter.
    random: fastrand::Rng,
    is_closing: bool,
    /// The effects of the changes since they were last taken.
    effects: Effects,
}

/// The effects of a change, for its caller to carry out once the schedule is unlocked.
#[derive(Debug, Default)]
#[must_use = "a loss that is dropped is told to no holder"]
pub struct Effects {
    /// The holders to cancel, first of all.
    pub losses: Vec<Loss>,
    /// Leases that were renewed, or whose guards ended, that a task may wait for.
    pub moved: Vec<Awaited>,
    /// Whether the loop has to be woken: for what is due before it would wake, or because it has to end.
    pub must_wake: bool,
}

/// The limits that the caller set for a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest hold, from when the caller was handed the lease.
    pub max_hold: Option<Duration>,
    /// The longest time without a sign of progress.
    pub progress_within: Option<Duration>,
}

/// Why a grant cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Useless {
    /// Too little is left of its term.
    Late,
    /// The claim was ended before: the client is shutting down.
    Ended,
}

impl Schedule {
    /// An empty schedule; the seed is for the jitter.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: Slab::new(),
            shards: Vec::new(),
            turned_at: Instant::ZERO,
            attempts: 0,
            asleep_until: Instant::FAR_FUTURE,
            random: fastrand::Rng::with_seed(seed),
            is_closing: false,
            effects: Effects::default(),
        }
    }

    /// Returns when the next turn is due, and records that the loop sleeps until then: from now on only what is armed
    /// earlier wakes it.
    pub fn next_wake(&mut self) -> Instant {
        let next = self.shards.iter().map(Shard::next).min();
        self.asleep_until = next.unwrap_or(Instant::FAR_FUTURE);
        self.asleep_until
    }

    /// Takes the effects of the changes until now.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Records that something is due at this moment, which the loop may not know.
    fn note_armed(&mut self, at: Instant) {
        self.effects.must_wake |= at < self.asleep_until;
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

    /// Returns the index of the shard with this number. Shards are few, and most stores have one.
    fn index_of(&mut self, number: u32) -> usize {
        let known = self.shards.iter().position(|shard| shard.number == number);
        known.unwrap_or_else(|| {
            self.shards.push(Shard {
                number,
                ..Shard::default()
            });
            self.shards.len() - 1
        })
    }

    /// Moves a lease, with its queue entries, to the shard that keeps its name now. Requests under way stay where they
    /// were sent.
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
                let renewal = from.queues.disarm(id, holding);
                to.queues.arm(id, holding, renewal);
                from.timings.remove(&slot.lease.timing);
                to.timings.add(&slot.lease.timing);
            }
            Phase::Leaving(leave) => {
                if from.queues.releases.remove(id, leave.release_at) {
                    to.queues.releases.insert(id, leave.release_at);
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
        }
        if let Phase::Held(holding) = &next {
            shard.queues.arm(id, holding, NextRenewal::Planned);
            shard.timings.add(&slot.lease.timing);
        }
        std::mem::replace(&mut slot.phase, next)
    }

    /// Removes a lease that no longer exists in the store.
    fn forget(&mut self, id: LeaseId) {
        self.slots.remove(id.index());
        // Once nothing is left, the loop ends.
        self.effects.must_wake |= self.is_done();
    }

    /// Ends a lease that is held or claimed, and queues the cancellation of its holder. Has no effect if it has ended
    /// already.
    fn lose(&mut self, id: LeaseId, reason: LossReason) {
        let slot = self.slot(id);
        if matches!(slot.phase, Phase::Lost(_) | Phase::Leaving(_)) {
            return;
        }
        let reason = slot.lease.signal.lose(reason);
        let deadline = match self.transition(id, Phase::Lost(reason)) {
            Phase::Held(holding) => Some(holding.deadline),
            _ => None,
        };
        let lease = &self.slots[id.index()].lease;
        self.effects.losses.push(Loss {
            name: lease.name.clone(),
            reason,
            deadline,
            signal: lease.signal.clone(),
        });
    }

    /// Queues the wake-ups of tasks that wait on this lease, after its signal changed.
    fn wake_waiters(&mut self, id: LeaseId) {
        let lease = &self.slots[id.index()].lease;
        if lease.signal.has_waiters() {
            self.effects.moved.push(Awaited {
                name: lease.name.clone(),
                signal: lease.signal.clone(),
            });
        }
    }

    /// Refuses further claims, and ends all leases.
    pub fn close(&mut self, reason: LossReason) {
        self.retire();
        let ids: Vec<LeaseId> = self.ids().collect();
        ids.into_iter().for_each(|id| self.lose(id, reason));
    }

    /// Refuses further claims. Leases that are held are still renewed.
    pub fn retire(&mut self) {
        self.is_closing = true;
        self.effects.must_wake = true;
    }

    /// Returns whether there is nothing to renew, to release, or to wait for.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds some leases, from this one on, and how long ago the loop should have turned. Returns the next one, or
    /// `None` after the last.
    pub fn survey(&self, from: LeaseId, now: Instant, survey: &mut Survey) -> Option<LeaseId> {
        // Without a planned moment, a turn has been due since the last one.
        let overdue = now.since(self.asleep_until.max(self.turned_at));
        survey.overdue = survey.overdue.max(overdue);
        let end = from.index() + SURVEYED_AT_ONCE;
        for index in from.index()..end {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            if let Phase::Held(holding) = &slot.phase {
                let (name, timing) = (&slot.lease.name, slot.lease.timing);
                survey.note_held(name, timing, holding.deadline, holding.failures, now);
                if holding.attempt.is_none() && holding.renew_at <= now {
                    survey.backlog += 1;
                }
            }
        }
        (end < self.slots.capacity()).then(|| LeaseId::new(end))
    }

    fn ids(&self) -> impl Iterator<Item = LeaseId> {
        self.slots.iter().map(|(index, _)| LeaseId::new(index))
    }

    /// Returns whether no batch is in flight. Overdue batches do not count.
    pub fn awaits_no_batch(&self) -> bool {
        let mut shards = self.shards.iter();
        shards.all(|shard| shard.batches_in_flight == 0)
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
