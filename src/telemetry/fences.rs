//! Counts the checks at guarded storage.

use metrics::histogram;

use super::counts::Counts;
use super::table;
use super::words::{CheckOutcome, FenceKind};
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
    pub(crate) fn ended(self, group: Option<&str>, name: &str, token: u64, outcome: CheckOutcome) {
        let took = Monotonic.now().since(self.began_at);
        let fence = self.fence.as_str();
        histogram!(table::FENCE_CHECK_DURATION.name, "fence" => fence).record(took);
        count(self.fence, outcome);
        let outcome = outcome.as_str();
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
/// no reporter.
pub(crate) fn count(fence: FenceKind, outcome: CheckOutcome) {
    let counts = Counts::of(Some(("fence", fence.as_str())));
    counts.add(&table::FENCE_CHECKS, &[outcome.as_str()], 1);
    counts.tell_total(&table::FENCE_CHECKS, &[outcome.as_str()]);
}
