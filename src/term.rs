//! The pure arithmetic of one lease's time: from when its last confirmed request was sent, it computes when to renew,
//! when the lease is at risk, and when it ends.
//!
//! ```text
//! sent_at      renew_at              at_risk_at         deadline    sent_at + ttl
//!    |------------|----------------------|------------------|------------|
//!              ttl/3 - jitter         2/3 ttl          - margin   the store may grant again
//! ```
//!
//! Counted from *before* the request left: the store may have started the term that early. Reads no clock.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Error;

/// A moment on the clock of a lease, in nanoseconds since that clock's zero. Compare only moments of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The earliest moment.
    pub const ZERO: Self = Self(0);
    /// The latest moment.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the moment this many nanoseconds after the clock's zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `duration` later, or [`FAR_FUTURE`](Self::FAR_FUTURE) if that is past it.
    #[must_use = "returns the later moment"]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the moment `duration` earlier, or [`ZERO`](Self::ZERO) if that is before it.
    #[must_use = "returns the earlier moment"]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A part of a ttl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    of: u32,
    parts: u32,
}

impl Fraction {
    const fn new(of: u32, parts: u32) -> Self {
        Self { of, parts }
    }

    /// Returns this part of a ttl.
    #[must_use = "returns the part"]
    pub fn of(self, ttl: Duration) -> Duration {
        let (of, parts) = self.ratio();
        ttl * of / parts
    }

    /// Returns what is left of a ttl after this part of it.
    #[must_use = "returns the rest"]
    pub fn rest_of(self, ttl: Duration) -> Duration {
        ttl - self.of(ttl)
    }

    /// Returns the ttl of which this much is left after this part of it.
    #[must_use = "returns the ttl"]
    pub fn ttl_of_rest(self, rest: Duration) -> Duration {
        let (of, parts) = self.ratio();
        rest * parts / (parts - of)
    }

    fn ratio(self) -> (u32, u32) {
        (self.of, self.parts)
    }
}

/// The ttl of a lease, and how much earlier than the store the holder counts it as over. Checked when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    /// In nanoseconds, as there is one for each lease.
    ttl: u64,
    margin: u64,
}

impl Timing {
    /// Minimum ttl. Below it, the default margin and a slow scheduler leave no time to renew.
    pub const MIN_TTL: Duration = Duration::from_secs(1);
    /// Minimum ttl for callers that set their own margin, and so take responsibility for the timing of their machine.
    pub const MIN_TTL_WITH_MARGIN: Duration = Duration::from_millis(100);
    /// The greatest ttl: a lease that is not renewed is free again within a day.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
    /// The ttl of a request that sets none.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
    /// Latest renewal: after this part of the ttl.
    pub const RENEWED_AFTER: Fraction = Fraction::new(1, 3);
    /// Part of the ttl after which a missing renewal is shown as late, and a job is prepared for its end.
    pub const LATE_AFTER: Fraction = Fraction::new(1, 2);
    /// Part of the ttl after which a missing renewal puts the lease at risk.
    pub const AT_RISK_AFTER: Fraction = Fraction::new(2, 3);
    /// Minimum part of the ttl that must be left of a grant that is handed out.
    pub const FRESH: Fraction = Fraction::new(1, 4);

    /// Checks a ttl and a margin. The default margin is ttl/50 + 20 ms.
    ///
    /// # Errors
    /// `Invalid`, with the value and the limits.
    pub fn new(ttl: Duration, margin: Option<Duration>) -> Result<Self, Error> {
        let least = match margin {
            Some(_) => Self::MIN_TTL_WITH_MARGIN,
            None => Self::MIN_TTL,
        };
        if !(least..=Self::MAX_TTL).contains(&ttl) {
            let hint = if margin.is_none() && ttl < Self::MIN_TTL {
                "; with an explicit margin as little as 100ms"
            } else {
                ""
            };
            return Err(Error::invalid(format!(
                "ttl {ttl:?} refused: expected {least:?} to 24h{hint}"
            )));
        }
        let margin = margin.unwrap_or(ttl / 50 + Duration::from_millis(20));
        // Keeps renew_at < at_risk_at < deadline.
        if margin.is_zero() || margin >= Self::AT_RISK_AFTER.rest_of(ttl) {
            return Err(Error::invalid(format!(
                "margin {margin:?} refused: expected more than 0 and less than a third of the ttl {ttl:?}"
            )));
        }
        Ok(Self {
            ttl: nanos(ttl),
            margin: nanos(margin),
        })
    }

