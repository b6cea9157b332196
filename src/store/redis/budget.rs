//! What is left of a caller's limit, and how often a connection is given up within it.

use std::time::Duration;

use crate::clock::{Boottime, Clock, Instant};

/// The longest pause between two replacements, for requests of long leases: a tenth of a ttl of one hour would keep
/// them from a new master for six minutes.
const REPLACE_AT_LEAST_EVERY: Duration = Duration::from_secs(3);

/// What is left of a caller's limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    ends_at: Instant,
}

impl Budget {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            ends_at: Boottime.now().after(limit),
        }
    }

    /// Returns the same budget, or this limit if that is shorter.
    pub(super) fn at_most(self, limit: Duration) -> Self {
        Self {
            ends_at: self.ends_at.min(Self::new(limit).ends_at),
        }
    }

    pub(super) fn left(self) -> Duration {
        self.ends_at.since(Boottime.now())
    }
}

/// Returns how often a connection to a silent server or to a replica is replaced: once in ttl/10, however many requests
/// fail on it, and at least as often as for leases of the default ttl.
pub(super) fn replace_every(ttl: Duration) -> Duration {
    (ttl / 10).min(REPLACE_AT_LEAST_EVERY)
}
