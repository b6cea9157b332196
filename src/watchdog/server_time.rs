//! Detects steps of the server's clock.
//!
//! A server counts expiry on its own wall clock. When that is stepped forward, every lease on it ends earlier than its
//! holder believes. Each batch of renewals brings the server's time, and so how far that clock is from ours, within the
//! time that the batch took. Two such readings that exclude each other show a step. A step of our own clock between
//! them hides as much of it. Pure.

use std::time::Duration;

use crate::term::Instant;

/// Maximum drift of the two clocks that does not count as a step, in parts per million: ntpd slews a clock by at most
/// 500, and a quartz by itself drifts by 100.
const DRIFT_PPM: u32 = 500;

/// One reading of the server's clock: taken by it at some moment between our two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// When our request was sent.
    pub(crate) sent_at: Instant,
    /// When its reply arrived.
    pub(crate) seen_at: Instant,
    /// The reading of the server's clock, since 1970.
    pub(crate) server: Duration,
}

/// The meaning of a reading for the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Both clocks advanced alike.
    Alike,
    /// The server's clock gained at most this much on ours: leases that were confirmed before end that much earlier.
    Forward(Duration),
    /// The server's clock lost at least this much on ours: leases end later, which does no harm.
    Backward(Duration),
    /// The server answered before a step forward that is already known: only the leases that this reply confirms end
    /// that much earlier.
    Before(Duration),
}

/// The readings of the server's clock that still count.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    /// What the readings since its oldest one allow together.
    offset: Option<Offset>,
    /// What the last reading allows alone.
    last: Option<Offset>,
    step: Option<ClockStep>,
    /// When the last step back was seen.
    back_at: Option<Instant>,
}

/// The offset of the server's clock from ours, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Offset {
    least: i128,
    most: i128,
    seen_at: Instant,
    /// The moment of the oldest reading that bounds it.
    since: Instant,
}

/// The last step forward.
#[derive(Debug, Clone, Copy)]
struct ClockStep {
    seen_at: Instant,
    by: Duration,
}

impl ServerClock {
    /// Records a reading. Within `tolerance`, and the drift since the last reading, the clocks agree. Readings further
    /// apart than `memory` are not compared: no lease was confirmed before the one and is still held at the other.
    pub(crate) fn read(
        &mut self,
        reading: Reading,
        tolerance: Duration,
        memory: Duration,
    ) -> Finding {
        let now = Offset::of(reading);
        let is_recent = |known: &Offset| reading.sent_at.since(known.since) <= memory;
        let known = [self.offset, self.last.replace(now)];
        let Some(known) = known.into_iter().flatten().find(is_recent) else {
            self.offset = Some(now);
            return Finding::Alike;
        };
        let tolerance = nanos(tolerance);
        let drifted = known.drifted_until(reading.seen_at);
        if now.least > drifted.most + tolerance {
            let is_before = |seen_at| reading.sent_at < seen_at;
            if self.back_at.is_some_and(is_before) {
                // Taken before a step back that is known already: what it confirms ends later.
                return Finding::Alike;
            }
            let by = duration(now.most - known.least);
            self.offset = Some(now);
            self.step = Some(ClockStep {
                seen_at: reading.seen_at,
                by,
            });
            return Finding::Forward(by);
        }
        if now.most + tolerance < drifted.least {
            if self.gained_since(reading.sent_at).is_some() {
                return Finding::Before(duration(known.most - now.least));
            }
            self.offset = Some(now);
            self.back_at = Some(reading.seen_at);
            return Finding::Backward(duration(known.least - now.most));
        }
        self.offset = Some(drifted.narrowed(now));
        Finding::Alike
    }

    /// Returns how much the server's clock may have gained since a request that was sent at this moment.
    pub(crate) fn gained_since(&self, sent_at: Instant) -> Option<Duration> {
        let step = self.step.filter(|step| sent_at < step.seen_at);
        step.map(|step| step.by)
    }
}

impl Offset {
    fn of(reading: Reading) -> Self {
        let server = nanos(reading.server);
        Self {
            least: server - i128::from(reading.seen_at.as_nanos()),
            most: server - i128::from(reading.sent_at.as_nanos()),
            seen_at: reading.seen_at,
            since: reading.seen_at,
        }
    }

    /// The offsets that are possible at a later moment, given this reading and the drift.
    fn drifted_until(self, later: Instant) -> Self {
        let drift = nanos(later.since(self.seen_at)) * i128::from(DRIFT_PPM) / 1_000_000;
        Self {
            least: self.least - drift,
            most: self.most + drift,
            ..self
        }
    }

