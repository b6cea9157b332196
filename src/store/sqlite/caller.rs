//! The caller of a request: until when it waits, and whether it still does.

use std::time::Duration;

use crate::clock::{Clock, Instant, Monotonic};

/// The caller for which the store's thread works.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    until: Instant,
    is_gone: &'a dyn Fn() -> bool,
}

impl<'a> Caller<'a> {
    pub(super) fn new(until: Instant, is_gone: &'a dyn Fn() -> bool) -> Self {
        Self { until, is_gone }
    }

    /// The same caller, but one that waits up to its limit in any case: for work that must not be left half done.
    pub(super) fn staying(self) -> Caller<'static> {
        Caller::new(self.until, &|| false)
    }

    /// Returns whether the caller no longer wants the answer.
    pub(super) fn is_gone(self) -> bool {
        (self.is_gone)()
    }

    /// Returns whether the caller still waits.
    pub(super) fn waits(self) -> bool {
        self.waits_for(Duration::ZERO)
    }

    /// Returns whether the caller still waits and will, as far as is known, after this time.
    pub(super) fn waits_for(self, time: Duration) -> bool {
        Monotonic.now().after(time) < self.until && !self.is_gone()
    }
}
