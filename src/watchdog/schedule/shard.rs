//! The state that the schedule keeps for each shard of the store, so that a shard that does not answer delays no other:
//! its queues, the requests in flight, and the clock of its server.

use std::collections::HashMap;
use std::time::Duration;

use super::queues::Queues;
use super::{BATCHES_IN_FLIGHT, RELEASES_IN_FLIGHT};
use crate::term::{Instant, Timing};
use crate::watchdog::server_time::ServerClock;

/// The state of one shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// The store's number of it.
    pub(super) number: u32,
    pub(super) queues: Queues,
    pub(super) server: ServerClock,
    pub(super) timings: Timings,
    pub(super) batches_in_flight: usize,
    pub(super) releases_in_flight: usize,
    /// A request to it has failed: what waits for room may be kept elsewhere by now.
    pub(super) has_failed: bool,
}

/// The timings of all held leases, counted: for the longest ttl and the smallest margin among them. A client has few
/// timings, however many leases it has.
#[derive(Debug, Default)]
pub(super) struct Timings(HashMap<Timing, usize>);

impl Shard {
    /// Returns how many more batches may be sent.
    pub(super) const fn batch_room(&self) -> usize {
        BATCHES_IN_FLIGHT.saturating_sub(self.batches_in_flight)
    }

    /// Returns whether another release may be sent.
    pub(super) const fn has_release_room(&self) -> bool {
        self.releases_in_flight < RELEASES_IN_FLIGHT
    }

    /// Returns when the next turn is due for this shard.
    pub(super) fn next(&self) -> Instant {
        let has_batch_room = self.batch_room() > 0;
        self.queues.next(has_batch_room, self.has_release_room())
    }
}

impl Timings {
    pub(super) fn add(&mut self, timing: &Timing) {
        *self.0.entry(*timing).or_default() += 1;
    }

    pub(super) fn remove(&mut self, timing: &Timing) {
        if let Some(count) = self.0.get_mut(timing) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(timing);
            }
        }
    }

    /// Zero if nothing is held.
    pub(super) fn longest_ttl(&self) -> Duration {
        self.0.keys().map(Timing::ttl).max().unwrap_or_default()
    }

    /// Zero if nothing is held.
    pub(super) fn least_margin(&self) -> Duration {
        self.0.keys().map(Timing::margin).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(ttl_s: u64, margin_ms: u64) -> Timing {
        let margin = Duration::from_millis(margin_ms);
        Timing::new(Duration::from_secs(ttl_s), Some(margin)).expect("valid")
    }

    #[test]
    fn the_longest_and_the_least_are_of_what_is_held_now() {
        let mut timings = Timings::default();
        let known = |timings: &Timings| {
            let (ttl, margin) = (timings.longest_ttl(), timings.least_margin());
            (ttl.as_secs(), margin.as_millis())
        };
        assert_eq!(known(&timings), (0, 0));
        let (long, short) = (timing(3_600, 5_000), timing(3, 100));
        for timing in [&long, &short, &short] {
            timings.add(timing);
        }
        assert_eq!(known(&timings), (3_600, 100));
        timings.remove(&short);
        assert_eq!(known(&timings), (3_600, 100));
        timings.remove(&short);
        assert_eq!(known(&timings), (3_600, 5_000));
        timings.remove(&long);
        assert_eq!(known(&timings), (0, 0));
    }
}
