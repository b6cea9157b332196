//! The timings of all that is held, counted: what the longest ttl and the least margin of them are is known at once.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::term::Timing;

/// Counts the leases of each timing. A client has few of them, so this stays small however many leases there are.
#[derive(Debug, Default)]
pub(super) struct Timings {
    ttls: BTreeMap<Duration, usize>,
    margins: BTreeMap<Duration, usize>,
}

impl Timings {
    pub(super) fn add(&mut self, timing: &Timing) {
        *self.ttls.entry(timing.ttl()).or_default() += 1;
        *self.margins.entry(timing.margin()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, timing: &Timing) {
        take_one(&mut self.ttls, timing.ttl());
        take_one(&mut self.margins, timing.margin());
    }

    /// Zero if nothing is held.
    pub(super) fn longest_ttl(&self) -> Duration {
        let longest = self.ttls.last_key_value();
        longest.map_or(Duration::ZERO, |(ttl, _)| *ttl)
    }

    /// Zero if nothing is held.
    pub(super) fn least_margin(&self) -> Duration {
        let least = self.margins.first_key_value();
        least.map_or(Duration::ZERO, |(margin, _)| *margin)
    }
}

fn take_one(counts: &mut BTreeMap<Duration, usize>, length: Duration) {
    if let Some(count) = counts.get_mut(&length) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(ttl_s: u64, margin_ms: u64) -> Timing {
        let margin = Duration::from_millis(margin_ms);
        Timing::new(Duration::from_secs(ttl_s), Some(margin)).expect("valid")
    }

    #[test]
    fn the_longest_and_the_least_are_of_what_is_held_now() {
        let mut timings = Timings::default();
        let known = |timings: &Timings| {
            let (ttl, margin) = (timings.longest_ttl(), timings.least_margin());
            (ttl.as_secs(), margin.as_millis())
        };
        assert_eq!(known(&timings), (0, 0));
        let (long, short) = (timing(3_600, 5_000), timing(3, 100));
        for timing in [&long, &short, &short] {
            timings.add(timing);
        }
        assert_eq!(known(&timings), (3_600, 100));
        timings.remove(&short);
        assert_eq!(known(&timings), (3_600, 100));
        timings.remove(&short);
        assert_eq!(known(&timings), (3_600, 5_000));
        timings.remove(&long);
        assert_eq!(known(&timings), (0, 0));
    }
}
