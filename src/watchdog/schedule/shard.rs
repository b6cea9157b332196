//! The state that the schedule keeps for each shard of the store, so that a shard that does not answer delays no other:
//! its queues, the requests in flight, and the clock of its server.

use super::queues::Queues;
use super::timings::Timings;
use super::{BATCHES_IN_FLIGHT, RELEASES_IN_FLIGHT};
use crate::term::Instant;
use crate::watchdog::server_time::ServerClock;

/// The state of one shard.
#[derive(Debug)]
pub(super) struct Shard {
    /// The store's number of it.
    pub(super) number: u32,
    pub(super) queues: Queues,
    pub(super) server: ServerClock,
    /// The timings of all leases that are held.
    pub(super) timings: Timings,
    pub(super) batches_in_flight: usize,
    pub(super) releases_in_flight: usize,
    /// A request to it has failed: what waits for room may be kept elsewhere by now.
    pub(super) has_failed: bool,
}

impl Shard {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            queues: Queues::default(),
            server: ServerClock::default(),
            timings: Timings::default(),
            batches_in_flight: 0,
            releases_in_flight: 0,
            has_failed: false,
        }
    }

    /// Returns how many more batches may be sent.
    pub(super) const fn batch_room(&self) -> usize {
        BATCHES_IN_FLIGHT.saturating_sub(self.batches_in_flight)
    }

    /// Returns how many more releases may be sent.
    pub(super) const fn release_room(&self) -> usize {
        RELEASES_IN_FLIGHT.saturating_sub(self.releases_in_flight)
    }

    /// Returns when the next turn is due for this shard.
    pub(super) fn next(&self) -> Instant {
        let (batch_room, release_room) = (self.batch_room(), self.release_room());
        self.queues.next(batch_room > 0, release_room > 0)
    }
}
