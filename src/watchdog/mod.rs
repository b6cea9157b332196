//! The watchdog: renews all leases of a client in the background, and cancels holders on a loss.
//!
//! ```text
//!  user's tasks                        watchdog's thread                       reporter's thread
//!  enroll, hold, leave ─┐          ┌─► turn ─► cancel the lost ─► events ────► logs, metrics
//!                       ▼          │     └───► spawn batches, releases ─► store (its own connection)
//!                 Mutex<Schedule> ─┘                    └── settle ◄──────────────┘
//! ```
//!
//! The schedule is the only shared state and is never held across an await. The loop decides, other tasks do the I/O.
//! A change wakes the loop only if something is due before the loop would wake by itself, or if nothing is left to do.

pub mod claiming;
mod doubtful;
mod enrollment;
pub mod schedule;
mod server_time;
pub mod signal;
mod task;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

pub(crate) use self::enrollment::Pending;
use self::schedule::{Awaited, LeaseId, Loss, Schedule};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::home::Home;
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::Store;
use crate::telemetry::{self, LeaseLabel, Sink, Survey, Surveyed};

/// The client's handle of its watchdog. When it is dropped, the watchdog takes no more claims in; it still renews the
/// leases that are held until their guards are dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

/// The state that the loop, the requests and the leases share.
#[derive(Debug)]
pub(crate) struct Shared {
    schedule: Mutex<Schedule>,
    /// For releases that their callers send; the loop has a connection of its own.
    store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Wakes the loop.
    wake: Notify,
    /// Wakes the callers that wait for the end of a shutdown.
    emptied: Notify,
    pub(crate) sink: &'static Sink,
    pub(crate) home: Home,
    is_dead: AtomicBool,
}

impl Watchdog {
    /// Starts the thread and waits until it has a connection of its own.
    ///
    /// # Errors
    /// `Unavailable` where a thread cannot be started; otherwise as the store's connecting.
    ///
    /// # Cancel safety
    /// The thread ends if no caller waits for it any more.
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        sink: &'static Sink,
        home: Home,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            schedule: Mutex::new(Schedule::new(fastrand::u64(..))),
            clock: store.clock(),
            store,
            wake: Notify::new(),
            emptied: Notify::new(),
            sink,
            home,
            is_dead: AtomicBool::new(false),
        });
        telemetry::watch(Arc::downgrade(&shared) as _)?;
        let (ready, is_ready) = oneshot::channel();
        let watchdog = Self {
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new().name("leasehold-watchdog".into());
        let started = thread.spawn(move || task::run(&shared, ready));
        started.map_err(|source| {
            let what = "acquire failed: the watchdog's thread did not start";
            Error::new(ErrorKind::Unavailable, what).with_source(source)
        })?;
        is_ready.await.unwrap_or_else(|_| Err(died()))?;
        Ok(watchdog)
    }

    /// Ends all leases, then waits until their guards are dropped and their releases are sent, up to `limit`. Returns
    /// whether nothing is left.
    pub(crate) async fn shut_down(&self, limit: Duration) -> bool {
        (self.shared).change(|schedule| schedule.close(LossReason::Shutdown));
        let ends_at = self.shared.clock.now().after(limit);
        loop {
            let emptied = self.shared.emptied.notified();
            if self.shared.schedule.lock().is_empty() {
                return true;
            }
            tokio::select! {
                () = emptied => {}
                () = self.shared.clock.sleep_until(ends_at) => return false,
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if !self.shared.home.is_forked() {
            self.shared.change(Schedule::retire);
        }
    }
}

impl Surveyed for Shared {
    fn sink(&self) -> &'static Sink {
        self.sink
    }

    fn survey(&self, survey: &mut Survey) {
        let mut from = Some(LeaseId::FIRST);
        while let Some(first) = from {
            let now = self.clock.now();
            from = self.schedule.lock().survey(first, now, survey);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.home.is_forked() {
            telemetry::client_ended();
        }
    }
}

fn died() -> Error {
    Error::new(
        ErrorKind::Closed,
        "acquire refused: the watchdog's thread has ended",
    )
}

impl Shared {
    fn why_closed(&self) -> Error {
        if self.is_dead.load(Ordering::Acquire) {
            died()
        } else {
            Error::shut_down()
        }
    }

    /// Changes the schedule. Then, without its lock, carries out the effects of the change, and wakes the callers that
    /// wait for the end of a shutdown if this was the last lease.
    fn change<T>(&self, change: impl FnOnce(&mut Schedule) -> T) -> T {
        let mut schedule = self.schedule.lock();
        let answer = change(&mut schedule);
        let effects = schedule.take_effects();
        let is_done = schedule.is_done();
        drop(schedule);
        self.tell(effects.losses);
        for Awaited { name, signal } in effects.moved {
            self.wake_users(&name, || signal.wake());
        }
        if effects.must_wake {
            self.wake.notify_one();
        }
        if is_done && catch_unwind(AssertUnwindSafe(|| self.emptied.notify_waiters())).is_err() {
            telemetry::waker_panicked(None);
        }
        answer
    }

    /// Cancels the tokens of lost leases.
    fn tell(&self, losses: Vec<Loss>) {
        for loss in losses {
            self.wake_users(&loss.name, || loss.signal.cancel());
            if let Some(deadline) = loss.deadline {
                let lease = LeaseLabel {
                    name: loss.name,
                    token: loss.signal.token_of_grant(),
                };
                let overrun = self.clock.now().since(deadline);
                self.sink.lost(lease, loss.reason, overrun);
            }
        }
    }

    /// Wakes tasks of the user. Catches the panic of a waker, which would end the thread that renews all leases.
    fn wake_users(&self, name: &Name, wake: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(wake)).is_err() {
            telemetry::waker_panicked(Some(name.as_str().into()));
        }
    }
}
