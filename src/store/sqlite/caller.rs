//! Who waits for a request: until when, and whether still.

use std::time::Duration;

use crate::clock::{Clock, Instant, Monotonic};

/// For whom the thread of the store works.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    until: Instant,
    is_gone: &'a dyn Fn() -> bool,
}

impl<'a> Caller<'a> {
    pub(super) fn new(until: Instant, is_gone: &'a dyn Fn() -> bool) -> Self {
        Self { until, is_gone }
    }

    /// One that does not go before its time is over, for what is not to be left half done.
    pub(super) fn staying(self) -> Caller<'static> {
        Caller::new(self.until, &|| false)
    }

    /// Whether the caller no longer wants the answer.
    pub(super) fn is_gone(self) -> bool {
        (self.is_gone)()
    }

    /// Whether it waits.
    pub(super) fn waits(self) -> bool {
        self.waits_for(Duration::ZERO)
    }

    /// Whether it waits and, as far as is known, will after this time.
    pub(super) fn waits_for(self, time: Duration) -> bool {
        Monotonic.now().after(time) < self.until && !self.is_gone()
    }
}