    /// The offsets that both readings allow. If drift has moved them apart, those of the later one. A slow answer
    /// bounds them little, so the older reading may remain in force.
    fn narrowed(self, later: Self) -> Self {
        let (least, most) = (self.least.max(later.least), self.most.min(later.most));
        let is_both = least <= most;
        let is_later = !is_both || (least, most) == (later.least, later.most);
        Self {
            least: if is_both { least } else { later.least },
            most: if is_both { most } else { later.most },
            seen_at: self.seen_at.max(later.seen_at),
            since: if is_later { later.since } else { self.since },
        }
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

fn duration(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Duration = Duration::from_millis(100);
    const MEMORY: Duration = Duration::from_secs(30);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn reading(sent_ms: u64, seen_ms: u64, server_ms: u64) -> Reading {
        Reading {
            sent_at: Instant::ZERO.after(ms(sent_ms)),
            seen_at: Instant::ZERO.after(ms(seen_ms)),
            server: ms(server_ms),
        }
    }

    /// Returns what the last of these readings, given as (sent, seen, server) in milliseconds, finds.
    fn last(readings: &[(u64, u64, u64)]) -> Finding {
        let mut clock = ServerClock::default();
        let findings = readings.iter().map(|&(sent, seen, server)| {
            clock.read(reading(sent, seen, server), TOLERANCE, MEMORY)
        });
        findings.last().expect("at least one reading")
    }

    #[test]
    fn time_that_passes_alike_is_no_step() {
        assert_eq!(
            last(&[(0, 10, 5_000), (1_000, 1_010, 6_000)]),
            Finding::Alike
        );
        assert_eq!(
            last(&[(0, 10, 5_000), (1_000, 1_010, 6_100)]),
            Finding::Alike
        );
    }

    #[test]
    fn a_slow_way_is_no_step() {
        assert_eq!(
            last(&[(0, 3_000, 5_000), (3_000, 3_010, 8_000)]),
            Finding::Alike
        );
    }

    #[test]
    fn an_answer_awaited_for_long_does_not_let_an_old_reading_count_beyond_the_memory() {
        // The server's clock is slower by five thousandths.
        assert_eq!(
            last(&[
                (0, 10, 5_000),
                (12_000, 29_000, 33_855),
                (31_000, 31_010, 35_850)
            ]),
            Finding::Alike
        );
        // Against the answer that was awaited for long a step is seen nevertheless.
        assert_eq!(
            last(&[
                (0, 10, 5_000),
                (12_000, 29_000, 33_855),
                (31_000, 31_010, 60_000)
            ]),
            Finding::Forward(ms(60_000 - 31_000 - 4_855))
        );
    }

    #[test]
    fn steps_are_seen_with_their_size() {
        assert_eq!(
            last(&[(0, 10, 5_000), (1_000, 1_010, 8_000)]),
            Finding::Forward(ms(3_000 - 990))
        );
        assert_eq!(
            last(&[(0, 10, 5_000), (1_000, 1_010, 2_000)]),
            Finding::Backward(ms(3_990))
        );
    }

    #[test]
    fn a_step_is_found_once_however_many_batches_were_in_flight() {
        let first = [(0, 10, 5_000), (1_000, 1_010, 8_000)];
        assert!(matches!(last(&first), Finding::Forward(_)));
        assert_eq!(
            last(&[first[0], first[1], (1_000, 1_011, 8_001)]),
            Finding::Alike
        );
        assert_eq!(
            last(&[first[0], first[1], (999, 1_012, 8_002)]),
            Finding::Alike
        );
    }

    #[test]
    fn a_reply_from_before_a_known_step_ends_earlier_and_is_no_step_back() {
        let seen = [(0, 10, 5_000), (1_000, 1_010, 8_000), (990, 1_011, 5_995)];
        assert_eq!(last(&seen), Finding::Before(ms(2_016)));
        let next = [seen[0], seen[1], seen[2], (2_000, 2_010, 9_000)];
        assert_eq!(last(&next), Finding::Alike);
    }

    #[test]
    fn a_reply_from_before_a_known_step_back_is_no_step_forward() {
        let seen = [(0, 10, 5_000), (1_000, 1_010, 2_000), (990, 1_011, 5_995)];
        assert_eq!(last(&seen), Finding::Alike);
        let again = (2_000, 2_010, 6_000);
        assert!(matches!(
            last(&[seen[0], seen[1], seen[2], again]),
            Finding::Forward(_)
        ));
    }

    #[test]
    fn a_request_sent_before_a_step_was_seen_may_have_been_granted_before_it() {
        let mut clock = ServerClock::default();
        clock.read(reading(0, 10, 5_000), TOLERANCE, MEMORY);
        clock.read(reading(1_000, 1_010, 8_000), TOLERANCE, MEMORY);
        let at = |sent_ms| Instant::ZERO.after(ms(sent_ms));
        assert_eq!(clock.gained_since(at(1_009)), Some(ms(2_010)));
        assert_eq!(clock.gained_since(at(1_010)), None);
    }

    #[test]
    fn the_drift_of_an_idle_hour_is_no_step() {
        assert_eq!(
            last(&[(0, 10, 5_000), (3_600_000, 3_600_010, 3_606_000)]),
            Finding::Alike
        );
    }

    #[test]
    fn the_drift_between_two_readings_far_apart_is_no_step() {
        const HOUR: Duration = Duration::from_secs(3_600);
        for server in [1_804_995, 1_805_300] {
            let mut clock = ServerClock::default();
            clock.read(reading(0, 10, 5_000), TOLERANCE, HOUR);
            let found = clock.read(reading(1_800_000, 1_800_010, server), TOLERANCE, HOUR);
            assert_eq!(found, Finding::Alike, "{server}");
        }
    }

    #[test]
    fn drift_that_adds_up_over_many_readings_is_no_step() {
        let mut clock = ServerClock::default();
        for index in 0..1_000 {
            let sent = index * 10_000;
            let found = clock.read(
                reading(sent, sent + 5, sent + index * 90),
                TOLERANCE,
                MEMORY,
            );
            assert_eq!(found, Finding::Alike, "{index}");
        }
    }
}
