//! Decides what the watchdog does next: who is lost, what to renew, what to release. Knows no clock and does no I/O: `now`
//! is always an argument, so every test runs in zero time.
//!
//! # Invariants
//! 1. An entry stands in `ends` exactly while it is held, in `renewals` or in `due` while it is held and no renewal of it
//!    is in flight, and in `releases` while it leaves and the loop has no release of it in flight.
//! 2. A reply counts only for the attempt that it belongs to. An entry that has left has no attempt, so a late reply finds
//!    nothing to change.
//! 3. Losses are taken before renewals: on waking late, cancel first.
//! 4. Every exit goes through [`Schedule::leave`] or [`Schedule::withdraw`], once.

mod enrollment;
pub mod planted;
mod settle;
#[cfg(test)]
mod tests;
mod timings;
mod turn;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use self::planted::Planted;
#[cfg(feature = "internals")]
pub use self::settle::Settled;
pub use self::settle::{Awaited, Jump};
use self::timings::Timings;
#[cfg(feature = "internals")]
pub use self::turn::Turn;
pub use self::turn::{Batch, Departure, Loss};
use super::doubtful::Doubt;
use super::server_time::ServerClock;
use super::signal::Signal;
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::term::{Instant, Timing};

/// Batches in flight: from two on the server is never idle between them; more only queue.
pub const BATCHES_IN_FLIGHT: usize = 4;
/// Releases in flight: enough to free a burst of dropped leases, few enough not to crowd out renewals.
pub const RELEASES_IN_FLIGHT: usize = 64;
/// Ends looked at in one turn, and renewals that fall due in one, so that a turn stays short; the next follows at once.
const STEPS_PER_TURN: usize = 4_096;
/// How much before its deadline a lease is ended, so that a late timer still ends it in time.
pub const EARLY: Duration = Duration::from_millis(5);

/// Where an entry stands.
pub type Key = usize;
type Queue = BTreeSet<(Instant, Key)>;

/// All leases of one client, and what is left of former ones.
#[derive(Debug)]
pub struct Schedule {
    entries: Slab<Entry>,
    /// By the end of the hold, or an earlier one that a renewal has put off since.
    ends: Queue,
    /// By the moment of the next renewal.
    renewals: Queue,
    /// Renewals whose moment has come, by the deadline: what is nearest to it goes first.
    due: Queue,
    /// By the moment of the next release.
    releases: Queue,
    /// Of all that is held.
    timings: Timings,
    attempts: u64,
    /// Up to when the loop sleeps: only what is armed earlier needs to wake it.
    asleep_until: Instant,
    /// Source of jitter.
    random: fastrand::Rng,
    server: ServerClock,
    is_closing: bool,
    planted: Planted,
}

/// What the holder allows itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest hold, from the send of the claim.
    pub max_hold: Option<Duration>,
    /// The longest time without a sign of progress.
    pub progress_within: Option<Duration>,
}

#[derive(Debug)]
struct Entry {
    name: Name,
    holder: Holder,
    timing: Timing,
    /// Few leases have any.
    bounds: Option<Box<Bounds>>,
    signal: Arc<Signal>,
    /// When the last request that can prolong it was sent.
    last_sent: Instant,
    /// Until when an attempt of its claim that got no answer can still do something; zero if there is none.
    unanswered_until: Instant,
    phase: Phase,
}

impl Entry {
    /// As a caller may ask: an `Option` of its own would be twice as wide.
    fn unanswered_until(&self) -> Option<Instant> {
        (self.unanswered_until > Instant::ZERO).then_some(self.unanswered_until)
    }
}

#[derive(Debug)]
enum Phase {
    /// The claim is under way. Exits: Held (granted in time), Lost, Leaving (given up, in doubt or granted late), gone (given
    /// up, answered).
    Claiming {
        /// Whether it was granted, but too late to be held.
        is_granted: bool,
    },
    /// Renewed until further notice. Exits: Lost, Leaving (its guard is gone).
    Held(Hold),
    /// Told. Exits: Leaving (its guard is gone), gone (its guard is gone, and the store said that it is not ours).
    Lost(LossReason),
    /// Nobody's, but perhaps still in the store. Exits: gone (released, or run out).
    /// Boxed, since few leave at a time.
    Leaving(Box<Leave>),
}

#[derive(Debug)]
struct Hold {
    deadline: Instant,
    ends_at: Instant,
    renew_at: Instant,
    attempt: Option<NonZeroU64>,
}

/// What the holder allows itself, and the end of the longest hold.
#[derive(Debug)]
struct Bounds {
    limits: Limits,
    hold_until: Instant,
}

#[derive(Debug)]
struct Leave {
    doubt: Doubt,
    keep_for: Option<Duration>,
    release_at: Instant,
    attempt: Option<u64>,
}

