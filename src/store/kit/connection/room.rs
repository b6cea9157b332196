//! Who gets a connection where a server has too few: first the clients that hold leases.
//!
//! A client that was told that there is no room asks again after a growing pause, so that those who ask in earnest find
//! one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Boottime, Clock, Instant, half_random};

/// The first pause after a server had no room; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of them. A client that only waits is served by the next one all the same.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The last refusal of a server without room, until when no connection is asked for, and the pause that led there.
#[derive(Debug)]
pub(crate) struct Refusals<F>(Mutex<Option<(F, Instant, Duration)>>);

impl<F> Default for Refusals<F> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<F: Clone> Refusals<F> {
    /// Returns why none is asked for now.
    pub(crate) fn now(&self) -> Option<F> {
        match &*self.0.lock() {
            Some((refusal, until, _)) if Boottime.now() < *until => Some(refusal.clone()),
            _ => None,
        }
    }

    /// Takes in how an attempt to connect ended.
    pub(crate) fn note<T>(&self, made: &Result<T, F>, is_full: impl Fn(&F) -> bool) {
        let mut refused = self.0.lock();
        *refused = match made {
            Err(failure) if is_full(failure) => {
                let last = refused.as_ref().map(|(_, _, pause)| *pause * 2);
                let pause = last.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE);
                let until = Boottime.now().after(half_random(pause));
                Some((failure.clone(), until, pause))
            }
            Err(_) => return,
            Ok(_) => None,
        }
    }
}

/// Until when a lease of a client may be held, in nanoseconds of the lease clock.
#[derive(Debug, Default)]
pub(crate) struct Need(AtomicU64);

impl Need {
    /// Notes that a lease may be held for so long.
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

    #[test]
    fn a_full_server_is_asked_at_growing_pauses() {
        let refusals = Refusals::default();
        let is_full = |failure: &&str| *failure == "full";
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            refusals.note::<()>(&Err("full"), is_full);
            let pause = refusals.0.lock().map(|(_, _, pause)| pause);
            assert_eq!(pause, Some(Duration::from_secs(seconds)));
            assert!(refusals.now().is_some(), "{seconds} s");
        }
        // A server that is down says nothing about its room.
        refusals.note::<()>(&Err("down"), is_full);
        assert!(refusals.now().is_some());
        refusals.note(&Ok(()), is_full);
        assert!(refusals.now().is_none());
    }
}
