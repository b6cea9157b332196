//! All waiters of a client.

use std::sync::Arc;

use super::place::Place;
use super::shared::Shared;
use super::waiters::QueueKey;
use super::wake::Wake;
use super::{OutagePolicy, WaitOrder};
use crate::holder::ClientId;
use crate::home::Home;
use crate::name::Name;
use crate::store::Store;

/// All waiters of a client. When it is dropped, its thread ends.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, client: ClientId, home: Home) -> Self {
        Self {
            shared: Arc::new(Shared::new(store, client, home)),
        }
    }

    /// Joins the queue of this name, as the last waiter.
    pub(crate) fn join(&self, name: &Name, order: WaitOrder, outage: OutagePolicy) -> Place {
        let name = name.clone();
        Place::join(self.shared.clone(), QueueKey { name, order }, outage)
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