    /// Returns how long the store keeps the lease without a renewal.
    pub const fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl)
    }

    /// Returns how much earlier than the store the holder counts the lease as over.
    pub const fn margin(&self) -> Duration {
        Duration::from_nanos(self.margin)
    }

    /// Returns the term that begins with a request sent at this moment.
    pub const fn term(self, sent_at: Instant) -> Term {
        Term {
            sent_at,
            timing: self,
        }
    }

    /// Returns the term that ends at this deadline.
    pub fn term_until(self, deadline: Instant) -> Term {
        self.term(deadline.before(self.ttl() - self.margin()))
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::new(Self::DEFAULT_TTL, None).expect("the default is within the limits")
    }
}

impl fmt::Debug for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ttl={:?} margin={:?}", self.ttl(), self.margin())
    }
}

/// The number of moments for renewals in one ttl. The window of a later renewal has ten of them.
const GRAINS: u64 = 300;

/// The period for which a lease is held: from when the last confirmed request was sent to the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    sent_at: Instant,
    timing: Timing,
}

impl Term {
    /// Returns when the confirmed request was sent.
    pub const fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Returns when the lease ceases to count as held.
    pub fn deadline(&self) -> Instant {
        self.sent_at.after(self.timing.ttl() - self.timing.margin())
    }

    /// Returns when a missing renewal puts the lease at risk.
    pub fn at_risk_at(&self) -> Instant {
        self.sent_at
            .after(Timing::AT_RISK_AFTER.of(self.timing.ttl()))
    }

    /// Returns when to renew: `roll` picks a moment within [`renewal_window`](Self::renewal_window). The moments are on
    /// a grid with steps of ttl/300 that all leases of one ttl share. So a hundred thousand leases are renewed in full
    /// batches, and not in ten thousand small ones a second.
    pub(crate) fn renew_at(&self, first: bool, roll: u16) -> Instant {
        let window = self.renewal_window(first);
        let width = nanos(window.end().since(*window.start()));
        let share = u128::from(width) * u128::from(roll) / u128::from(u16::MAX);
        let share = u64::try_from(share).expect("a share of the width is no more than it");
        let picked = window.start().after(Duration::from_nanos(share));
        let grain = (self.timing.ttl / GRAINS).max(1);
        let on_grid = picked.before(Duration::from_nanos(picked.0 % grain));
        if on_grid < *window.start() {
            on_grid.after(Duration::from_nanos(grain))
        } else {
            on_grid
        }
    }

    /// Returns the span within which a renewal may be planned: the last tenth of the time until it is due. The first
    /// renewal is spread over the second half of that time, so that leases acquired together are not renewed together
    /// for ever.
    pub(crate) fn renewal_window(&self, first: bool) -> RangeInclusive<Instant> {
        let due = Timing::RENEWED_AFTER.of(self.timing.ttl());
        let early = if first { due / 2 } else { due / 10 };
        self.sent_at.after(due - early)..=self.sent_at.after(due)
    }
}

/// Returns how long one attempt to renew may stay unanswered, `left` before the deadline, until the next one is sent:
/// half of that, so that another attempt fits, but never so little that no server could answer. Without this floor
/// the halves would never end.
pub(crate) fn attempt_budget(timing: &Timing, left: Duration) -> Duration {
    // In nanoseconds, as it is computed many times a turn.
    let least = (timing.ttl / 50).max(10_000_000);
    let most = nanos(request_limit(timing.ttl())).max(least);
    Duration::from_nanos((nanos(left) / 2).clamp(least, most))
}

/// Returns the maximum silence of a server before another connection to it is tried.
pub fn request_limit(ttl: Duration) -> Duration {
    (ttl / 6).min(Duration::from_secs(2))
}

