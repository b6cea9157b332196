//! The watchdog's own connection. Only renewals are sent on it, which wait for no lock; releases, which may, go over
//! the connections for requests.
//!
//! It is made for the first renewal, so that a client that only waits has none. As long as it cannot be had, leases are
//! renewed over the connections for requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::connection::connections::Connections;
use super::{Postgres, Side};
use crate::store::kit::budget::Budget;

/// The pause before a client that holds a lease, and has no connection any more, asks for one again.
const AGAIN: Duration = Duration::from_millis(50);

/// The watchdog's own connection. Another one is made as soon as it broke.
#[derive(Debug)]
pub(super) struct RenewalLane {
    pub(super) own: Arc<Connections>,
    keeping: AbortHandle,
}

impl RenewalLane {
    /// Starts to keep it up, on the calling runtime.
    pub(super) fn start(store: &Postgres) -> Self {
        let own = Arc::new(store.connections.for_watchdog(store.connect_timeout));
        own.room().watchdogs.fetch_add(1, Ordering::Relaxed);
        let keeping = tokio::spawn(keep(own.clone(), store.connect_timeout)).abort_handle();
        Self { own, keeping }
    }
}

impl Drop for RenewalLane {
    fn drop(&mut self) {
        self.keeping.abort();
        self.own.room().watchdogs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes it again whenever a lease may be held and there is no connection over which to renew it: a server that has
/// just started has room for the first that ask.
async fn keep(own: Arc<Connections>, limit: Duration) {
    let room = own.room();
    loop {
        room.broke.notified().await;
        while room.is_urgent() && !own.is_closed() {
            own.open(Budget::new(limit)).await;
            sleep(AGAIN).await;
        }
    }
}

impl Postgres {
    /// The connections over which leases are renewed now.
    pub(super) async fn renewing(&self) -> &Connections {
        let Side::Watchdog(watchdog) = &self.side else {
            return &self.connections;
        };
        if watchdog.own.is_up() || !self.connections.is_up() {
            return &watchdog.own;
        }
        // It is made meanwhile, by a task of its own.
        watchdog.own.open(Budget::new(Duration::ZERO)).await;
        &self.connections
    }
}
