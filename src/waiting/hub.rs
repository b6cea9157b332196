//! All waiters of a client, and what they share with the thread that listens for them.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::place::Place;
use super::registry::Registry;
use super::waiters::QueueKey;
use super::wake::{Looks, Wake};
use super::{OutagePolicy, WaitOrder};
use crate::clock::Clock;
use crate::holder::ClientId;
use crate::home::Home;
use crate::name::Name;
use crate::store::Store;
use crate::telemetry::Sink;

/// All waiters of a client. When it is dropped, its thread ends.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, client: ClientId, home: Home) -> Self {
        let shared = Shared {
            registry: Mutex::new(Registry::new(client)),
            clock: store.clock(),
            counts: Sink::of_store(store.facts().kind),
            store,
            client,
            closing: Notify::new(),
            leaving: Notify::new(),
            home,
            ended: CancellationToken::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Joins the queue of this name, as the last waiter, and has it told to `looks` what the looks at the name find.
    pub(crate) fn join(
        &self,
        name: &Name,
        order: WaitOrder,
        outage: OutagePolicy,
        looks: Looks,
    ) -> Place {
        let name = name.clone();
        Place::join(self.shared.clone(), QueueKey { name, order }, outage, looks)
    }

    /// Wakes all waiters, which then fail because the client was shut down, and ends the subscription.
    pub(crate) fn close(&self) {
        let wakes = self.shared.registry().close();
        wakes.into_iter().for_each(Wake::now);
        self.shared.closing.notify_one();
    }

    /// Waits until the client has left the store's queues. Call it after [`close`](Self::close).
    pub(crate) async fn ended(&self) {
        let has_listened = self.shared.registry().has_listened();
        if has_listened {
            self.shared.ended.cancelled().await;
        }
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
    pub(super) client: ClientId,
    pub(super) clock: Arc<dyn Clock>,
    /// Ends the thread.
    pub(super) closing: Notify,
    /// Asks the thread to leave a queue of the store.
    pub(super) leaving: Notify,
    /// The process whose waiters these are; the child of a fork leaves no queue for them.
    pub(super) home: Home,
    /// Cancelled once the thread has left every queue of the store that the client leaves.
    pub(super) ended: CancellationToken,
}

impl Shared {
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }
}
