//! The one background keeper of all leases of a client.
//!
//! ```text
//!  user's tasks                        watchdog's thread                       reporter's thread
//!  enroll, hold, leave ─┐          ┌─► turn ─► cancel the lost ─► events ────► logs, metrics
//!                       ▼          │     └───► spawn batches, releases ─► store (its own connection)
//!                 Mutex<Schedule> ─┘                    └── settle ◄──────────────┘
//! ```
//!
//! The schedule is the only shared state and is never held across an await. The loop decides, other tasks do the I/O.
//! The loop is woken only when the earliest armed instant moves forward.

mod doubtful;
#[cfg_attr(
    not(feature = "internals"),
    expect(unreachable_pub, reason = "the feature `internals` re-exports it")
)]
pub mod schedule;
mod server_time;
#[cfg_attr(
    not(feature = "internals"),
    expect(unreachable_pub, reason = "the feature `internals` re-exports it")
)]
pub mod signal;
mod task;

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use self::schedule::{Awaited, Departure, Key, Limits, Loss, Schedule};
use self::signal::Signal;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::group::Group;
use crate::holder::Holder;
use crate::home::Home;
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::Store;
use crate::telemetry::{Count, Event, Reporter};
use crate::term::{Instant, Term, Timing};

/// The client's hold on its watchdog. When it is dropped, no more claims are taken in; what is held is renewed on until
/// its guards are gone.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

/// What the loop and the enrollments share.
#[derive(Debug)]
pub(crate) struct Shared {
    schedule: Mutex<Schedule>,
    clock: Arc<dyn Clock>,
    /// Wakes the loop.
    wake: Notify,
    /// Wakes those who wait for the end of a shutdown.
    emptied: Notify,
    reporter: Reporter,
    home: Home,
    is_dead: AtomicBool,
}

impl Watchdog {
    /// Starts the thread and waits until it has a connection of its own.
    ///
    /// # Errors
    /// `Unavailable` where a thread cannot be started; otherwise as the store's connecting.
    ///
    /// # Cancel safety
    /// A thread that nobody waits for ends.
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        group: Group,
        home: Home,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            schedule: Mutex::new(Schedule::new(fastrand::u64(..))),
            clock: store.clock(),
            wake: Notify::new(),
            emptied: Notify::new(),
            reporter: Reporter::start(group)?,
            home,
            is_dead: AtomicBool::new(false),
        });
        let (ready, is_ready) = oneshot::channel();
        let watchdog = Self {
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new().name("leasehold-watchdog".into());
        let started = thread.spawn(move || task::run(&shared, &store, ready));
        started.map_err(|source| {
            Error::new(
                ErrorKind::Unavailable,
                "acquire failed: the watchdog's thread did not start",
            )
            .with_source(source)
        })?;
        is_ready.await.unwrap_or_else(|_| Err(died()))?;
        Ok(watchdog)
    }

    /// Takes a claim in, before it is sent.
    ///
    /// # Errors
    /// `Closed` when the thread has ended or the client is shutting down.
    pub(crate) fn enroll(
        &self,
        name: Name,
        holder: Holder,
        timing: Timing,
        limits: Limits,
    ) -> Result<Enrollment, Error> {
        let signal = Arc::new(Signal::new(self.shared.clock.now()));
        let key = self
            .shared
            .schedule()
            .enroll(name, holder, timing, limits, signal.clone());
        let key = key.ok_or_else(|| self.why_closed())?;
        Ok(Enrollment {
            shared: self.shared.clone(),
            signal,
            key: Some(key),
        })
    }

    fn why_closed(&self) -> Error {
        if self.is_dead() {
            died()
        } else {
            Error::shut_down()
        }
    }

    /// Whether its thread has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.shared.is_dead.load(Ordering::Acquire)
    }

    /// Ends all leases, then waits until their guards are gone and their releases are sent, up to `limit`. Answers
    /// whether nothing is left.
    pub(crate) async fn shut_down(&self, limit: Duration) -> bool {
        let losses = self.shared.schedule().close(LossReason::Shutdown);
        self.shared.tell(losses);
        self.shared.wake.notify_one();
        let ends_at = self.shared.clock.now().after(limit);
        loop {
            let emptied = self.shared.emptied.notified();
            if self.shared.schedule().is_empty() {
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
            self.shared.schedule().retire();
            self.shared.wake.notify_one();
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
    fn schedule(&self) -> Access<'_> {
        let schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        Access {
            held_before: schedule.held(),
            schedule,
            reporter: &self.reporter,
        }
    }

    fn wake_if(&self, is_needed: bool) {
        if is_needed {
            self.wake.notify_one();
        }
    }

    /// Tells of a loss that a `check()` found before the loop did, because its guard is about to go.
    fn tell_found(&self, key: Key) {
        let found = self.schedule().found(key);
        self.tell(found.into_iter().collect());
    }

    /// Tells the holders.
    fn tell(&self, losses: Vec<Loss>) {
        for loss in losses {
            self.wake_users(&loss.name, || loss.signal.cancel());
            if let Some(deadline) = loss.deadline {
                self.reporter.count(Count::Lost(loss.reason), 1);
                self.reporter.send(Event::Lost {
                    name: loss.name.as_str().to_owned(),
                    reason: loss.reason,
                    overrun: self.clock.now().since(deadline),
                });
            }
        }
    }

    /// Wakes those who wait for a renewal of these.
    fn tell_renewed(&self, renewed: Vec<Awaited>) {
        for Awaited { name, signal } in renewed {
            self.wake_users(&name, || signal.wake());
        }
    }

    /// Wakes those who wait for the end of a shutdown, if this is the end.
    fn tell_if_emptied(&self) {
        let is_emptied = self.schedule().is_done();
        if is_emptied && catch_unwind(AssertUnwindSafe(|| self.emptied.notify_waiters())).is_err() {
            self.reporter.send(Event::WakerPanicked { name: None });
        }
    }

    /// Runs what wakes code of the user's, whatever that code does: this is the thread that all leases live by.
    fn wake_users(&self, name: &Name, wake: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(wake)).is_err() {
            let name = Some(name.as_str().to_owned());
            self.reporter.send(Event::WakerPanicked { name });
        }
    }
}

