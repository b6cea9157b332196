//! A call to acquire, from its begin to its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sink::Sink;
use super::{milliseconds, table};
use crate::clock::{Clock, Instant};

/// Counts the end of a call. A call that is dropped before its end counts as cancelled.
#[derive(Debug)]
pub(crate) struct AcquireTimer<'a> {
    sink: &'static Sink,
    name: &'a str,
    clock: &'a dyn Clock,
    began_at: Instant,
    /// When its wait ends; `None` if it does not wait for other holders.
    pub(crate) ends_at: Option<Instant>,
    outcome: &'static str,
}

impl<'a> AcquireTimer<'a> {
    /// A call that waits for other holders, if it has a limit.
    pub(crate) fn begin(
        sink: &'static Sink,
        name: &'a str,
        clock: &'a dyn Clock,
        limit: Option<Duration>,
    ) -> Self {
        tracing::debug!(name, group = sink.group(), "acquire begins");
        let began_at = clock.now();
        sink.waiters
            .fetch_add(limit.iter().len(), Ordering::Relaxed);
        Self {
            sink,
            name,
            clock,
            began_at,
            ends_at: limit.map(|limit| began_at.after(limit)),
            outcome: "cancelled",
        }
    }

    /// Counts the end.
    pub(crate) fn ended(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for AcquireTimer<'_> {
    fn drop(&mut self) {
        let (sink, name, outcome) = (self.sink, self.name, self.outcome);
        sink.waiters
            .fetch_sub(self.ends_at.iter().len(), Ordering::Relaxed);
        let waited = self.clock.now().since(self.began_at);
        sink.add(&table::ACQUISITIONS, &[outcome], 1);
        sink.record(&table::ACQUIRE_WAIT, &[outcome], waited);
        tracing::debug!(
            name,
            group = sink.group(),
            outcome,
            waited_ms = milliseconds(waited),
            "acquire ended"
        );
    }
}