impl Schedule {
    /// An empty schedule; the seed is for the jitter.
    pub fn new(seed: u64) -> Self {
        Self {
            entries: Slab::new(),
            ends: Queue::new(),
            renewals: Queue::new(),
            due: Queue::new(),
            releases: Queue::new(),
            timings: Timings::default(),
            attempts: 0,
            asleep_until: Instant::FAR_FUTURE,
            random: fastrand::Rng::with_seed(seed),
            server: ServerClock::default(),
            is_closing: false,
            planted: Planted::default(),
        }
    }

    /// When the next turn is due, with so much room. The loop sleeps until then unless it is woken.
    pub fn sleep(&mut self, batch_room: usize, release_room: usize) -> Instant {
        let first = |queue: &Queue, has_room| {
            let first = queue.first().filter(|_| has_room);
            first.map_or(Instant::FAR_FUTURE, |(at, _)| *at)
        };
        let is_due = batch_room > 0 && !self.due.is_empty();
        let next_batch = if is_due {
            Instant::ZERO
        } else {
            first(&self.renewals, batch_room > 0)
        };
        self.asleep_until = first(&self.ends, true)
            .min(next_batch)
            .min(first(&self.releases, release_room > 0));
        self.asleep_until
    }

    /// Whether the loop has to be woken, now that something was armed for this moment, or something ended: to do it
    /// before it would wake by itself, or to see that nothing is left to do, ever.
    pub(super) fn must_wake(&self, armed: Instant) -> bool {
        armed < self.asleep_until || self.is_done()
    }

    /// Ends a lease that is held or claimed; nothing if it has ended already.
    pub(super) fn lose(&mut self, key: Key, reason: LossReason) -> Option<Loss> {
        if matches!(self.entries[key].phase, Phase::Lost(_) | Phase::Leaving(_)) {
            return None;
        }
        let deadline = self.disarm(key);
        let entry = &mut self.entries[key];
        let reason = entry.signal.lose(reason);
        entry.phase = Phase::Lost(reason);
        let loss = Loss {
            name: entry.name.clone(),
            reason,
            deadline,
            signal: entry.signal.clone(),
        };
        self.release_at_loss(key);
        Some(loss)
    }

    /// Takes a lease that is held, and is so no longer, out of what waits for its moment. Answers its deadline; none, if it
    /// is not held.
    pub(super) fn disarm(&mut self, key: Key) -> Option<Instant> {
        let entry = &self.entries[key];
        let Phase::Held(hold) = &entry.phase else {
            return None;
        };
        self.ends.remove(&(hold.ends_at, key));
        self.renewals.remove(&(hold.renew_at, key));
        self.due.remove(&(hold.deadline, key));
        self.timings.remove(&entry.timing);
        Some(hold.deadline)
    }

    pub(super) const fn planted(&self) -> Planted {
        self.planted
    }

    /// Whether the lease is held now that its guard goes; and the loss that a `check()` found, be it this one, and no turn has
    /// told yet.
    pub(super) fn last_check(&mut self, key: Key, now: Instant) -> (bool, Option<Loss>) {
        let is_held = self.entries[key].signal.check(now).is_ok();
        (is_held, self.found(key))
    }

    /// The loss that a `check()` found and no turn has told yet.
    pub fn found(&mut self, key: Key) -> Option<Loss> {
        let reason = self.entries[key].signal.deadline().err()?;
        self.lose(key, reason)
    }

    /// Takes no more claims in, and ends all leases.
    pub fn close(&mut self, reason: LossReason) -> Vec<Loss> {
        self.is_closing = true;
        let keys: Vec<Key> = self.entries.iter().map(|(key, _)| key).collect();
        let losses = keys.into_iter().filter_map(|key| self.lose(key, reason));
        losses.collect()
    }

    /// Takes no more claims in; what is held is renewed on.
    pub fn retire(&mut self) {
        self.is_closing = true;
    }

    /// Whether there is nothing to renew, to release, or to wait for.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many leases are held.
    pub fn held(&self) -> usize {
        self.ends.len()
    }

    /// Whether there will never be anything to do again.
    pub fn is_done(&self) -> bool {
        self.is_closing && self.is_empty()
    }

    pub(super) fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }
}

impl Hold {
    /// When the lease ends unless something happens first.
    fn end(&self, bounds: Option<&Bounds>, signal: &Signal) -> Instant {
        let end = self.deadline.before(EARLY);
        let Some(Bounds { limits, hold_until }) = bounds else {
            return end;
        };
        let within = limits.progress_within;
        let idle = within.map_or(Instant::FAR_FUTURE, |within| {
            signal.progress().after(within)
        });
        end.min(*hold_until).min(idle)
    }

    /// Why it ends now.
    fn reason(&self, bounds: Option<&Bounds>, now: Instant) -> LossReason {
        if bounds.is_some_and(|bounds| now >= bounds.hold_until) {
            LossReason::MaxHold
        } else if now >= self.deadline.before(EARLY) {
            LossReason::Deadline
        } else {
            LossReason::NoProgress
        }
    }
}