/// The schedule while it is locked. What is held is counted where this ends, whatever was done: no way in or out can be
/// forgotten.
struct Access<'a> {
    schedule: MutexGuard<'a, Schedule>,
    held_before: usize,
    reporter: &'a Reporter,
}

impl Deref for Access<'_> {
    type Target = Schedule;

    fn deref(&self) -> &Schedule {
        &self.schedule
    }
}

impl DerefMut for Access<'_> {
    fn deref_mut(&mut self) -> &mut Schedule {
        &mut self.schedule
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        let more = self.schedule.held() as i64 - self.held_before as i64;
        if more != 0 {
            self.reporter.count_held(more);
        }
    }
}

/// One claim's place in the schedule, from before it is sent until its lease is gone. Dropping it releases.
#[derive(Debug)]
pub(crate) struct Enrollment {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    /// Gone once the enrollment has ended.
    key: Option<Key>,
}

/// An attempt of a claim that is under way. Dropped unanswered, it stays in doubt.
#[derive(Debug)]
#[must_use = "an attempt that is not answered stays in doubt"]
pub(crate) struct Sending {
    /// Read before it is sent: its grant's term begins here.
    pub(crate) sent_at: Instant,
    before: Option<Instant>,
}

impl Enrollment {
    /// Notes that an attempt is leaving now.
    pub(crate) fn send(&self) -> Sending {
        let sent_at = self.shared.clock.now();
        let before = self.shared.schedule().claim_sent(self.key(), sent_at);
        Sending { sent_at, before }
    }

    /// Notes that the store answered this attempt, the last one sent.
    pub(crate) fn answered(&self, attempt: Sending) {
        self.shared
            .schedule()
            .claim_answered(self.key(), attempt.before);
    }

    /// Begins to renew.
    ///
    /// # Errors
    /// The reason, if the client ended all leases meanwhile, or too little is left of the term.
    pub(crate) fn hold(&self, term: Term) -> Result<(), LossReason> {
        let now = self.shared.clock.now();
        let must_wake = self.shared.schedule().hold(self.key(), term, now)?;
        self.shared.wake_if(must_wake);
        Ok(())
    }

    /// Ends the enrollment before its release is sent by the caller. `None`: there is nothing to release. The loop sends
    /// it should the report not come in time.
    pub(crate) fn withdraw(&mut self, keep_for: Option<Duration>) -> Option<Withdrawal> {
        let key = self.key.take()?;
        let now = self.shared.clock.now();
        self.shared.tell_found(key);
        let (departure, must_wake) = self.shared.schedule().withdraw(key, now, keep_for);
        self.shared.wake_if(must_wake);
        self.shared.tell_if_emptied();
        Some(Withdrawal {
            shared: self.shared.clone(),
            departure: departure?,
            is_settled: false,
        })
    }

    /// Leaves the release to the loop. Never blocks, never fails.
    pub(crate) fn leave(&mut self, keep_for: Option<Duration>) {
        if let Some(key) = self.key.take() {
            let now = self.shared.clock.now();
            self.shared.tell_found(key);
            let must_wake = self.shared.schedule().leave(key, now, keep_for);
            self.shared.wake_if(must_wake);
            self.shared.tell_if_emptied();
        }
    }

    /// Whether its lease is gone.
    pub(crate) const fn has_ended(&self) -> bool {
        self.key.is_none()
    }

    /// Whether this is the child of a fork, where the loop does not run.
    pub(crate) fn is_forked(&self) -> bool {
        self.shared.home.is_forked()
    }

    /// Where the lease is counted.
    pub(crate) fn reporter(&self) -> &Reporter {
        &self.shared.reporter
    }

    /// What tells the holder.
    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The clock of the lease.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    fn key(&self) -> Key {
        self.key.expect("an enrollment is used until it ends")
    }
}

impl Drop for Enrollment {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.leave(None);
        }
    }
}

/// A release that the caller sends and then reports. Dropped without a report, it is left to the loop.
#[derive(Debug)]
#[must_use = "without a report the loop sends the release once more"]
pub(crate) struct Withdrawal {
    shared: Arc<Shared>,
    departure: Departure,
    is_settled: bool,
}

impl Withdrawal {
    /// What is to be sent.
    pub(crate) const fn departure(&self) -> &Departure {
        &self.departure
    }

    /// Reports the answer: `is_clear` if the store said what it did.
    pub(crate) fn settle(mut self, is_clear: bool) {
        self.is_settled = true;
        let now = self.shared.clock.now();
        let ticket = self.departure.ticket;
        let must_wake = self.shared.schedule().settle_release(ticket, is_clear, now);
        self.shared.wake_if(must_wake);
        self.shared.tell_if_emptied();
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if !self.is_settled && !self.shared.home.is_forked() {
            let now = self.shared.clock.now();
            let must_wake = self.shared.schedule().take_over(self.departure.ticket, now);
            self.shared.wake_if(must_wake);
        }
    }
}
