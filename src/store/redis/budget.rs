//! What is left of a caller's limit.

use std::time::Duration;

use crate::clock::{Boottime, Clock, Instant};

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
