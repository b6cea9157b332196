//! Reads a schedule for the gauges, in parts, so that the schedule is not locked for long.

use std::time::Duration;

use super::slot::Phase;
use super::{LeaseId, Schedule};
use crate::telemetry::Survey;
use crate::term::Instant;

/// Leases read under one lock: a few tenths of a millisecond.
const AT_ONCE: usize = 4_096;

impl Schedule {
    /// Adds some leases, from this one on, or from the first. Returns the next one, or `None` after the last.
    pub fn survey(
        &self,
        from: Option<LeaseId>,
        now: Instant,
        survey: &mut Survey,
    ) -> Option<LeaseId> {
        let from = from.unwrap_or(LeaseId::FIRST).index();
        let end = from + AT_ONCE;
        for index in from..end {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            if let Phase::Held(holding) = &slot.phase {
                let failures = self.failing.get(&LeaseId::new(index));
                let failures = failures.copied().unwrap_or_default();
                let (name, timing) = (&slot.lease.name, slot.lease.timing);
                survey.note_held(name, timing, holding.deadline, failures, now);
                if holding.attempt.is_none() && holding.renew_at <= now {
                    survey.note_due();
                }
            }
        }
        (end < self.slots.capacity()).then(|| LeaseId::new(end))
    }

    /// Adds how long ago the loop should have turned.
    pub fn survey_loop(&self, now: Instant, survey: &mut Survey) {
        survey.note_overdue(self.overdue(now));
    }

    /// The time by which the next turn is overdue; zero while the loop sleeps as planned. A turn without a planned
    /// moment is due since the last one.
    fn overdue(&self, now: Instant) -> Duration {
        now.since(self.asleep_until.max(self.turned_at))
    }
}
