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

    pub(super) fn left(self) -> Duration {
        self.ends_at.since(Boottime.now())
    }
}
