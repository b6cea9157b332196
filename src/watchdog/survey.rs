//! Reads a client's leases for the gauges. The reporter calls it.

use super::Shared;
use crate::group::Group;
use crate::telemetry::{Survey, Surveyed};

impl Surveyed for Shared {
    fn group(&self) -> Group {
        self.reporter.group()
    }

    fn survey(&self, survey: &mut Survey) {
        let mut from = None;
        loop {
            let now = self.clock.now();
            from = self.schedule().survey(from, now, survey);
            if from.is_none() {
                break;
            }
        }
        let now = self.clock.now();
        self.schedule().survey_loop(now, survey);
    }
}
