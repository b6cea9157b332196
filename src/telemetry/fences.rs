//! What is counted of the checks at guarded storage.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{counter, histogram};

use super::words::{CheckOutcome, FenceKind};
use super::{quietly, table};
use crate::clock::{Clock, Instant, Monotonic};

const OUTCOMES: usize = CheckOutcome::ALL.len();

static CHECKS: [[AtomicU64; OUTCOMES]; FenceKind::ALL.len()] =
    [const { [const { AtomicU64::new(0) }; OUTCOMES] }; FenceKind::ALL.len()];

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

    /// Counts the check, and tells the recorder at once: a process that only guards storage has no client, and so no
    /// reporter.
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

/// Counts a check whose begin was not seen.
pub(super) fn count(fence: FenceKind, outcome: CheckOutcome) {
    let total = &CHECKS[fence as usize][outcome as usize];
    let total = total.fetch_add(1, Ordering::Relaxed) + 1;
    tell_total(fence, outcome, total);
}

/// Tells the recorder the totals of the fences that are in use.
pub(super) fn tell_all() {
    for (totals, fence) in CHECKS.iter().zip(FenceKind::ALL) {
        let totals = totals.each_ref().map(|total| total.load(Ordering::Relaxed));
        if totals.iter().any(|total| *total > 0) {
            for (total, outcome) in totals.into_iter().zip(CheckOutcome::ALL) {
                quietly(|| tell_total(fence, outcome, total));
            }
        }
    }
}

fn tell_total(fence: FenceKind, outcome: CheckOutcome, total: u64) {
    let (name, fence, outcome) = (table::FENCE_CHECKS.name, fence.as_str(), outcome.as_str());
    counter!(name, "fence" => fence, "outcome" => outcome).absolute(total);
}
