//! When to look again for a name that somebody else holds. Pure.
//!
//! A waiter looks when the holder's remaining ttl is over, with a little jitter *after* it: looking earlier would only
//! spin. It also looks in between, as often as its store's hints and costs make sensible, because the name may be freed
//! before.

use std::time::Duration;

/// How long a waiter sleeps before it looks again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The longest sleep.
    pub(crate) cap: Duration,
}

impl Pace {
    /// For stores that give no hints: a look is cheap there, and nothing else would tell that the name was freed.
    pub(crate) const WITHOUT_NOTICES: Duration = Duration::from_millis(100);

    /// The sleep before the next look; `roll` picks the jitter.
    pub(crate) fn pause(self, remaining: Option<Duration>, roll: u16) -> Duration {
        let until_free = remaining.unwrap_or(Duration::MAX);
        let pause = until_free.min(self.cap);
        // Up to a tenth more, so that many waiters do not look in the same instant.
        pause
            + pause.mul_f64(f64::from(roll) / f64::from(u16::MAX) / 10.0)
            + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        cap: Duration::from_secs(5),
    };

    #[test]
    fn a_waiter_never_looks_before_the_remaining_ttl_is_over() {
        for roll in [0, 1, u16::MAX] {
            let remaining = Duration::from_secs(2);
            let pause = PACE.pause(Some(remaining), roll);
            assert!(pause > remaining && pause < remaining * 2, "{pause:?}");
        }
    }

    #[test]
    fn a_waiter_looks_at_least_as_often_as_the_cap() {
        for remaining in [None, Some(Duration::from_secs(3_600))] {
            assert!(PACE.pause(remaining, u16::MAX) < PACE.cap * 2);
        }
    }
}
