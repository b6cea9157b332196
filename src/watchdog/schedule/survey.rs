//! Reads a schedule for the gauges, in parts, so that the schedule is not locked for long.

use super::slot::Phase;
use super::{LeaseId, Schedule};
use crate::telemetry::Survey;
use crate::term::Instant;

/// Leases read under one lock: a few tenths of a millisecond.
const AT_ONCE: usize = 4_096;

impl Schedule {
    /// Adds some leases, from this one on, and how long ago the loop should have turned. Returns the next one, or
    /// `None` after the last.
    pub fn survey(&self, from: LeaseId, now: Instant, survey: &mut Survey) -> Option<LeaseId> {
        // A turn without a planned moment is due since the last one.
        let overdue = now.since(self.asleep_until.max(self.turned_at));
        survey.overdue = survey.overdue.max(overdue);
        let end = from.index() + AT_ONCE;
        for index in from.index()..end {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            if let Phase::Held(holding) = &slot.phase {
                let (name, timing) = (&slot.lease.name, slot.lease.timing);
                survey.note_held(name, timing, holding.deadline, holding.failures, now);
                if holding.attempt.is_none() && holding.renew_at <= now {
                    survey.backlog += 1;
                }
            }
        }
        (end < self.slots.capacity()).then(|| LeaseId::new(end))
    }
}
