//! Releases that are still to be sent or repeated.
//!
//! A release is final at once only if no attempt of its claim is unanswered: a claim that was delayed on its way may
//! arrive after the release and be granted without a holder. Then the claim is *doubtful*, and its release is repeated
//! until one ttl after the last unanswered attempt was sent; whatever lands later runs out by itself. Pure, like the
//! schedule.

use std::time::Duration;

use crate::term::{Instant, Timing};

/// The releases that one claim without a holder still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// From this moment on, whatever the claim left in the store expires by itself.
    until: Instant,
    /// Whether an attempt of the claim is unanswered, so that even a clear answer is not the last word.
    is_doubtful: bool,
    /// The number of releases that were sent.
    tries: u32,
}

impl Doubt {
    /// A claim whose last request was sent at `last_sent`. Up to `unanswered_until` an attempt may still be carried
    /// out; none, if that is zero.
    pub(crate) fn new(last_sent: Instant, ttl: Duration, unanswered_until: Instant) -> Self {
        Self {
            until: last_sent.after(ttl).max(unanswered_until),
            is_doubtful: unanswered_until > Instant::ZERO,
            tries: 0,
        }
    }

    /// Records a clear answer, `Released` or `NotHeld`. Returns when to send the next release, if one is needed.
    pub(crate) fn answered(&mut self, now: Instant, ttl: Duration) -> Option<Instant> {
        if self.is_doubtful {
            self.again(now, ttl)
        } else {
            None
        }
    }

    /// Returns when to repeat a release that got no answer; `None` once the lease has expired by itself.
    pub(crate) fn again(&mut self, now: Instant, ttl: Duration) -> Option<Instant> {
        if now >= self.until {
            return None;
        }
        let pause = pause(self.tries, ttl);
        self.tries += 1;
        Some(now.after(pause).min(self.until))
    }
}

/// 1 s, 2 s, 4 s and so on, at most as long as between renewals: a claim that arrives late keeps the name no longer.
fn pause(tries: u32, ttl: Duration) -> Duration {
    Duration::from_secs(1 << tries.min(10)).min(Timing::RENEWED_AFTER.of(ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_clear_answer_is_final_without_doubt() {
        assert_eq!(
            Doubt::new(at(0), TTL, Instant::ZERO).answered(at(1), TTL),
            None
        );
    }

    #[test]
    fn a_doubtful_claim_is_released_again_until_one_ttl_has_passed() {
        let mut doubt = Doubt::new(at(0), TTL, at(30));
        let mut now = at(0);
        let mut sent = vec![];
        while let Some(next) = doubt.answered(now, TTL) {
            sent.push(next);
            now = next;
        }
        assert_eq!(sent, [at(1), at(3), at(7), at(15), at(25), at(30)]);
    }

    #[test]
    fn an_unanswered_release_is_repeated_until_the_lease_has_run_out() {
        let mut doubt = Doubt::new(at(10), TTL, Instant::ZERO);
        assert_eq!(doubt.again(at(12), TTL), Some(at(13)));
        assert_eq!(doubt.again(at(39), TTL), Some(at(40)));
        assert_eq!(doubt.again(at(40), TTL), None);
    }
}
