//! Chooses the token that a claim proposes, by the clocks and floors that the members have told.
//!
//! Any token above those that were taken will do, so a wrong choice costs a round trip and never a promise. The members'
//! clocks make the first choice right nearly always; the client's wall clock is not used.

use std::time::Duration;

use super::planted::Planted;
use super::{AHEAD, NextProposal, majority, micros};
use crate::term::Instant;
use crate::token::Token;

/// How far in front of the highest clock a token is proposed: more than the clocks of members differ that are kept in
/// time, and more than a request takes that is late. A member that it reaches later still refuses it, and the lease stays
/// at the others until its first renewal.
pub const SPREAD: Duration = Duration::from_secs(1);

/// The clocks of the members as they told them last, carried on by the client's.
#[derive(Debug, Clone)]
pub struct Proposer {
    readings: Vec<Option<MemberTime>>,
    /// Until when tokens are proposed in front of the clocks, because a member has lost its data.
    leads_until: Instant,
    planted: Planted,
}

#[derive(Debug, Clone, Copy)]
struct MemberTime {
    clock_us: u64,
    at: Instant,
}

/// What a token has to be above, beside the clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// The floor that the caller gave.
    pub floor: Option<Token>,
    /// The highest token or floor that the store has seen of this name.
    pub seen: u64,
}

/// A token would be further in front of the clocks of a majority than the members accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFarAhead {
    /// The token.
    pub token: u64,
    /// The clock that a majority of members has reached, in microseconds since 1970.
    pub clock_us: u64,
}

impl Proposer {
    /// Returns the clocks of so many members, before any of them was read.
    pub fn new(members: usize, planted: Planted) -> Self {
        Self {
            readings: vec![None; members],
            leads_until: Instant::ZERO,
            planted,
        }
    }

    /// Notes the clock that a member told, and when its answer came.
    pub fn note_clock(&mut self, member: usize, clock_us: u64, at: Instant) {
        let reading = &mut self.readings[member];
        // Answers may be read in another order than they were given.
        if reading.is_none_or(|reading| reading.at <= at) {
            *reading = Some(MemberTime { clock_us, at });
        }
    }

    /// Returns whether the clock of a member is known.
    pub fn knows_a_clock(&self) -> bool {
        self.readings.iter().any(Option::is_some)
    }

    /// Notes the floor that binds all names of a server, the clock that came with it, and when its answer came.
    ///
    /// The floor is that of the server's last loss of data, [`AHEAD`] in front of its clock then. All tokens are proposed above
    /// it at once: otherwise each claim of a name that was leased since needs a second round.
    pub fn note_floor(&mut self, of_server: u64, clock_us: u64, at: Instant) {
        let left_us = of_server
            .saturating_add(micros(AHEAD))
            .saturating_sub(clock_us);
        let left = Duration::from_micros(left_us).min(2 * AHEAD);
        self.leads_until = self.leads_until.max(at.after(left));
    }

    /// How far in front of the clocks tokens are because of that: by [`AHEAD`] at first, and by half of what has passed less
    /// from then on. So they rise, and yet come back to the clock. What is between them and `AHEAD` is by how much the clock of
    /// the next member that loses its data may be behind.
    fn lead(&self, now: Instant) -> Duration {
        self.leads_until.since(now) / 2
    }

