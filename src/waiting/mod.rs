//! Decides which task of a client waits for which name, and when one of them asks the store again.
//!
//! ```text
//!  waiter ── join ──► Waiters of the name ◄── notice ── listener ◄── the store's notices
//!    ▲                     │ the first waiter only
//!    └──── Turn ◄──────────┘
//! ```
//!
//! The waiters of one name form a [queue](waiters::Waiters), first come, first served; only the first polls the
//! store, for all of them. Where the store has a queue, the poll keeps the client's place in it, and a name that is
//! freed is granted to the claim of that poll: a notice says so, and the first waiter has the lease, under the deadline
//! that its last poll confirmed. The [`Hub`] has all waiters of a client. One [`listener`] has the client's one
//! subscription, away from the watchdog: a waker of the user's that blocks cannot delay a renewal. The [`registry`]
//! brings together who waits ([`waiters`]) and which names are followed.
//!
//! A waiter polls when a notice comes and when the holder's time has passed, with a little jitter *after* it: polling
//! earlier would only spin. Notices can be lost, so it polls in between as well.

mod hub;
mod listener;
mod place;
pub mod registry;
pub mod waiters;
pub mod wake;

use std::time::Duration;

pub(crate) use self::hub::Hub;
pub(crate) use self::waiters::{WaitFor, no_grant};
pub(crate) use self::wake::Reports;

/// The behaviour of a waiting request while the store cannot be reached.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), leasehold::Error> {
/// # use leasehold::{Client, OutagePolicy, store::memory::Memory};
/// # let client = Client::builder().store(Memory::new()).build().await?;
/// let lease = client.request("nightly").on_outage(OutagePolicy::WaitOut).acquire().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutagePolicy {
    /// Fails with the store's error.
    #[default]
    Fail,
    /// Retries, within the limit of the wait.
    WaitOut,
}

/// The longest pause of the first waiter where the store gives notices: a lost one costs no more than this.
const WITH_NOTICES: Duration = Duration::from_secs(5);
/// The longest pause where nothing else shows that the name was freed, unless the store asks for fewer polls.
const MOST_WITHOUT_NOTICES: Duration = Duration::from_secs(3);
/// Maximum delay of a poll after the moment that it waits for: clients that wait for the same moment are spread over
/// it, and a free name is not idle for longer.
const JITTER: Duration = Duration::from_millis(50);

/// The longest pause of a client without notices, of a store that asks for this interval. It is longer for a client
/// that waits for several names, or has others before it in the store's queue: a crowd polls hardly more often than
/// one.
fn without_notices(look_every: Duration, names: usize, ahead: usize) -> Duration {
    let others = u32::try_from(ahead).unwrap_or(u32::MAX);
    let names = u32::try_from(names.max(1)).unwrap_or(u32::MAX);
    let share = others.saturating_add(1).saturating_mul(names);
    look_every
        .saturating_mul(share)
        .min(MOST_WITHOUT_NOTICES.max(look_every))
}

/// The longest pause of a client in the store's queue, whose place has this term: it shows three times within it that
/// it is alive.
fn in_queue(term: Duration) -> Duration {
    term / 3
}

/// The pause of the first waiter before it polls again; `roll` picks the jitter.
fn pause(longest: Duration, remaining: Option<Duration>, roll: u16) -> Duration {
    let pause = remaining.unwrap_or(Duration::MAX).min(longest);
    let jitter = (pause / 10).min(JITTER);
    let share = f64::from(roll) / f64::from(u16::MAX);
    // Never less than a millisecond, so that a name whose lease should have ended but which is not free is not
    // hammered.
    pause + jitter.mul_f64(share) + Duration::from_millis(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    #[test]
    fn a_waiter_never_polls_before_the_remaining_ttl_is_over() {
        for roll in [0, 1, u16::MAX] {
            for remaining in [Duration::ZERO, Duration::from_secs(2)] {
                let late = pause(WITH_NOTICES, Some(remaining), roll) - remaining;
                assert!(!late.is_zero() && late < JITTER * 2, "{late:?}");
            }
        }
    }

    #[test]
    fn a_crowd_without_notices_polls_hardly_more_often_than_one_client() {
        let polls = |pause: Duration| pause.as_secs_f64().recip();
        let queue: f64 = (0..1_000)
            .map(|ahead| polls(without_notices(EVERY, 1, ahead)))
            .sum();
        assert!(
            queue < 400.0,
            "{queue} polls a second in one queue of 1,000"
        );
        let names = 20.0 * polls(without_notices(EVERY, 20, 0));
        assert!(names < 11.0, "{names} polls a second for 20 names");
        assert_eq!(without_notices(EVERY, 1, 0), EVERY);
        let seldom = MOST_WITHOUT_NOTICES * 2;
        assert_eq!(without_notices(seldom, 20, 0), seldom);
    }

    #[test]
    fn a_waiter_polls_at_least_as_often_as_the_cap() {
        for longest in [WITH_NOTICES, in_queue(WITH_NOTICES), EVERY] {
            for remaining in [None, Some(Duration::from_secs(3_600))] {
                assert!(pause(longest, remaining, u16::MAX) < longest * 2);
            }
        }
    }
}
