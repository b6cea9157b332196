//! Tells a step of the server's clock from the passing of time.
//!
//! A server counts expiry on its own wall clock. When that is stepped forward, every lease on it ends earlier than its
//! holder believes. Each batch of renewals brings the server's time; two of them and our own clock show the step. Pure.

use std::time::Duration;

use crate::term::Instant;

/// One reading of the server's clock: taken by it at some moment between our two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// When our request left.
    pub(crate) sent_at: Instant,
    /// When its reply was here.
    pub(crate) seen_at: Instant,
    /// What the server's clock showed, since 1970.
    pub(crate) server: Duration,
}

/// By how much the server's clock stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jump {
    /// It gained so much on ours, at the most: leases end that much earlier.
    Forward(Duration),
    /// It lost so much on ours, at the least: leases end later, which harms nobody.
    Backward(Duration),
}

/// Compares two readings. What the ways to and fro can explain, and what is within `tolerance`, is no jump.
pub(crate) fn jump(earlier: Reading, later: Reading, tolerance: Duration) -> Option<Jump> {
    let most = later.seen_at.since(earlier.sent_at);
    let least = later.sent_at.since(earlier.seen_at);
    let server = later.server.saturating_sub(earlier.server);
    if server > most + tolerance {
        return Some(Jump::Forward(server - least));
    }
    if server + tolerance < least {
        let back = earlier.server.saturating_sub(later.server);
        return Some(Jump::Backward(least - server + back));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(sent_ms: u64, seen_ms: u64, server_ms: u64) -> Reading {
        Reading {
            sent_at: Instant::ZERO.after(Duration::from_millis(sent_ms)),
            seen_at: Instant::ZERO.after(Duration::from_millis(seen_ms)),
            server: Duration::from_millis(server_ms),
        }
    }

    const TOLERANCE: Duration = Duration::from_millis(100);

    #[test]
    fn time_that_passes_alike_is_no_jump() {
        let first = reading(0, 10, 5_000);
        assert_eq!(jump(first, reading(1_000, 1_010, 6_000), TOLERANCE), None);
        assert_eq!(jump(first, reading(1_000, 1_010, 6_100), TOLERANCE), None);
    }

    #[test]
    fn a_slow_way_is_no_jump() {
        let slow = reading(0, 3_000, 5_000);
        assert_eq!(jump(slow, reading(3_000, 3_010, 8_000), TOLERANCE), None);
    }

    #[test]
    fn steps_are_seen_with_their_size() {
        let first = reading(0, 10, 5_000);
        assert_eq!(
            jump(first, reading(1_000, 1_010, 8_000), TOLERANCE),
            Some(Jump::Forward(Duration::from_millis(3_000 - 990)))
        );
        assert_eq!(
            jump(first, reading(1_000, 1_010, 2_000), TOLERANCE),
            Some(Jump::Backward(Duration::from_millis(3_990)))
        );
    }
}
