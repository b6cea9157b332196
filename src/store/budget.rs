//! The rest of a caller's limit, and times on the wire.

use std::time::Duration;

use crate::clock::{Boottime, Clock, Instant};

/// The rest of a caller's limit.
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
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(super) fn at_most(self, limit: Duration) -> Self {
        Self {
            ends_at: self.ends_at.min(Self::new(limit).ends_at),
        }
    }

    pub(super) fn left(self) -> Duration {
        self.ends_at.since(Boottime.now())
    }
}

/// Converts to whole milliseconds, rounded up: the server must keep a lease for at least as long as its holder expects.
pub(in crate::store) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
