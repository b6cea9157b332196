//! All waiters of a client, and what they share with the task that listens for them.

use std::sync::Arc;

use super::OutagePolicy;
use super::place::LocalPlace;
use super::registry::Registry;
use super::waiters::{QueueKey, WaitFor};
use super::wake::{Reports, Wake};
use crate::clock::Clock;
use crate::holder::ClientId;
use crate::home::Home;
use crate::name::Name;
use crate::store::Store;
use crate::telemetry::Sink;
use parking_lot::{Mutex, MutexGuard};

/// All waiters of a client. When it is dropped, it listens no longer.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, client: ClientId, home: Home) -> Self {
        let shared = Shared {
            registry: Mutex::new(Registry::new(client, store.facts())),
            clock: store.clock(),
            counts: Sink::of_store(store.facts().kind),
            store,
            home,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Joins the queue of those who wait for this at the name, as the last waiter. `reports` receives what each poll of
    /// the name finds.
    pub(crate) fn join(
        &self,
        name: &Name,
        awaited: WaitFor,
        outage: OutagePolicy,
        reports: Reports,
    ) -> LocalPlace {
        let name = name.clone();
        let key = QueueKey { name, awaited };
        LocalPlace::join(self.shared.clone(), key, outage, reports)
    }

    /// Wakes all waiters, which then fail because the client was shut down, and ends the subscription.
    pub(crate) fn close(&self) {
        // The subscription is dropped outside the mutex.
        let (_notices, wakes) = self.shared.registry().close();
        wakes.into_iter().for_each(Wake::now);
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if !self.shared.home.is_forked() {
            self.close();
        }
    }
}

/// The only mutex of this module, and the values that need none.
#[derive(Debug)]
pub(super) struct Shared {
    registry: Mutex<Registry>,
    pub(super) store: Arc<dyn Store>,
    pub(super) counts: &'static Sink,
    pub(super) clock: Arc<dyn Clock>,
    /// The process whose waiters these are; the child of a fork wakes none of them.
    pub(super) home: Home,
}

impl Shared {
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }
}