/// Returns how long to wait for the answer to a claim or a release, for callers without a limit: longer than a server
/// may be silent, because on a slow line the answer comes after that.
pub fn answer_limit(ttl: Duration) -> Duration {
    (ttl / 3).min(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_default_margin_is_a_fiftieth_and_20_ms() {
        assert_eq!(Timing::default().ttl(), ms(30_000));
        assert_eq!(Timing::default().margin(), ms(620));
    }

    #[test]
    fn the_deadline_is_counted_from_the_send() {
        let term = Timing::new(ms(3_000), Some(ms(100)))
            .expect("valid")
            .term(Instant::from_nanos(1_000_000));
        assert_eq!(term.deadline(), Instant::from_nanos(2_901_000_000));
        assert_eq!(term.at_risk_at(), Instant::from_nanos(2_001_000_000));
        assert_eq!(
            term.renew_at(false, u16::MAX),
            Instant::from_nanos(1_000_000_000)
        );
        assert_eq!(term.renew_at(false, 0), Instant::from_nanos(910_000_000));
        assert_eq!(term.renew_at(true, 0), Instant::from_nanos(510_000_000));
    }

    #[test]
    fn ttls_outside_the_limits_are_refused_with_their_value() {
        for (ttl, margin) in [
            (ms(0), None),
            (ms(999), None),
            (ms(99), Some(ms(1))),
            (ms(86_400_001), None),
        ] {
            let message = Timing::new(ttl, margin).expect_err("refused").to_string();
            assert!(message.contains(&format!("{ttl:?}")), "{message}");
        }
        assert!(Timing::new(ms(1_000), None).is_ok());
        assert!(Timing::new(ms(100), Some(ms(5))).is_ok());
        assert!(Timing::new(Timing::MAX_TTL, None).is_ok());
    }

    #[test]
    fn margins_that_leave_no_room_are_refused() {
        for margin in [ms(0), ms(1_000), ms(5_000)] {
            assert!(Timing::new(ms(3_000), Some(margin)).is_err(), "{margin:?}");
        }
    }

    #[test]
    fn time_stops_at_its_ends_instead_of_wrapping() {
        assert_eq!(Instant::FAR_FUTURE.after(ms(1)), Instant::FAR_FUTURE);
        assert_eq!(Instant::ZERO.before(Duration::MAX), Instant::ZERO);
        assert_eq!(Instant::ZERO.since(Instant::FAR_FUTURE), Duration::ZERO);
        let term = Timing::default().term(Instant::FAR_FUTURE);
        assert_eq!(term.deadline(), Instant::FAR_FUTURE);
    }

    #[test]
    fn retries_come_to_an_end() {
        let timing = Timing::default();
        let (mut left, mut attempts) = (timing.ttl(), 0);
        while !left.is_zero() && attempts < 30 {
            left = left.saturating_sub(attempt_budget(&timing, left));
            attempts += 1;
        }
        assert!(attempts < 30, "{attempts}");
        assert_eq!(attempt_budget(&timing, timing.ttl()), ms(2_000));
        assert_eq!(attempt_budget(&timing, ms(1)), ms(600));
    }

    proptest! {
        #[test]
        fn the_moments_are_in_order(
            sent in 0_u64..u64::MAX / 2,
            ttl_ms in 100_u64..86_400_000,
            share in 0.000_1_f64..0.333,
            roll: u16,
            first: bool,
        ) {
            let ttl = ms(ttl_ms);
            if let Ok(timing) = Timing::new(ttl, Some(ttl.mul_f64(share))) {
                let term = timing.term(Instant::from_nanos(sent));
                prop_assert!(term.renewal_window(first).contains(&term.renew_at(first, roll)));
                prop_assert!(term.renew_at(first, roll) < term.at_risk_at());
                prop_assert!(term.at_risk_at() < term.deadline());
                prop_assert!(term.deadline() < term.sent_at().after(ttl));
                prop_assert_eq!(timing.term_until(term.deadline()), term);
            }
        }

        #[test]
        fn a_budget_is_within_its_limits(left_ms in 0_u64..100_000, ttl_ms in 1_000_u64..86_400_000) {
            let timing = Timing::new(ms(ttl_ms), None).expect("valid");
            let budget = attempt_budget(&timing, ms(left_ms));
            prop_assert!(budget >= ms(10) && budget >= timing.ttl() / 50);
            prop_assert!(budget <= ms(2_000).max(timing.ttl() / 50));
        }
    }
}
