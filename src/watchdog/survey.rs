//! What the gauges tell of a client's leases, read by the reporter.

use super::Shared;
use super::schedule::LeaseId;
use crate::group::Group;
use crate::telemetry::{Survey, Surveyed};

impl Surveyed for Shared {
    fn group(&self) -> Group {
        self.reporter.group()
    }

    fn survey(&self, survey: &mut Survey) {
        let mut next = Some(LeaseId::FIRST);
        while let Some(from) = next {
            let now = self.clock.now();
            next = self.schedule().survey(from, now, survey);
        }
        let now = self.clock.now();
        self.schedule().survey_loop(now, survey);
    }
}
