//! Who gets a connection where a server has too few: first the clients that hold leases.
//!
//! A client that the server refused for lack of room retries after growing pauses. A client that holds a lease keeps
//! its last connection; when that breaks, it retries at once and every twentieth of a second until it has another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::super::failure::Failure;
use crate::store::kit::connection::room::{Need, Refusals};

/// The state that the connections of one client share.
#[derive(Debug, Default)]
pub(crate) struct Room {
    refusals: Refusals<Failure>,
    need: Need,
    /// Number of watchdogs: without one nothing is renewed.
    pub(crate) watchdogs: AtomicUsize,
    /// Number of connections that are up and can renew leases.
    up: AtomicUsize,
    /// Records that one of them broke.
    pub(crate) broke: Notify,
    /// Whether notices were seen to arrive.
    pub(crate) has_notices: AtomicBool,
}

/// Counts a connection over which leases can be renewed, until this is dropped.
#[derive(Debug)]
pub(super) struct Up(Arc<Room>);

impl Room {
    /// Returns why none is asked for now.
    pub(super) fn refusal(&self) -> Option<Failure> {
        self.refusals.now().filter(|_| !self.is_urgent())
    }

    /// Records the outcome of an attempt to connect. Returns the pause after which to reconnect instead, if other
    /// clients come first.
    pub(super) fn note<T>(&self, made: &Result<T, Failure>) -> Option<Duration> {
        // The server was not asked.
        if matches!(made, Err(failure) if failure.is_of_given_up()) {
            return None;
        }
        (self.refusals).note(made, Failure::is_of_room, self.is_needed())
    }

    /// Records that a lease may be held for this long.
    pub(crate) fn need_for(&self, ttl: Duration) {
        self.need.extend(ttl);
    }

    /// Returns whether a lease may be held, so that its renewal needs a connection.
    pub(super) fn is_needed(&self) -> bool {
        self.watchdogs.load(Ordering::Relaxed) > 0 && self.need.is_there()
    }

    /// Returns whether leases can be renewed over more than one connection.
    pub(super) fn has_others(&self) -> bool {
        self.up.load(Ordering::Relaxed) > 1
    }

    /// Returns whether a lease may be held, and there is no connection over which to renew it.
    pub(crate) fn is_urgent(&self) -> bool {
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

    fn full() -> Result<(), Failure> {
        Err(Failure::Refused {
            code: "53300".into(),
            text: "sorry, too many clients already".into(),
            is_fatal: true,
        })
    }

    #[test]
    fn a_client_that_holds_a_lease_and_has_no_connection_asks_at_once() {
        let room = Arc::new(Room::default());
        room.watchdogs.store(1, Ordering::Relaxed);
        assert!(room.note(&full()).is_none() && room.refusal().is_some());
        room.need_for(Duration::from_secs(60));
        assert!(room.is_urgent() && room.refusal().is_none());
        let up = room.count();
        assert!(room.refusal().is_some(), "it has one");
        drop(up);
        assert!(room.refusal().is_none());
    }
}
