//! Counts the checks at guarded storage.

use super::sink::Sink;
use super::words::FenceKind;
use super::{milliseconds, table};
use crate::clock::{Clock, Instant, Monotonic};

/// Counts a check that began at this moment and has ended.
pub(crate) fn fence_checked(
    fence: FenceKind,
    began_at: Instant,
    group: Option<&str>,
    name: &str,
    token: u64,
    outcome: &'static str,
) {
    let took = Monotonic.now().since(began_at);
    count(fence, outcome).record(&table::FENCE_CHECK_DURATION, &[], took);
    let fence = fence.as_str();
    tracing::debug!(
        name,
        token,
        group,
        fence,
        outcome,
        took_ms = milliseconds(took),
        "fence checked a pass"
    );
}

/// Counts a check, and sets the total in the recorder at once: a process that only guards storage has no client, and so
/// no reporter. Returns where it was counted.
pub(crate) fn count(fence: FenceKind, outcome: &'static str) -> &'static Sink {
    let sink = Sink::of(Some(("fence", fence.as_str())));
    sink.add(&table::FENCE_CHECKS, &[outcome], 1);
    sink.tell_one(&table::FENCE_CHECKS, &[outcome]);
    sink
}
