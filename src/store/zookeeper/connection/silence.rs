//! Decides when a silent server is left for another one. Pure: the connection counts the ticks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Interval between checks of a connection.
pub(super) const TICK: Duration = Duration::from_millis(125);
/// Number of ticks that a server may be silent: a second.
pub(super) const USUAL: u32 = 8;
/// That number if a lease has a ttl of two seconds or less: half a second.
const LEAST: u32 = 4;
/// That number for servers that were slow, because their writes may take as long: four seconds.
pub(super) const MOST: u32 = 32;
/// Number of ticks after which the server of a connection counts as not slow: three seconds.
const PROBATION: u32 = 24;

/// The limit for a server that is not slow, which the leases of a session set.
#[derive(Debug, Clone)]
pub(crate) struct SilenceLimit(Arc<AtomicU32>);

/// The silence of the server of one connection.
#[derive(Debug)]
pub(super) struct Silence {
    /// Age of the connection in ticks.
    age: u32,
    /// Number of ticks that the server has been silent.
    quiet: u32,
    /// Number of ticks that it may be silent, as of the beginning of the silence, so that the ping comes in time before
    /// the end.
    limit: u32,
    /// The limit as long as the server may be slow.
    first: u32,
    /// The limit after that.
    usual: SilenceLimit,
}

/// The action that is due at a tick.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Ping the server.
    Ask,
    /// Leave the server.
    Leave,
}

impl SilenceLimit {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU32::new(USUAL)))
    }

    /// Limits a silence to a quarter of this ttl, if that is shorter: a lease with this ttl is then renewed through
    /// another server well before its deadline.
    pub(crate) fn limit_for(&self, ttl: Duration) {
        let ticks = (ttl / 4).as_millis() / TICK.as_millis();
        let ticks = u32::try_from(ticks).unwrap_or(USUAL).max(LEAST);
        self.0.fetch_min(ticks, Ordering::Relaxed);
    }
}

impl Silence {
    /// Begins with a new connection, whose server may be silent for `first` ticks at first.
    pub(super) fn new(first: u32, usual: SilenceLimit) -> Self {
        Self {
            age: 0,
            quiet: 0,
            limit: first,
            first,
            usual,
        }
    }

    /// Records a sign of life of the server.
    pub(super) fn end(&mut self) {
        self.quiet = 0;
    }

    pub(super) fn tick(&mut self) -> Due {
        if self.quiet == 0 && self.is_tried() {
            self.limit = self.usual.0.load(Ordering::Relaxed);
        }
        self.age += 1;
        self.quiet += 1;
        if self.quiet >= self.limit {
            Due::Leave
        } else if self.quiet == self.limit / 2 {
            Due::Ask
        } else {
            Due::Nothing
        }
    }

    /// Returns the number of ticks that the server of the next connection may be silent at first.
    pub(super) fn first_of_next(&self) -> u32 {
        if self.is_tried() {
            USUAL
        } else {
            (2 * self.first).min(MOST)
        }
    }

    const fn is_tried(&self) -> bool {
        self.age >= PROBATION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks until the connection is given up. Returns the tick of the ping, and that of the end.
    fn silent_until(silence: &mut Silence) -> (u32, u32) {
        let mut asked = 0;
        for tick in 1.. {
            match silence.tick() {
                Due::Nothing => {}
                Due::Ask => asked = tick,
                Due::Leave => return (asked, tick),
            }
        }
        unreachable!("a silence ends")
    }

    fn after_probation(usual: SilenceLimit) -> Silence {
        let mut silence = Silence::new(USUAL, usual);
        for _ in 0..PROBATION {
            silence.tick();
            silence.end();
        }
        silence
    }

    #[test]
    fn a_server_is_asked_for_a_word_before_it_is_left() {
        let mut silence = Silence::new(USUAL, SilenceLimit::new());
        assert_eq!(silent_until(&mut silence), (USUAL / 2, USUAL));
    }

    #[test]
    fn the_shortest_ttl_decides_when_a_server_that_was_well_is_left() {
        for (ttl_ms, ticks) in [(30_000, USUAL), (3_000, 6), (2_000, LEAST), (1_000, LEAST)] {
            let silence_limit = SilenceLimit::new();
            silence_limit.limit_for(Duration::from_secs(30));
            silence_limit.limit_for(Duration::from_millis(ttl_ms));
            let mut silence = after_probation(silence_limit);
            assert_eq!(silent_until(&mut silence), (ticks / 2, ticks), "{ttl_ms}");
        }
    }

    #[test]
    fn a_shorter_limit_never_ends_a_silence_that_had_begun() {
        let silence_limit = SilenceLimit::new();
        let mut silence = after_probation(silence_limit.clone());
        silence.tick();
        silence_limit.limit_for(Duration::from_secs(2));
        assert_eq!(silent_until(&mut silence).1, USUAL - 1);
    }

    #[test]
    fn a_server_that_is_slow_at_once_gives_the_next_one_more_time() {
        let slow = Silence::new(USUAL, SilenceLimit::new());
        assert_eq!(slow.first_of_next(), 2 * USUAL);
        assert_eq!(
            Silence::new(MOST, SilenceLimit::new()).first_of_next(),
            MOST
        );
        assert_eq!(after_probation(SilenceLimit::new()).first_of_next(), USUAL);
    }
}
