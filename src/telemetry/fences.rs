//! Counts the checks at guarded storage.

use super::sink::Sink;
use super::table;
use super::words::FenceKind;
use crate::clock::{Clock, Instant, Monotonic};

/// A check that is under way. One that is dropped before its end is not counted.
#[derive(Debug)]
#[must_use = "a check is counted when it ends"]
pub(crate) struct FenceCheck {
    fence: FenceKind,
    began_at: Instant,
}

impl FenceCheck {
    pub(crate) fn begin(fence: FenceKind) -> Self {
        Self {
            fence,
            began_at: Monotonic.now(),
        }
    }

    /// Counts the check.
    pub(crate) fn ended(self, group: Option<&str>, name: &str, token: u64, outcome: &'static str) {
        let took = Monotonic.now().since(self.began_at);
        count(self.fence, outcome).record(&table::FENCE_CHECK_DURATION, &[], took);
        let fence = self.fence.as_str();
        tracing::debug!(
            name,
            token,
            group,
            fence,
            outcome,
            ?took,
            "fence checked a pass"
        );
    }
}

/// Counts a check, and sets the total in the recorder at once: a process that only guards storage has no client, and so
/// no reporter. Returns where it was counted.
pub(crate) fn count(fence: FenceKind, outcome: &'static str) -> &'static Sink {
    let sink = Sink::of(Some(("fence", fence.as_str())));
    sink.add(&table::FENCE_CHECKS, &[outcome], 1);
    sink.tell_one(&table::FENCE_CHECKS, &[outcome]);
    sink
}
