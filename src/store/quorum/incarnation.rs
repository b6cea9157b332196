//! What a member keeps of itself: whether its server still has its data.
//!
//! A server that comes back without its data has forgotten two things, and each has its own cure. It has forgotten which
//! holders have which names: so it takes no part in claims for the longest ttl, because a claim that was half done may be
//! on no other member. It has forgotten which tokens it took: so it takes only tokens above a floor, because waiting
//! does not help against a token that repeats.

use std::time::Duration;

use super::planted::Planted;
use super::{AHEAD, MAX_TTL, TOKEN_MEMORY, Vote, micros};

/// The row that is written when a server is first seen, and when it is seen to have lost its data.
///
/// `R` identifies one run of the server's process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation<R> {
    run: R,
    /// From when it takes part in claims, by its clock.
    ready_us: u64,
    /// It takes only tokens above this one.
    floor_us: u64,
    /// The longest ttl of its clients when the row was written, in milliseconds.
    max_ttl_ms: u64,
}

/// The settings that every client of a quorum has alike, and what was read of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The longest ttl.
    pub max_ttl: Duration,
    /// How far in front of the clock a token may be.
    pub ahead: Duration,
    /// How long a counter is kept after the clock has passed it.
    pub memory: Duration,
    /// Whether the server has every write on disk before it answers, so that a restart loses nothing.
    pub is_trusted: bool,
    /// What is wrong, in the project's own tests.
    pub planted: Planted,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_ttl: MAX_TTL,
            ahead: AHEAD,
            memory: TOKEN_MEMORY,
            is_trusted: false,
            planted: Planted::default(),
        }
    }
}

impl Rules {
    /// Returns how long a member grants nothing after it has lost its data: the longest ttl, and a hundredth more
    /// because the clocks of the holders may be slower than the member's.
    pub fn keep_out(&self) -> Duration {
        super::keep_out(self.max_ttl)
    }
}

impl<R: PartialEq> Incarnation<R> {
    /// Returns the floor of the server's tokens, 0 for none, or why it takes no part in claims. Writes the row if there
    /// is none of this run of the server.
    pub fn admit(row: &mut Option<Self>, run: R, rules: &Rules, now_us: u64) -> Result<u64, Vote> {
        let max_ttl_ms = micros(rules.max_ttl) / 1_000;
        let known = match row.take() {
            Some(known) => {
                let theirs = known.max_ttl_ms;
                let known = row.insert(known);
                if theirs != max_ttl_ms {
                    return Err(Vote::Mismatch(theirs));
                }
                if known.run != run {
                    if !rules.is_trusted {
                        known.lose(rules, now_us);
                    }
                    known.run = run;
                }
                known
            }
            None => {
                let known = row.insert(Self {
                    run,
                    ready_us: 0,
                    floor_us: 0,
                    max_ttl_ms,
                });
                known.lose(rules, now_us);
                known
            }
        };
        if known.ready_us > now_us {
            return Err(Vote::Away(known.ready_us - now_us));
        }
        Ok(known.floor_us)
    }

    /// Notes that the data is lost.
    fn lose(&mut self, rules: &Rules, now_us: u64) {
        let (keep_out, ahead) = rules.planted.after_a_loss(rules.keep_out(), rules.ahead);
        self.ready_us = now_us.saturating_add(micros(keep_out));
        self.floor_us = match ahead {
            Some(ahead) => now_us.saturating_add(micros(ahead)),
            None => 0,
        };
    }

    /// Returns the row of a member that has been in use since long before `now_us`: it grants at once, and its tokens
    /// follow its clock.
    pub fn settled(run: R, rules: &Rules) -> Self {
        Self {
            run,
            ready_us: 0,
            floor_us: 0,
            max_ttl_ms: micros(rules.max_ttl) / 1_000,
        }
    }

    /// Returns for how long the member grants nothing, if it does not.
    pub fn away(&self, now_us: u64) -> Option<Duration> {
        let left = self.ready_us.saturating_sub(now_us);
        (left > 0).then(|| Duration::from_micros(left))
    }

    /// Removes what the model no longer needs to tell apart: a keep-out that is over.
    pub fn forget_keep_out(&mut self, now_us: u64) {
        if self.ready_us <= now_us {
            self.ready_us = 0;
        }
    }

    /// Ends the keep-out before its time, as a member does whose clock gained that much. For the model.
    pub fn end_keep_out(&mut self) {
        self.ready_us = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5_000_000_000;

    fn ask(
        row: &mut Option<Incarnation<u8>>,
        run: u8,
        rules: &Rules,
        now: u64,
    ) -> Result<u64, Vote> {
        Incarnation::admit(row, run, rules, now)
    }

    fn keep_out() -> u64 {
        micros(Rules::default().keep_out())
    }

    #[test]
    fn the_keep_out_is_longer_than_the_longest_ttl() {
        let rules = Rules::default();
        assert_eq!(rules.keep_out(), Duration::from_millis(60_602));
    }

    #[test]
    fn a_new_member_keeps_out_and_then_has_a_floor() {
        let (mut row, rules) = (None, Rules::default());
        assert_eq!(ask(&mut row, 1, &rules, NOW), Err(Vote::Away(keep_out())));
        let late = NOW + keep_out() - 1;
        assert_eq!(ask(&mut row, 1, &rules, late), Err(Vote::Away(1)));
        let floor = NOW + micros(AHEAD);
        assert_eq!(ask(&mut row, 1, &rules, late + 1), Ok(floor));
    }

    #[test]
    fn another_run_keeps_out_again_and_lifts_the_floor() {
        let rules = Rules::default();
        let mut row = Some(Incarnation::settled(1, &rules));
        assert_eq!(ask(&mut row, 1, &rules, NOW), Ok(0));
        assert_eq!(ask(&mut row, 2, &rules, NOW), Err(Vote::Away(keep_out())));
        let late = NOW + keep_out();
        assert_eq!(ask(&mut row, 2, &rules, late), Ok(NOW + micros(AHEAD)));
        assert!(ask(&mut row, 3, &rules, late).is_err());
    }

    #[test]
    fn another_run_of_a_trusted_server_takes_part_at_once() {
        let rules = Rules {
            is_trusted: true,
            ..Rules::default()
        };
        let mut row = Some(Incarnation::settled(1, &rules));
        assert_eq!(ask(&mut row, 2, &rules, NOW), Ok(0));
        // And the run is noted: a client that does not trust the server sees no other run.
        assert_eq!(ask(&mut row, 2, &Rules::default(), NOW), Ok(0));
    }

    #[test]
    fn a_trusted_server_without_its_row_has_lost_its_data() {
        let rules = Rules {
            is_trusted: true,
            ..Rules::default()
        };
        assert!(ask(&mut None, 1, &rules, NOW).is_err());
    }

    #[test]
    fn clients_with_another_longest_ttl_are_refused_and_change_nothing() {
        let rules = Rules::default();
        let mut row = Some(Incarnation::settled(1, &rules));
        let other = Rules {
            max_ttl: Duration::from_secs(10),
            ..rules
        };
        assert_eq!(ask(&mut row, 2, &other, NOW), Err(Vote::Mismatch(60_000)));
        assert_eq!(row, Some(Incarnation::settled(1, &rules)));
    }

    #[test]
    fn members_are_told_for_how_long_one_is_away() {
        let (mut row, rules) = (None, Rules::default());
        let _ = ask(&mut row, 1, &rules, NOW);
        let row = row.expect("written");
        assert_eq!(row.away(NOW), Some(rules.keep_out()));
        assert_eq!(row.away(NOW + keep_out()), None);
    }
}
