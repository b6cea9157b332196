//! A call to acquire, from its begin to its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use metrics::histogram;

use super::counts::Counts;
use super::table;
use super::words::{AcquireOutcome, Trigger};
use crate::clock::{Clock, Instant};
use crate::group::Group;

/// Counts the attempts of a call and its end. Dropped before its end, the call was cancelled.
#[derive(Debug)]
pub(crate) struct AcquireTimer<'a> {
    counts: &'static Counts,
    group: Group,
    name: &'a str,
    clock: &'a dyn Clock,
    began_at: Instant,
    is_waiter: bool,
    has_ended: bool,
}

impl<'a> AcquireTimer<'a> {
    /// A call that does not wait for other holders.
    pub(crate) fn begin_try(group: Group, name: &'a str, clock: &'a dyn Clock) -> Self {
        Self::new(group, name, clock, false)
    }

    /// A call that waits.
    pub(crate) fn begin_wait(group: Group, name: &'a str, clock: &'a dyn Clock) -> Self {
        let timer = Self::new(group, name, clock, true);
        timer.counts.waiters.fetch_add(1, Ordering::Relaxed);
        timer
    }

    fn new(group: Group, name: &'a str, clock: &'a dyn Clock, is_waiter: bool) -> Self {
        tracing::debug!(name, group = group.as_str(), "acquire begins");
        Self {
            counts: Counts::of_group(group),
            group,
            name,
            clock,
            began_at: clock.now(),
            is_waiter,
            has_ended: false,
        }
    }

    /// The call asks the store.
    pub(crate) fn attempted(&self, trigger: Trigger) {
        self.counts
            .add(&table::ACQUIRE_ATTEMPTS, &[trigger.as_str()], 1);
    }

    /// The store answered that another holder has the name.
    pub(crate) fn waits(&self, remaining: Option<Duration>) {
        let (name, group) = (self.name, self.group.as_str());
        tracing::debug!(
            name,
            group,
            ?remaining,
            "acquire waits: another holder has the name"
        );
    }

    pub(crate) fn began_at(&self) -> Instant {
        self.began_at
    }

    /// Counts the end.
    pub(crate) fn ended(mut self, outcome: AcquireOutcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: AcquireOutcome) {
        self.has_ended = true;
        if self.is_waiter {
            self.counts.waiters.fetch_sub(1, Ordering::Relaxed);
        }
        let waited = self.clock.now().since(self.began_at);
        let (group, outcome) = (self.group.as_str(), outcome.as_str());
        self.counts.add(&table::ACQUISITIONS, &[outcome], 1);
        let metric = table::ACQUIRE_WAIT.name;
        histogram!(metric, "group" => group, "outcome" => outcome).record(waited);
        tracing::debug!(name = self.name, group, outcome, ?waited, "acquire ended");
    }
}

impl Drop for AcquireTimer<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(AcquireOutcome::Cancelled);
        }
    }
}
