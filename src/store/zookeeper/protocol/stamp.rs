//! The time of the ensemble: what its leader's stamps say about how much of a term is left. Pure.
//!
//! The leader stamps each write with its wall clock and a number that grows from write to write. A stamp that came back
//! to this client is a lower bound of the leader's clock from then on. Stamps of one leader can be compared. The clocks
//! of two leaders are unrelated, so a term that an earlier leader stamped has ended only once this client has seen it
//! unchanged for its whole time.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Instant;

/// Maximum age of the last stamp for minting a token, because this machine's clock may run faster than the leader's. No
/// reply is overtaken by as much, so a lower stamp that comes after one of this age is from servers that lost their
/// data.
const OLD: Duration = Duration::from_secs(60);

/// The moment of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    /// The leader's wall clock, in milliseconds since 1970.
    pub(crate) ms: u64,
    /// The number of the write.
    pub(crate) zxid: i64,
}

/// Number of stamps whose first sighting is remembered before those of ended terms are dropped.
const ENOUGH: usize = 4096;

/// The leader's clock, as far as its stamps tell.
#[derive(Debug, Default)]
pub(crate) struct LeaderClock {
    /// The stamp with the highest number: the tokens are above it.
    last: Option<Heard>,
    /// The stamp of the same leader that was heard last: terms are over by it. A server alone that was restored from an
    /// old copy numbers its writes from there, so that all its stamps have lower numbers than the highest for a while,
    /// and its clock may have been set back meanwhile.
    latest: Option<Heard>,
    /// When the last change of leaders was noticed.
    changed_at: Option<Instant>,
    /// The moments when this client first saw terms that began with a stamp, with their lengths.
    seen: HashMap<Stamp, (Instant, Duration)>,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    stamp: Stamp,
    at: Instant,
}

impl Stamp {
    /// Returns the number of the leader that wrote it.
    pub(crate) const fn epoch(self) -> i64 {
        self.zxid >> 32
    }

