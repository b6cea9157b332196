//! Who gets a connection where a server has too few: first the clients that hold leases.
//!
//! A client that the server refused for lack of room retries after growing pauses, so that holders find room. A client
//! that holds nothing gives up its first connection to a server that was down at once, and reconnects a little later:
//! the first to connect would keep the room, and on a busy machine that is not always a holder.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use crate::clock::{Boottime, Clock, Instant, half_random};
use crate::error::ErrorKind;
use crate::store::kit::backend::Failing;

/// The first pause after a server had no room; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of them. A client that only waits is served by the next one all the same.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Maximum time that a client without leases stays away from a server that was down, in favour of holders.
const GIVING_WAY: Duration = Duration::from_secs(2);

/// How the last attempts to connect to a server ended.
#[derive(Debug)]
pub(crate) struct Refusals<F> {
    /// The last refusal for want of room, until when no connection is asked for, and the pause that led there.
    full: Mutex<Option<(F, Instant, Duration)>>,
    /// The last attempt found the server down.
    was_down: AtomicBool,
}

impl<F> Default for Refusals<F> {
    fn default() -> Self {
        Self {
            full: Mutex::default(),
            was_down: AtomicBool::new(false),
        }
    }
}

impl<F: Clone + Failing> Refusals<F> {
    /// Returns why none is asked for now.
    pub(crate) fn now(&self) -> Option<F> {
        match &*self.full.lock() {
            Some((refusal, until, _)) if Boottime.now() < *until => Some(refusal.clone()),
            _ => None,
        }
    }

    /// Records the outcome of an attempt to connect. Returns the pause after which to reconnect instead of using the
    /// connection, if other clients come first: a client that `holds` nothing lets holders return first to a server
    /// that was down.
    pub(crate) fn note<T>(
        &self,
        made: &Result<T, F>,
        is_full: impl Fn(&F) -> bool,
        holds: bool,
    ) -> Option<Duration> {
        let mut refused = self.full.lock();
        match made {
            Err(failure) if is_full(failure) => {
                let last = refused.as_ref().map(|(_, _, pause)| *pause * 2);
                let pause = last.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE);
                let until = Boottime.now().after(half_random(pause));
                *refused = Some((failure.clone(), until, pause));
                None
            }
            Err(failure) => {
                // A server that is silent was not started anew.
                let is_down = failure.kind() == ErrorKind::Unavailable;
                self.was_down.fetch_or(is_down, Ordering::Relaxed);
                None
            }
            Ok(_) => {
                *refused = None;
                let was_down = self.was_down.swap(false, Ordering::Relaxed);
                (was_down && !holds).then(|| half_random(GIVING_WAY))
            }
        }
    }
}

/// Connects, and again after each pause that `note` asks for, which takes in how an attempt ended.
pub(crate) async fn connect_in_turn<T, F, R: Future<Output = Result<T, F>>>(
    connect: impl Fn() -> R,
    note: impl Fn(&R::Output) -> Option<Duration>,
) -> R::Output {
    loop {
        let made = connect().await;
        let Some(pause) = note(&made) else {
            return made;
        };
        drop(made);
        sleep(pause).await;
    }
}

/// Until when a lease of a client may be held, in nanoseconds of the lease clock.
#[derive(Debug, Default)]
pub(crate) struct Need(AtomicU64);

impl Need {
    /// Records that a lease may be held for this long.
    pub(crate) fn extend(&self, ttl: Duration) {
        let until = Boottime.now().after(ttl).as_nanos();
        self.0.fetch_max(until, Ordering::Relaxed);
    }

    /// Returns whether a lease may be held, so that its renewal needs a connection.
    pub(crate) fn is_there(&self) -> bool {
        Boottime.now().as_nanos() < self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn full() -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unavailable, "full"))
    }

    fn down() -> Result<(), Error> {
        Err(Error::new(ErrorKind::Unavailable, "down"))
    }

    fn is_full(failure: &Error) -> bool {
        failure.to_string() == "full"
    }

    #[test]
    fn a_client_that_holds_nothing_leaves_a_server_that_was_down_to_the_others_first() {
        let refusals = Refusals::default();
        let note = |made, holds| refusals.note::<()>(&made, is_full, holds);
        assert_eq!(note(Ok(()), false), None);
        assert_eq!(note(down(), false), None);
        let pause = note(Ok(()), false).expect("it gives way");
        assert!(pause >= GIVING_WAY / 2 && pause <= GIVING_WAY, "{pause:?}");
        assert_eq!(note(Ok(()), false), None, "once");
        assert_eq!(note(down(), true), None);
        assert_eq!(note(Ok(()), true), None, "it holds a lease");
        let silent = Error::new(ErrorKind::TimedOut, "no answer");
        assert_eq!(note(Err(silent), false), None);
        assert_eq!(note(Ok(()), false), None, "it was not down");
    }

    #[test]
    fn a_full_server_is_asked_at_growing_pauses() {
        let refusals = Refusals::default();
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            refusals.note(&full(), is_full, false);
            let pause = refusals.full.lock().as_ref().map(|(_, _, pause)| *pause);
            assert_eq!(pause, Some(Duration::from_secs(seconds)));
            assert!(refusals.now().is_some(), "{seconds} s");
        }
        // A server that is down says nothing about its room.
        refusals.note(&down(), is_full, false);
        assert!(refusals.now().is_some());
        refusals.note(&Ok(()), is_full, false);
        assert!(refusals.now().is_none());
    }
}
