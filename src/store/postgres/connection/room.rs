//! Who gets a connection where a server has too few: first the clients that hold leases.
//!
//! A client that was told that there is no room asks again after a growing pause, so that those who ask in earnest find
//! one. A client that holds a lease keeps its last connection, and when that breaks it asks for another one at once,
//! and every twentieth of a second until it has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::failure::Failure;
use crate::clock::{Boottime, Clock, Instant};

/// The first pause after a server had no room; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of them. A client that only waits is served by the next one all the same.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the connections of one client share.
#[derive(Debug, Default)]
pub(in super::super) struct Room {
    /// The last refusal, until when no connection is asked for, and the pause that led there.
    refused: Mutex<Option<(Failure, Instant, Duration)>>,
    /// Until when a lease may be held, in nanoseconds of the lease clock.
    needed_until: AtomicU64,
    /// How many watchdogs there are: without one nothing is renewed.
    pub(in super::super) watchdogs: AtomicUsize,
    /// How many connections are up over which leases can be renewed.
    up: AtomicUsize,
    /// Says that one of them broke.
    pub(in super::super) broke: Notify,
    /// Whether notices were seen to arrive.
    pub(in super::super) has_notices: AtomicBool,
}

/// Counts a connection over which leases can be renewed, until this is dropped.
#[derive(Debug)]
pub(super) struct Up(Arc<Room>);

impl Room {
    /// Returns why none is asked for now.
    pub(super) fn refusal(&self) -> Option<Failure> {
        match &*self.refused.lock() {
            Some((refusal, until, _)) if Boottime.now() < *until && !self.is_urgent() => {
                Some(refusal.clone())
            }
            _ => None,
        }
    }

    /// Takes in how an attempt to connect ended.
    pub(super) fn note<T>(&self, made: &Result<T, Failure>) {
        let mut refused = self.refused.lock();
        *refused = match made {
            Err(failure) if failure.is_of_room() => {
                let last = refused.as_ref().map(|(_, _, pause)| *pause * 2);
                let pause = last.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE);
                let share = 0.5 + fastrand::f64() / 2.0;
                let until = Boottime.now().after(pause.mul_f64(share));
                Some((failure.clone(), until, pause))
            }
            Err(_) => return,
            Ok(_) => None,
        }
    }

    /// Notes that a lease may be held for so long.
    pub(in super::super) fn need_for(&self, ttl: Duration) {
        let until = Boottime.now().after(ttl).as_nanos();
        self.needed_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Returns whether a lease may be held, so that its renewal needs a connection.
    pub(super) fn is_needed(&self) -> bool {
        self.watchdogs.load(Ordering::Relaxed) > 0
            && Boottime.now().as_nanos() < self.needed_until.load(Ordering::Relaxed)
    }

    /// Returns whether leases can be renewed over more than one connection.
    pub(super) fn has_others(&self) -> bool {
        self.up.load(Ordering::Relaxed) > 1
    }

    /// Returns whether a lease may be held, and there is no connection over which to renew it.
    pub(in super::super) fn is_urgent(&self) -> bool {
        self.up.load(Ordering::Relaxed) == 0 && self.is_needed()
    }

    pub(super) fn count(self: &Arc<Self>) -> Up {
        self.up.fetch_add(1, Ordering::Relaxed);
        Up(self.clone())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.0.up.fetch_sub(1, Ordering::Relaxed);
        self.0.broke.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::connection::Unconnected;

    fn full() -> Result<(), Failure> {
        Err(Failure::Refused {
            code: "53300".into(),
            text: "sorry, too many clients already".into(),
            is_fatal: true,
        })
    }

    fn pause(room: &Room) -> Option<Duration> {
        room.refused.lock().as_ref().map(|(_, _, pause)| *pause)
    }

    #[test]
    fn a_client_without_leases_asks_a_full_server_at_growing_pauses() {
        let room = Room::default();
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            room.note(&full());
            assert_eq!(pause(&room), Some(Duration::from_secs(seconds)));
            assert!(room.refusal().is_some(), "{seconds} s");
        }
        // A server that is down says nothing about its room.
        room.note::<()>(&Err(Unconnected::Late.into()));
        assert!(room.refusal().is_some());
        room.note(&Ok(()));
        assert!(room.refusal().is_none());
    }

    #[test]
    fn a_client_that_holds_a_lease_and_has_no_connection_asks_at_once() {
        let room = Arc::new(Room::default());
        room.watchdogs.store(1, Ordering::Relaxed);
        room.note(&full());
        room.need_for(Duration::from_secs(60));
        assert!(room.is_urgent() && room.refusal().is_none());
        let up = room.count();
        assert!(room.refusal().is_some(), "it has one");
        drop(up);
        assert!(room.refusal().is_none());
    }
}
