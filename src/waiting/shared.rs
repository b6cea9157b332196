//! The state that a client's waiters share with the thread that listens for them.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::registry::Registry;
use crate::clock::Clock;
use crate::holder::ClientId;
use crate::home::Home;
use crate::store::Store;
use crate::telemetry::{NoticeOutcome, StoreCounts};

/// The only mutex of this module, and the values that need none.
#[derive(Debug)]
pub(super) struct Shared {
    registry: Mutex<Registry>,
    pub(super) store: Arc<dyn Store>,
    counts: &'static StoreCounts,
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
    pub(super) fn new(store: Arc<dyn Store>, client: ClientId, home: Home) -> Self {
        Self {
            registry: Mutex::new(Registry::new(client)),
            clock: store.clock(),
            counts: StoreCounts::of(store.facts().kind),
            store,
            client,
            closing: Notify::new(),
            leaving: Notify::new(),
            home,
            ended: CancellationToken::new(),
        }
    }

    pub(super) fn count_notice(&self, has_missed: bool, has_woken: bool) {
        let outcome = match (has_missed, has_woken) {
            (true, _) => NoticeOutcome::Missed,
            (false, true) => NoticeOutcome::Delivered,
            (false, false) => NoticeOutcome::Unwanted,
        };
        self.counts.notice(outcome);
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }
}
