//! The thread that listens: takes in the store's hints, wakes waiters, and leaves the store's queues when the last
//! waiter of a name has left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::hub::Shared;
use super::wake::Wake;
use crate::error::ErrorKind;
use crate::name::Name;
use crate::store::{Notice, Notices, Purpose, Store};
use crate::telemetry;
use crate::term::Instant;

/// The pause before another try to subscribe, and before another try to leave a queue.
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
/// The most tries to leave a queue. After them the store drops the client when its patience has run out, which has the
/// same effect later.
const LEAVE_TRIES: u32 = 3;
/// The limit of one such request, and of all that are outstanding when the client ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// The work of the thread. However it ends, waiters look by time from then on.
pub(super) struct Listener {
    shared: Arc<Shared>,
    /// The same store, on a connection of this thread's own.
    store: Arc<OnceCell<Arc<dyn Store>>>,
}

impl Listener {
    /// Starts the thread, the first time.
    pub(super) fn start(shared: &Arc<Shared>) {
        if !shared.registry().begin_listening() {
            return;
        }
        let listener = Self {
            shared: shared.clone(),
            store: Arc::default(),
        };
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
                let mut leaving = JoinSet::new();
                tokio::select! {
                    biased;
                    () = self.shared.closing.notified() => {}
                    () = self.live(&mut leaving) => {}
                }
                self.leave_all(&mut leaving);
                // The store drops the client from queues that were not left by then, when its patience has run out.
                let _ = timeout(LEAVE_LIMIT, leaving.join_all()).await;
                self.shared.ended.cancel();
                if let Some(store) = self.store.get() {
                    store.close().await;
                }
            });
        }
    }

    /// Listens, if the store gives hints, and leaves queues.
    async fn live(&self, leaving: &mut JoinSet<()>) {
        let mut pauses = NONE_ARRIVED.iter();
        let mut notices = self.subscribe_or_go_without().await;
        let mut again = self.after_one_of(&mut pauses);
        loop {
            let next = async {
                match &notices {
                    Some(notices) => Some(notices.next().await),
                    // A store that has none says so in advance.
                    None if self.shared.store.facts().has_notices => {
                        self.shared.clock.nap_until(again).await;
                        None
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                notice = next => {
                    let Some(notice) = notice else {
                        notices = self.subscribe_or_go_without().await;
                        again = self.after_one_of(&mut pauses);
                        continue;
                    };
                    let has_missed = notice == Notice::Reconnected;
                    let wakes = self.shared.registry().on_notice(notice, self.shared.clock.now());
                    self.shared.counts.notice(match wakes.is_empty() {
                        _ if has_missed => "missed",
                        true => "unwanted",
                        false => "delivered",
                    });
                    wakes.into_iter().for_each(Wake::now);
                }
                () = self.shared.leaving.notified() => {}
                Some(_) = leaving.join_next() => {}
            }
            self.leave_all(leaving);
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

    /// Subscribes, and has the waiters look by time if there are no notices.
    async fn subscribe_or_go_without(&self) -> Option<Arc<dyn Notices>> {
        let notices = self.subscribe().await;
        match &notices {
            Some(notices) => self.shared.registry().start_notices(notices.clone()),
            None => self.stop_notices(),
        }
        notices
    }

    fn stop_notices(&self) {
        // The store's notices are dropped outside the mutex.
        let (_notices, wakes) = self.shared.registry().stop_notices();
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

    /// Begins to leave the queues that are to be left.
    fn leave_all(&self, leaving: &mut JoinSet<()>) {
        let names = self.shared.registry().take_leaving();
        for name in names {
            leaving.spawn(leave(self.shared.clone(), self.store.clone(), name));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop_notices();
        self.shared.ended.cancel();
    }
}

/// Leaves the store's queue of one name. A failure costs the other clients the time of one offer.
async fn leave(shared: Arc<Shared>, store: Arc<OnceCell<Arc<dyn Store>>>, name: Name) {
    for _ in 0..LEAVE_TRIES {
        let own = store
            .get_or_try_init(|| shared.store.on_own_connection(Purpose::Waiting))
            .await;
        if let Ok(store) = own
            && store.leave(&name, shared.client, LEAVE_LIMIT).await.is_ok()
        {
            // A waiter that joined meanwhile lost its position together with those that had left.
            let wake = shared.registry().look_in_turn(name);
            wake.into_iter().for_each(Wake::now);
            return;
        }
        let again = shared.clock.now().after(RETRY);
        shared.clock.nap_until(again).await;
    }
}
