//! Who waits for which name, and when somebody looks again.
//!
//! ```text
//!  waiter ── join ──► Waiters of the name ◄── hint ── hub's thread ◄── the store's notices
//!    ▲                     │ first in line only
//!    └──── turn ◄──────────┘
//! ```
//!
//! The waiters of one name stand in a [line](waiters::Waiters), first come first served; only the first looks, for all of them.
//! The [`Hub`] has all lines of a client and listens, on a thread of its own, to the one subscription of the client: there
//! it outlives the user's runtimes, and what a waker of the user's does cannot delay a renewal.
//!
//! A waiter looks when a hint comes and when the holder's time is over, with a little jitter *after* it: looking earlier
//! would only spin. Hints can be lost, so it looks in between as well.

mod hub;
mod listener;
mod registry;
mod waiters;

use std::time::Duration;

pub(crate) use self::hub::{Hub, Next, Place};
pub(crate) use self::waiters::Found;

/// What a waiting claim does when the store cannot be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutagePolicy {
    /// Fails with the store's error.
    #[default]
    Fail,
    /// Goes on trying, within the limit of the wait.
    WaitOut,
}

/// In which order those who wait for one name are served.
///
/// Within one client it is always first come, first served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitOrder {
    /// Whichever client asks first after the name was freed. It costs the least, and a client can be unlucky for long.
    #[default]
    Any,
    /// Clients take turns in the order in which they joined. With `c` live clients waiting, a waiter with `w` before it in
    /// its client is served after at most `(w + 1) * c` grants; with one waiter in each client that is plain first come,
    /// first served. Nobody overtakes a live client, those who wait for any order or only try included. A client is live
    /// that looked within 9 s and takes the name up within 2 s of its turn; a dead one at its turn costs those 2 s.
    ///
    /// A flush, a failover or a step of the server's clock can cost the order, and nothing else. All stores of this crate
    /// have lines; one of others that has none serves it as `Any`.
    Fair,
}

/// How long the first in line sleeps before it looks again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The longest sleep.
    cap: Duration,
}

impl Pace {
    /// Where the store gives hints: a lost one costs no more than this.
    pub(crate) const WITH_NOTICES: Self = Self {
        cap: Duration::from_secs(5),
    };
    /// For a client in the store's line: it shows three times within its patience that it is alive.
    pub(crate) const IN_LINE: Self = Self {
        cap: Duration::from_secs(3),
    };
    /// Where nothing else would tell that the name was freed.
    pub(crate) const WITHOUT_NOTICES: Self = Self {
        cap: Duration::from_millis(100),
    };
    /// The most by which a look comes after the moment that it waits for: clients that wait for one moment are spread
    /// over it, and a name that is free does not lie idle for longer.
    const JITTER: Duration = Duration::from_millis(50);

    /// The sleep before the next look; `roll` picks the jitter.
    pub(crate) fn pause(self, remaining: Option<Duration>, roll: u16) -> Duration {
        let pause = remaining.unwrap_or(Duration::MAX).min(self.cap);
        let jitter = (pause / 10).min(Self::JITTER);
        let share = f64::from(roll) / f64::from(u16::MAX);
        // Never less than a millisecond, so that a name whose time is over but which is not free is not hammered.
        pause + jitter.mul_f64(share) + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_never_looks_before_the_remaining_ttl_is_over() {
        for roll in [0, 1, u16::MAX] {
            for remaining in [Duration::ZERO, Duration::from_secs(2)] {
                let late = Pace::WITH_NOTICES.pause(Some(remaining), roll) - remaining;
                assert!(!late.is_zero() && late < Pace::JITTER * 2, "{late:?}");
            }
        }
    }

    #[test]
    fn a_waiter_looks_at_least_as_often_as_the_cap() {
        for pace in [Pace::WITH_NOTICES, Pace::IN_LINE, Pace::WITHOUT_NOTICES] {
            for remaining in [None, Some(Duration::from_secs(3_600))] {
                assert!(pace.pause(remaining, u16::MAX) < pace.cap * 2);
            }
        }
    }
}