    /// Returns the token to propose. `None` as long as no member's clock was read.
    ///
    /// # Errors
    /// The token would be refused by a majority, because a floor is too far in front of its clocks.
    pub fn propose(
        &self,
        wish: Wish,
        next: NextProposal,
        now: Instant,
    ) -> Result<Option<Token>, TooFarAhead> {
        if let NextProposal::Again(token) = next {
            return Ok(Some(token));
        }
        let mut clocks: Vec<u64> = self
            .readings
            .iter()
            .flatten()
            .map(|reading| {
                reading
                    .clock_us
                    .saturating_add(micros(now.since(reading.at)))
            })
            .collect();
        clocks.sort_unstable_by(|one, other| other.cmp(one));
        let Some(highest) = clocks.first() else {
            return Ok(None);
        };
        // The clock that so many members have reached, or all whose clock is known.
        let many = majority(self.readings.len()).min(clocks.len());
        let clock_us = clocks[many - 1];
        let most = clock_us.saturating_add(micros(AHEAD));
        let by_clock = highest
            .saturating_add(micros(self.lead(now)))
            .saturating_add(micros(SPREAD));
        let token = self.planted.above(next).max(by_clock.min(most));
        let token = token
            .max(wish.seen.saturating_add(1))
            .max(wish.floor.map_or(0, |floor| floor.get() + 1));
        match Token::new(token) {
            Ok(proposed) if token <= most => Ok(Some(proposed)),
            _ => Err(TooFarAhead { token, clock_us }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_000_000_000_000;
    const AT: Instant = Instant::from_nanos(7_000_000_000);

    fn proposer<const N: usize>(clocks: [Option<u64>; N]) -> Proposer {
        let mut proposer = Proposer::new(N, Planted::default());
        for (member, clock) in clocks.into_iter().enumerate() {
            if let Some(clock) = clock {
                proposer.note_clock(member, clock, AT);
            }
        }
        proposer
    }

    fn token(number: u64) -> Token {
        Token::new(number).expect("within the limits")
    }

    fn fresh(proposer: &Proposer, wish: Wish) -> u64 {
        let proposed = proposer.propose(wish, NextProposal::Fresh, AT);
        proposed.expect("not too far").expect("a clock").get()
    }

    #[test]
    fn a_token_is_a_little_in_front_of_the_highest_clock() {
        let proposer = proposer([Some(NOW - 500), Some(NOW), Some(NOW - 700)]);
        assert_eq!(fresh(&proposer, Wish::default()), NOW + 1_000_000);
    }

    #[test]
    fn the_clocks_are_carried_on() {
        let proposer = proposer([Some(NOW), None, None]);
        let later = AT.after(Duration::from_secs(3));
        let proposed = proposer.propose(Wish::default(), NextProposal::Fresh, later);
        assert_eq!(proposed, Ok(Some(token(NOW + 4_000_000))));
    }

    #[test]
    fn an_older_reading_does_not_replace_a_later_one() {
        let mut proposer = proposer([Some(NOW), None, None]);
        proposer.note_clock(0, NOW - 9_000_000, AT.before(Duration::from_secs(1)));
        assert_eq!(fresh(&proposer, Wish::default()), NOW + 1_000_000);
        proposer.note_clock(0, NOW - 9_000_000, AT);
        assert_eq!(fresh(&proposer, Wish::default()), NOW - 8_000_000);
    }

    #[test]
    fn without_a_clock_there_is_no_proposal() {
        let proposer = proposer([None, None, None]);
        let proposed = proposer.propose(Wish::default(), NextProposal::Fresh, AT);
        assert_eq!(proposed, Ok(None));
    }

    #[test]
    fn what_was_seen_of_the_name_and_the_callers_floor_lift_it() {
        let proposer = proposer([Some(NOW), Some(NOW), Some(NOW)]);
        let seen = NOW + 2_000_000;
        let wish = Wish { seen, floor: None };
        assert_eq!(fresh(&proposer, wish), seen + 1);
        let floor = Some(token(seen + 7));
        assert_eq!(fresh(&proposer, Wish { seen, floor }), seen + 8);
    }

    #[test]
    fn what_this_holder_tried_before_is_passed_and_what_it_was_granted_repeated() {
        let proposer = proposer([Some(NOW), Some(NOW), Some(NOW)]);
        let tried = token(NOW + 2_000_000);
        let next = |next| proposer.propose(Wish::default(), next, AT);
        assert_eq!(
            next(NextProposal::Above(tried)),
            Ok(Some(token(NOW + 2_000_001)))
        );
        assert_eq!(next(NextProposal::Again(tried)), Ok(Some(tried)));
    }

    #[test]
    fn a_server_that_came_back_empty_lifts_all_later_proposals() {
        let mut proposer = proposer([Some(NOW), Some(NOW), Some(NOW)]);
        let minute = 60_000_000;
        let floor = NOW + micros(AHEAD) - minute;
        proposer.note_floor(floor, NOW, AT);
        proposer.note_floor(NOW + 5, NOW, AT);
        proposer.note_floor(0, NOW, AT);
        assert_eq!(
            fresh(&proposer, Wish::default()),
            floor + minute / 2 + 1_000_000
        );
    }

    #[test]
    fn tokens_rise_while_they_come_back_to_the_clock() {
        let mut proposer = proposer([Some(NOW), Some(NOW), Some(NOW)]);
        proposer.note_floor(NOW + micros(AHEAD), NOW, AT);
        let after = |passed| {
            let proposed = proposer.propose(Wish::default(), NextProposal::Fresh, AT.after(passed));
            proposed.expect("not too far").expect("a clock").get() - micros(passed) - NOW
        };
        let hour = Duration::from_secs(3_600);
        let second = 1_000_000;
        assert_eq!(after(hour), micros(AHEAD - hour / 2) + second);
        assert_eq!(after(2 * hour), micros(hour) + second);
        assert_eq!(after(4 * hour), second);
        assert_eq!(after(9 * hour), second);
    }

    #[test]
    fn the_next_floor_is_above_all_tokens_though_the_clock_is_behind_by_half_of_the_time_since_the_last_loss()
     {
        let mut proposer = proposer([Some(NOW), Some(NOW), Some(NOW)]);
        proposer.note_floor(NOW + micros(AHEAD), NOW, AT);
        for minutes in [1, 10, 100, 1_000] {
            let passed = Duration::from_secs(60 * minutes);
            let last = proposer.propose(Wish::default(), NextProposal::Fresh, AT.after(passed));
            let last = last.expect("not too far").expect("a clock").get();
            let behind = (passed / 2).min(AHEAD) - SPREAD;
            let next_floor = NOW + micros(passed) - micros(behind) + micros(AHEAD);
            assert!(next_floor >= last, "{minutes} min: {next_floor} {last}");
        }
    }

    #[test]
    fn the_lift_never_leads_past_what_a_majority_accepts() {
        let hour = 3_600_000_000;
        let mut proposer = proposer([Some(NOW + hour), Some(NOW), Some(NOW)]);
        proposer.note_floor(NOW + micros(AHEAD), NOW, AT);
        assert_eq!(fresh(&proposer, Wish::default()), NOW + micros(AHEAD));
    }

    #[test]
    fn one_clock_far_ahead_leads_no_majority_astray() {
        let day = 24 * 3_600_000_000;
        let proposer = proposer([Some(NOW), Some(NOW), Some(NOW + day)]);
        assert_eq!(fresh(&proposer, Wish::default()), NOW + micros(AHEAD));
    }

    #[test]
    fn a_floor_too_far_ahead_is_refused_before_anything_is_sent() {
        let proposer = proposer([Some(NOW), Some(NOW), Some(NOW)]);
        let wish = |floor| Wish {
            seen: 0,
            floor: Some(token(floor)),
        };
        let last = NOW + micros(AHEAD) - 1;
        assert_eq!(fresh(&proposer, wish(last)), last + 1);
        let refused = proposer.propose(wish(last + 1), NextProposal::Fresh, AT);
        let too_far = TooFarAhead {
            token: last + 2,
            clock_us: NOW,
        };
        assert_eq!(refused, Err(too_far));
    }

    #[test]
    fn no_token_is_proposed_past_the_greatest() {
        let top = Token::MAX.get();
        let proposer = proposer([Some(top - 5), Some(top - 5), Some(top - 5)]);
        assert!(
            proposer
                .propose(Wish::default(), NextProposal::Fresh, AT)
                .is_err()
        );
    }
}
