//! What the schedule keeps for each shard of the store, so that a shard that does not answer delays no other: its queues,
//! the requests in flight, and the clock of its server.

use std::collections::HashMap;

use slab::Slab;

use super::queues::Queues;
use super::slot::{Phase, Slot};
use super::timings::Timings;
use super::{BATCHES_IN_FLIGHT, LeaseId, RELEASES_IN_FLIGHT};
use crate::term::Instant;
use crate::watchdog::server_time::ServerClock;

/// The leases of one shard.
#[derive(Debug)]
pub(super) struct Shard {
    /// As the store calls it.
    pub(super) number: u32,
    pub(super) slots: Slab<Slot>,
    pub(super) queues: Queues,
    pub(super) server: ServerClock,
    /// The timings of all leases that are held.
    pub(super) timings: Timings,
    /// Held leases whose last renewals got no answer, and how many of them in a row.
    pub(super) failing: HashMap<LeaseId, u32>,
    pub(super) batches_in_flight: usize,
    pub(super) releases_in_flight: usize,
}

impl Shard {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            slots: Slab::new(),
            queues: Queues::default(),
            server: ServerClock::default(),
            timings: Timings::default(),
            failing: HashMap::new(),
            batches_in_flight: 0,
            releases_in_flight: 0,
        }
    }

    /// The ids of all leases; `shard` is the index of this shard in the schedule.
    pub(super) fn ids(&self, shard: usize) -> impl Iterator<Item = LeaseId> {
        let slots = self.slots.iter();
        slots.map(move |(index, _)| LeaseId::new(index, shard))
    }

    /// Moves a lease to its next phase, and into or out of the queues of a lease that is held. Returns the phase before.
    pub(super) fn transition(&mut self, id: LeaseId, next: Phase) -> Phase {
        let slot = &mut self.slots[id.index()];
        if let Phase::Held(holding) = &slot.phase {
            self.queues.disarm(id, holding);
            self.timings.remove(&slot.lease.timing);
            if !self.failing.is_empty() {
                self.failing.remove(&id);
            }
        }
        if let Phase::Held(holding) = &next {
            self.queues.arm(id, holding);
            self.timings.add(&slot.lease.timing);
        }
        std::mem::replace(&mut slot.phase, next)
    }

    /// How many more batches may be sent.
    pub(super) const fn batch_room(&self) -> usize {
        BATCHES_IN_FLIGHT.saturating_sub(self.batches_in_flight)
    }

    /// How many more releases may be sent.
    pub(super) const fn release_room(&self) -> usize {
        RELEASES_IN_FLIGHT.saturating_sub(self.releases_in_flight)
    }

    /// When the next turn is due for this shard.
    pub(super) fn next(&self) -> Instant {
        let (batch_room, release_room) = (self.batch_room(), self.release_room());
        self.queues.next(batch_room > 0, release_room > 0)
    }
}
