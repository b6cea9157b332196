//! The thread that listens: takes in the store's notices, and wakes waiters.

use std::sync::Arc;
use std::time::Duration;

use super::hub::Shared;
use super::wake::Wake;
use crate::error::ErrorKind;
use crate::store::{Notice, Notices};
use crate::telemetry;
use crate::term::Instant;

/// The pause before another try to subscribe.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause before another try to subscribe; each is twice as long as the one before.
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// The pauses before another try where the store said that its notices do not arrive: the first one of a busy server
/// may have been late. The last pause repeats.
const NONE_ARRIVED: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];
/// The work of the thread. However it ends, waiters look by time from then on.
pub(super) struct Listener(Arc<Shared>);

impl Listener {
    /// Starts the thread, the first time.
    pub(super) fn start(shared: &Arc<Shared>) {
        if !shared.registry().begin_listening() {
            return;
        }
        let listener = Self(shared.clone());
        let thread = std::thread::Builder::new().name("leasehold-notices".into());
        // If the thread does not start, the listener is dropped here, and the waiters look by time.
        drop(thread.spawn(move || listener.run()));
    }

    fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = self.0.closing.notified() => {}
                    () = self.live() => {}
                }
            });
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
                None if self.0.store.facts().has_notices => {
                    self.0.clock.nap_until(again).await;
                    notices = self.subscribe_or_go_without().await;
                    again = self.after_one_of(&mut pauses);
                    continue;
                }
                None => std::future::pending().await,
            };
            let has_missed = notice == Notice::Reconnected;
            let wakes = self.0.registry().on_notice(notice);
            self.0.counts.notice(match wakes.is_empty() {
                _ if has_missed => "missed",
                true => "unwanted",
                false => "delivered",
            });
            wakes.into_iter().for_each(Wake::now);
        }
    }

    /// Returns when the next of these pauses ends. A quarter of it is random.
    fn after_one_of(&self, pauses: &mut std::slice::Iter<'_, Duration>) -> Instant {
        let pause = pauses
            .next()
            .unwrap_or(&NONE_ARRIVED[NONE_ARRIVED.len() - 1]);
        let pause = pause.mul_f64(1.0 + fastrand::f64() / 4.0);
        self.0.clock.now().after(pause)
    }

    /// Subscribes, and has the waiters look by time if there are no notices.
    async fn subscribe_or_go_without(&self) -> Option<Arc<dyn Notices>> {
        let notices = self.subscribe().await;
        match &notices {
            Some(notices) => self.0.registry().start_notices(notices.clone()),
            None => self.stop_notices(),
        }
        notices
    }

    fn stop_notices(&self) {
        // The store's notices are dropped outside the mutex.
        let (_notices, wakes) = self.0.registry().stop_notices();
        wakes.into_iter().for_each(Wake::now);
    }

    /// The store's notices, if it gives any.
    async fn subscribe(&self) -> Option<Arc<dyn Notices>> {
        let mut pause = RETRY;
        loop {
            match self.0.store.notices().await {
                Ok(notices) => return notices.map(Arc::from),
                Err(error) if error.is_transient() => {
                    let again = self.0.clock.now().after(pause);
                    self.0.clock.nap_until(again).await;
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
        self.stop_notices();
    }
}
