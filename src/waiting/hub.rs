//! A waiter's door to the lines of its client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::listener::Listener;
use super::registry::{Hearing, QueueKey, Registry};
use super::waiters::{Action, Found, Ticket, Wake};
use super::{OutagePolicy, WaitOrder};
use crate::clock::Clock;
use crate::error::Error;
use crate::holder::ClientId;
use crate::home::Home;
use crate::name::Name;
use crate::store::{Queued, Store};

/// The pause after a look that failed: a server that comes back is found soon, and one that refuses is not hammered.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// All lines of a client. When it is dropped, its thread ends.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
}

/// What the waiters and the hub's thread share.
#[derive(Debug)]
pub(super) struct Shared {
    registry: Mutex<Registry>,
    pub(super) store: Arc<dyn Store>,
    pub(super) client: ClientId,
    pub(super) clock: Arc<dyn Clock>,
    /// Ends the thread.
    pub(super) closing: Notify,
    /// Tells the thread that a line in the store is to be left.
    pub(super) leaving: Notify,
    /// Whose lines these are; the child of a fork leaves none of them.
    home: Home,
    /// Nothing is left for the thread to tell the store.
    pub(super) ended: CancellationToken,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, client: ClientId, home: Home) -> Self {
        Self {
            shared: Arc::new(Shared {
                registry: Mutex::new(Registry::new(client)),
                clock: store.clock(),
                store,
                client,
                closing: Notify::new(),
                leaving: Notify::new(),
                home,
                ended: CancellationToken::new(),
            }),
        }
    }

    /// Joins the line of this name, as the last one.
    pub(crate) fn join(&self, name: &Name, order: WaitOrder, outage: OutagePolicy) -> Place {
        let woken = Arc::new(Notify::new());
        let key = QueueKey {
            name: name.clone(),
            order,
        };
        let ticket = self.shared.registry().join(&key, woken.clone());
        Place {
            shared: self.shared.clone(),
            key,
            ticket,
            woken,
            outage,
            has_left: false,
        }
    }

    /// Wakes all waiters to hear that the client was shut down, and ends the subscription.
    pub(crate) fn close(&self) {
        let wakes = self.shared.registry().close();
        wakes.into_iter().for_each(Wake::now);
        self.shared.closing.notify_one();
    }

    /// Waits, once it was closed, for the store's lines to be left.
    pub(crate) async fn ended(&self) {
        let has_begun = !matches!(self.shared.registry().hearing, Hearing::Never);
        if has_begun {
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

/// A waiter's place in line. Dropping it leaves the line, and passes on what this waiter was woken for.
#[derive(Debug)]
#[must_use = "a place that is dropped is given up"]
pub(crate) struct Place {
    shared: Arc<Shared>,
    key: QueueKey,
    ticket: Ticket,
    woken: Arc<Notify>,
    outage: OutagePolicy,
    has_left: bool,
}

/// What a waiter's turn is.
#[derive(Debug)]
pub(crate) enum Next {
    /// To look, and to tell what was found.
    Look,
    /// To fail, because a look failed that another waiter made while this one waited.
    Failed(Error),
    /// To hear that the client was shut down.
    Closed,
}

impl Place {
    /// Waits for this waiter's turn.
    ///
    /// # Cancel safety
    /// Dropping it leaves the place as it is; what it was woken for is there at the next call.
    pub(crate) async fn turn(&self) -> Next {
        loop {
            let step = {
                let mut registry = self.shared.registry();
                if registry.is_closed {
                    return Next::Closed;
                }
                let waiters = &mut registry.entry(&self.key).waiters;
                if self.outage == OutagePolicy::Fail
                    && let Some(error) = waiters.failure(self.ticket)
                {
                    return Next::Failed(error);
                }
                waiters.step(self.ticket, self.shared.clock.now())
            };
            if step == Action::Look {
                return Next::Look;
            }
            let woken = self.woken.notified();
            match step {
                Action::Sleep(until) => tokio::select! {
                    () = woken => {}
                    () = self.shared.clock.nap_until(until) => {}
                },
                Action::Look | Action::Stand => woken.await,
            }
        }
    }

    /// Begins a look before its time, if this waiter is the first in line.
    pub(crate) fn look_now(&self) -> bool {
        let mut registry = self.shared.registry();
        registry.entry(&self.key).waiters.look_now(self.ticket)
    }

    /// How the client stands in the store's line, for the first waiter's claim. From when that leaves on, the client may
    /// stand there, whether or not anybody hears the answer.
    pub(crate) fn queue_position(&self) -> Option<Queued> {
        if self.key.order == WaitOrder::Any {
            return None;
        }
        let others = self.shared.registry().queue_position(&self.key);
        Some(Queued::new(u32::try_from(others).unwrap_or(u32::MAX)))
    }

    /// Tells what the look found instead of a grant. Where the name is held, listens for it from now on. Where the look
    /// failed, those fail as well who do not wait an outage out.
    pub(crate) fn found(&self, found: Found) {
        let (is_held, remaining) = match &found {
            Found::Held(held) => (true, held.remaining),
            Found::Failed(_) => (false, Some(AFTER_FAILURE)),
        };
        let now = self.shared.clock.now();
        let wakes: Vec<Wake> = {
            let mut registry = self.shared.registry();
            registry.found(&self.key, found, remaining, now);
            let waiters = registry.entry(&self.key).waiters.waiters();
            waiters.filter(|_| !is_held).collect()
        };
        wakes.into_iter().for_each(Wake::now);
        if is_held {
            Shared::listen_for(&self.shared, &self.key);
        }
    }

    /// Tells that the look, sent with this place in the store's queue, brought a grant for `ttl`, and leaves.
    pub(crate) fn granted(mut self, queued: Option<Queued>, ttl: Duration) {
        self.has_left = true;
        let now = self.shared.clock.now();
        let wake = {
            let mut registry = self.shared.registry();
            registry.granted(&self.key, self.ticket, queued, ttl, now)
        };
        // The next in line does not look, and so has to hear of the release. Without waiters there is no queue.
        if wake.has_waiter() {
            Shared::listen_for(&self.shared, &self.key);
        }
        wake.now();
    }

    /// Returns what the last look found.
    pub(crate) fn last_found(&self) -> Option<Found> {
        let mut registry = self.shared.registry();
        registry.entry(&self.key).waiters.last_found().cloned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.has_left || self.shared.home.is_forked() {
            return;
        }
        let (wake, has_leaving) = {
            let mut registry = self.shared.registry();
            let wake = registry.leave(&self.key, self.ticket);
            (wake, registry.has_leaving())
        };
        wake.now();
        if has_leaving {
            Shared::listen(&self.shared);
            self.shared.leaving.notify_one();
        }
    }
}

impl Shared {
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a name that has waiters.
    fn listen_for(shared: &Arc<Self>, key: &QueueKey) {
        shared.registry().follow(key);
        Self::listen(shared);
    }

    /// Starts the thread, the first time.
    fn listen(shared: &Arc<Self>) {
        let mut registry = shared.registry();
        if matches!(registry.hearing, Hearing::Never) && !registry.is_closed {
            registry.hearing = Hearing::Starting;
            let listener = Listener::new(shared.clone());
            let thread = std::thread::Builder::new().name("leasehold-notices".into());
            // Without a thread, the listener's end does what is to be done; it needs the lines for that.
            drop(registry);
            drop(thread.spawn(move || listener.run()));
        }
    }
}