    /// Returns the leader's clock as a duration since 1970.
    pub(crate) const fn since_1970(self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

impl LeaderClock {
    /// Records the stamp of a write of this client, whose reply came at `now`.
    pub(crate) fn hear(&mut self, stamp: Stamp, now: Instant) {
        let heard = Some(Heard { stamp, at: now });
        match self.last.filter(|last| now.since(last.at) < OLD) {
            Some(last) if last.stamp.epoch() > stamp.epoch() => return,
            Some(last) if last.stamp.zxid >= stamp.zxid => {
                self.latest = heard;
                return;
            }
            _ => {}
        }
        let epoch = self.last.map(|last| last.stamp.epoch());
        if epoch.is_some_and(|epoch| epoch != stamp.epoch()) {
            self.changed_at = Some(now);
        }
        (self.last, self.latest) = (heard, heard);
    }

    /// Returns whether, as far as this client knows, the same leader has written for this long.
    pub(crate) fn is_settled_for(&self, span: Duration, now: Instant) -> bool {
        self.changed_at.is_none_or(|at| now.since(at) >= span)
    }

    /// Returns a time that the leader's clock has reached, in microseconds since 1970. `None` if the last stamp is too
    /// old to tell.
    pub(crate) fn now_us(&self, now: Instant) -> Option<u64> {
        let last = self.last.filter(|last| now.since(last.at) <= OLD)?;
        let heard = [Some(last), self.latest].into_iter().flatten();
        let reached = heard.map(|heard| heard.stamp.since_1970() + now.since(heard.at));
        u64::try_from(reached.max()?.as_micros()).ok()
    }

    /// Returns what is at most left of a term of this length that began with this stamp. `None` if that takes another
    /// write of this client: it has no stamp of the leader that stamped the term, or none at all.
    pub(crate) fn left(&mut self, began: Stamp, span: Duration, now: Instant) -> Option<Duration> {
        let latest = self.latest?;
        let is_of_this_leader = match began.epoch().cmp(&latest.stamp.epoch()) {
            Ordering::Greater => return None,
            order => order == Ordering::Equal,
        };
        if is_of_this_leader {
            let reached = latest.stamp.since_1970() + now.since(latest.at);
            // The stamp is rounded down to whole milliseconds.
            let end = began.since_1970() + span + Duration::from_millis(1);
            let left = end.saturating_sub(reached);
            if left < span {
                return Some(left);
            }
        }
        // How long it has been as it is matters only without the leader's clock, now or after a change of leaders.
        let unchanged_for = now.since(self.first_seen(began, span, now));
        Some(if is_of_this_leader {
            span
        } else {
            span.saturating_sub(unchanged_for)
        })
    }

    fn first_seen(&mut self, began: Stamp, span: Duration, now: Instant) -> Instant {
        if self.seen.len() > ENOUGH {
            self.seen
                .retain(|_, (at, span)| now.since(*at) <= *span * 2);
        }
        let (at, longest) = self.seen.entry(began).or_insert((now, span));
        *longest = span.max(*longest);
        *at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn stamp(ms: u64, epoch: i64, count: i64) -> Stamp {
        let zxid = (epoch << 32) + count;
        Stamp { ms, zxid }
    }

    fn left_ms(clock: &mut LeaderClock, began: Stamp, now: u64) -> Option<u128> {
        let left = clock.left(began, SPAN, at(now));
        left.map(|left| left.as_millis())
    }

    fn heard(stamps: &[(Stamp, u64)]) -> LeaderClock {
        let mut clock = LeaderClock::default();
        for (stamp, ms) in stamps {
            clock.hear(*stamp, at(*ms));
        }
        clock
    }

    #[test]
    fn a_term_of_this_leader_ends_by_its_own_clock() {
        // The leader's clock is a minute ahead of ours.
        let mut clock = heard(&[(stamp(60_500, 1, 9), 500)]);
        let mut left = |now| left_ms(&mut clock, stamp(60_000, 1, 5), now);
        assert_eq!(left(500), Some(1_501));
        assert_eq!(left(2_000), Some(1));
        assert_eq!(left(2_001), Some(0));
    }

    #[test]
    fn a_term_of_an_earlier_leader_ends_once_it_was_seen_unchanged_for_its_time() {
        // The next leader's clock is an hour ahead.
        let mut clock = heard(&[(stamp(60_500, 1, 9), 500), (stamp(3_660_600, 2, 1), 600)]);
        let mut left = |count, now| left_ms(&mut clock, stamp(60_000, 1, count), now);
        assert_eq!(left(5, 9_000), Some(2_000));
        assert_eq!(left(5, 10_000), Some(1_000));
        // It was renewed meanwhile, by the earlier leader still.
        assert_eq!(left(6, 10_500), Some(2_000));
        assert_eq!(left(5, 11_000), Some(0));
    }

    #[test]
    fn a_term_numbered_as_one_before_a_loss_of_data_is_counted_anew() {
        let mut clock = heard(&[(stamp(5, 3, 0), 0)]);
        assert_eq!(left_ms(&mut clock, stamp(9_000, 1, 7), 100), Some(2_000));
        assert_eq!(left_ms(&mut clock, stamp(11_000, 1, 7), 2_200), Some(2_000));
    }

    #[test]
    fn a_term_of_a_later_leader_needs_a_stamp_of_its_own() {
        let mut clock = heard(&[(stamp(60_500, 1, 9), 500)]);
        for now in [600, 60_000] {
            assert_eq!(left_ms(&mut clock, stamp(1, 2, 5), now), None);
            let mut unheard = LeaderClock::default();
            assert_eq!(left_ms(&mut unheard, stamp(1, 2, 5), now), None);
        }
    }

    #[test]
    fn a_reply_that_was_overtaken_moves_nothing_back() {
        let clock = heard(&[(stamp(60_500, 1, 9), 500), (stamp(60_400, 1, 8), 900)]);
        assert_eq!(clock.now_us(at(500)), Some(60_500_000));
    }

    #[test]
    fn a_server_that_was_restored_and_whose_clock_was_set_back_ends_no_term_early() {
        // Its writes are numbered from an old copy on, and its clock is half a minute behind where it was.
        let mut clock = heard(&[(stamp(60_500, 0, 90), 500), (stamp(31_000, 0, 40), 1_000)]);
        let mut left = |now| left_ms(&mut clock, stamp(31_000, 0, 39), now);
        assert_eq!(left(1_500), Some(1_501));
        assert_eq!(left(3_001), Some(0));
        assert_eq!(
            clock.now_us(at(1_000)),
            Some(61_000_000),
            "tokens do not fall"
        );
    }

    #[test]
    fn tokens_of_a_server_that_was_restored_are_not_behind_its_clock() {
        // The clock that was behind by half a minute is right again.
        let clock = heard(&[(stamp(60_500, 0, 90), 500), (stamp(91_000, 0, 40), 1_000)]);
        assert_eq!(clock.now_us(at(1_500)), Some(91_500_000));
    }

    #[test]
    fn after_a_loss_of_data_the_time_is_known_again_within_a_minute() {
        // It numbers its writes anew, alone or with the other servers of its ensemble.
        for (before, after) in [(0, 0), (7, 3)] {
            let mut clock = heard(&[
                (stamp(60_500, before, 9_000), 500),
                (stamp(90_000, after, 4), 30_000),
                (stamp(125_000, after, 5), 65_000),
            ]);
            assert_eq!(clock.now_us(at(65_100)), Some(125_100_000));
            assert_eq!(clock.now_us(at(125_001)), None, "too long ago");
            let left = left_ms(&mut clock, stamp(125_000, after, 5), 65_100);
            assert_eq!(left, Some(1_901));
        }
    }

    #[test]
    fn a_change_of_leaders_is_remembered() {
        let mut clock = heard(&[(stamp(60_500, 1, 9), 500)]);
        assert!(clock.is_settled_for(SPAN, at(600)));
        clock.hear(stamp(1, 2, 1), at(600));
        assert!(!clock.is_settled_for(SPAN, at(2_599)));
        assert!(clock.is_settled_for(SPAN, at(2_600)));
    }
}
