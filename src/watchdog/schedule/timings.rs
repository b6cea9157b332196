//! The timings of all that is held, counted: for the longest ttl and the least margin among them.

use std::collections::HashMap;
use std::time::Duration;

use crate::term::Timing;

/// Counts the leases of each timing. A client has few timings, however many leases it has.
#[derive(Debug, Default)]
pub(super) struct Timings(HashMap<Timing, usize>);

impl Timings {
    pub(super) fn add(&mut self, timing: &Timing) {
        *self.0.entry(*timing).or_default() += 1;
    }

    pub(super) fn remove(&mut self, timing: &Timing) {
        if let Some(count) = self.0.get_mut(timing) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(timing);
            }
        }
    }

    /// Zero if nothing is held.
    pub(super) fn longest_ttl(&self) -> Duration {
        self.0.keys().map(Timing::ttl).max().unwrap_or_default()
    }

    /// Zero if nothing is held.
    pub(super) fn least_margin(&self) -> Duration {
        self.0.keys().map(Timing::margin).min().unwrap_or_default()
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
