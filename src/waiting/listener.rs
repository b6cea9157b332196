//! Receives the store's notices, and wakes waiters.
//!
//! Where the store works on the runtimes of its callers, the client listens on the runtime of its waiters: the thread
//! that reads a notice then also runs the task that waits for it. While that runtime is blocked or stands still, only
//! its own waiters hear nothing. Once tasks of another runtime wait as well, and for all other stores, a thread
//! listens.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::hub::Shared;
use super::registry::Listening;
use super::wake::Wake;
use crate::error::ErrorKind;
use crate::store::{Notice, Notices};
use crate::telemetry;
use crate::term::Instant;

/// Pause before the next attempt to subscribe.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause before another try to subscribe; each is twice as long as the one before.
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// Pauses before the next attempt after the store reported that its notices do not arrive: the first one of a busy
/// server may have been late. The last pause repeats.
const NONE_ARRIVED: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// The listening task or thread. However it ends, waiters poll by time from then on.
pub(super) struct Listener {
    shared: Arc<Shared>,
    listening: Listening,
}

impl Listener {
    /// Begins to listen for a waiter of the calling runtime, unless the client listens for it already.
    pub(super) fn start(shared: &Arc<Shared>) {
        let is_on_callers_runtime = shared.store.facts().is_on_callers_runtime;
        let here = Handle::try_current().ok().filter(|_| is_on_callers_runtime);
        let begun = (shared.registry()).begin_listening(here.as_ref().map(Handle::id));
        let Some((listening, (_notices, wakes))) = begun else {
            return;
        };
        wakes.into_iter().for_each(Wake::now);
        let is_on_thread = listening.runtime.is_none();
        let shared = shared.clone();
        let listener = Self { shared, listening };
        match here.filter(|_| !is_on_thread) {
            Some(runtime) => drop(runtime.spawn(listener.run())),
            None => listener.start_thread(),
        }
    }

    fn start_thread(self) {
        let listen = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(self.run());
            }
        };
        let thread = std::thread::Builder::new().name("leasehold-notices".into());
        // If the thread does not start, the listener is dropped here, and the waiters poll by time.
        drop(thread.spawn(listen));
    }

    async fn run(self) {
        tokio::select! {
            biased;
            () = self.listening.is_over.cancelled() => {}
            () = self.live() => {}
        }
    }

    /// Listens, if the store gives notices.
    async fn live(&self) {
        let mut pauses = NONE_ARRIVED.iter();
        let mut notices = self.subscribe_or_go_without().await;
        let mut again = self.after_one_of(&mut pauses);
        loop {
            let notice = match &notices {
                Some(notices) => notices.next().await,
                // A store that has none says so in advance.
                None if self.shared.store.facts().has_notices => {
                    self.shared.clock.nap_until(again).await;
                    notices = self.subscribe_or_go_without().await;
                    again = self.after_one_of(&mut pauses);
                    continue;
                }
                None => std::future::pending().await,
            };
            let has_missed = notice == Notice::Reconnected;
            let wakes = self.shared.registry().on_notice(notice);
            let outcome = match wakes.is_empty() {
                _ if has_missed => "missed",
                true => "unwanted",
                false => "delivered",
            };
            wakes.into_iter().for_each(Wake::now);
            self.shared.counts.notice(outcome);
        }
    }

    /// Returns when the next of these pauses ends. A quarter of it is random.
    fn after_one_of(&self, pauses: &mut std::slice::Iter<'_, Duration>) -> Instant {
        let pause = pauses
            .next()
            .unwrap_or(&NONE_ARRIVED[NONE_ARRIVED.len() - 1]);
        let pause = pause.mul_f64(1.0 + fastrand::f64() / 4.0);
        self.shared.clock.now().after(pause)
    }

    /// Subscribes, and has the waiters poll by time if there are no notices.
    async fn subscribe_or_go_without(&self) -> Option<Arc<dyn Notices>> {
        let notices = self.subscribe().await;
        match &notices {
            Some(notices) => {
                let mut registry = self.shared.registry();
                registry.start_notices(&self.listening, notices.clone());
            }
            None => self.stop_notices(),
        }
        notices
    }

    fn stop_notices(&self) {
        // The store's notices are dropped outside the mutex.
        let (_notices, wakes) = self.shared.registry().stop_notices(&self.listening);
        wakes.into_iter().for_each(Wake::now);
    }

    /// The store's notices, if it gives any.
    async fn subscribe(&self) -> Option<Arc<dyn Notices>> {
        let mut pause = RETRY;
        loop {
            match self.shared.store.notices().await {
                Ok(notices) => return notices.map(Arc::from),
                Err(error) if error.is_transient() => {
                    let again = self.shared.clock.now().after(pause);
                    self.shared.clock.nap_until(again).await;
                    pause = (pause * 2).min(LONGEST_RETRY);
                }
                Err(error) => {
                    // After a shutdown there are no waiters.
                    if error.kind() != ErrorKind::Closed {
                        telemetry::notices_refused(&error);
                    }
                    return None;
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.shared.home.is_forked() {
            self.stop_notices();
        }
    }
}
