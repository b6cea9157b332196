//! One connection that many requests share, made again after it broke.
//!
//! ```text
//!   Down --(request)--> Connecting --(made)--> Up --(broken, silent for too long, unused)--> Down
//!                           ^                  |
//!                           +---(lost, and to be kept up without requests)
//! ```
//!
//! A connection is made by a task of its own, so that a caller with little time left, or one whose future is dropped,
//! does not end the attempt that others wait for. The same task drives the connection, where the driver's crate does
//! not.
//!
//! Each store brings a [`Connect`], which makes and drives a connection; stores that send requests through
//! [`Connection::request`] also bring an [`Exchange`], which decides what a failure means for the connection.

mod exchange;
mod first_of;
pub(crate) mod pauses;
pub(crate) mod room;
#[cfg(test)]
mod tests;
mod thread;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use self::exchange::{Exchange, Fault};
pub(crate) use self::first_of::best;
pub(crate) use self::first_of::{HEAD_START, first_of, is_transient, most_telling};
pub(crate) use self::thread::Driver;
use super::budget::Budget;
use crate::clock::Instant;
use crate::error::ErrorKind;
use crate::future::shielded;
use crate::telemetry::ConnectionGauge;

/// Makes the connections of one kind of store. It is cloned for each attempt, so the notes of a clone last as long as
/// its connection is kept up.
pub(crate) trait Connect: Clone + Send + Sync + 'static {
    /// A connection that was made. It ends when this is dropped.
    type Open: Send + Sync + 'static;
    /// The part that has to be driven.
    type Engine: Send;
    type Failure: Clone + Send + Sync + From<Unconnected> + 'static;

    /// Makes a connection, or gives up if the servers are silent.
    fn connect(
        &mut self,
    ) -> impl Future<Output = Result<(Self::Open, Self::Engine), Self::Failure>> + Send;

    /// Drives a connection until it has ended.
    fn drive(
        &mut self,
        engine: Self::Engine,
        driven: &Driven<Self>,
    ) -> impl Future<Output = AfterEnd> + Send;

    /// Returns the pause before another attempt after a failed one, without a request. `None`: the next request
    /// connects.
    fn again_after(&self, _failure: &Self::Failure) -> Option<Duration> {
        None
    }
}

/// Why there is no connection, apart from what the servers said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unconnected {
    /// The store was closed by its owner.
    #[error("closed")]
    Closed,
    /// None was made within the caller's limit.
    #[error("no connection in time")]
    Late,
    /// The runtime on which it was being made has ended.
    #[error("the runtime that was connecting ended")]
    Abandoned,
    /// The store's thread could not be started.
    #[error("the thread that drives the connections did not start")]
    NoThread,
}

impl Unconnected {
    pub(crate) const fn kind(self) -> ErrorKind {
        match self {
            Self::Closed => ErrorKind::Closed,
            Self::Late => ErrorKind::TimedOut,
            Self::Abandoned | Self::NoThread => ErrorKind::Unavailable,
        }
    }
}

/// The step that follows the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterEnd {
    /// The next request connects.
    Down,
    /// Another connection is made at once.
    Again,
}

/// The runtime that makes and drives a connection. While it is blocked, or once it has ended, no answer is read.
#[derive(Debug, Clone)]
pub(crate) enum HomeRuntime {
    /// The store's own thread, which serves callers on every runtime.
    Thread(Arc<Driver>),
    /// The runtime of the callers that use the connection.
    Runtime(Handle),
    /// The runtime of the caller that needs a connection while there is none.
    Caller,
}

/// A connection shared by many requests. When this is dropped it ends.
pub(crate) struct Connection<C: Connect> {
    shared: Arc<Shared<C>>,
    home: HomeRuntime,
}

/// The state that the connection's task shares with its callers.
struct Shared<C: Connect> {
    connect: C,
    state: Mutex<State<C>>,
    /// When a connection was last given up because its server was silent or the wrong one.
    replaced_at: Mutex<Option<Instant>>,
    /// The silent connection that was replaced last.
    old: Mutex<Option<Old<C>>>,
    closing: CancellationToken,
    gauge: Arc<ConnectionGauge>,
}

enum State<C: Connect> {
    /// Exits: Connecting (a request), Closed.
    Down,
    /// Exits: Up, Down (failed), Closed.
    Connecting(watch::Receiver<Option<Outcome<C>>>),
    /// Exits: Down (broken, silent, unused), Connecting (lost, and to be kept up), Closed.
    Up(Arc<C::Open>),
    /// Final.
    Closed,
}

/// A silent connection that was replaced, and stays open while requests wait for answers on it. There is one at most.
struct Old<C: Connect> {
    open: Weak<C::Open>,
    /// Cancelled when no request waits for its answers any longer.
    given_up: CancellationToken,
}

type Outcome<C> = Result<Arc<<C as Connect>::Open>, <C as Connect>::Failure>;

/// A connection as its task sees it. When this is dropped, with the task or with its runtime, the connection is down.
pub(crate) struct Driven<C: Connect> {
    shared: Arc<Shared<C>>,
    open: Weak<C::Open>,
}

impl<C: Connect> Connection<C> {
    pub(crate) fn new(connect: C, home: HomeRuntime, gauge: Arc<ConnectionGauge>) -> Self {
        let shared = Shared {
            connect,
            state: Mutex::new(State::Down),
            replaced_at: Mutex::default(),
            old: Mutex::default(),
            closing: CancellationToken::new(),
            gauge,
        };
        Self {
            shared: Arc::new(shared),
            home,
        }
    }

    pub(crate) fn connector(&self) -> &C {
        &self.shared.connect
    }

    /// The runtime on which the connection is made.
    pub(crate) const fn home(&self) -> &HomeRuntime {
        &self.home
    }

    /// Returns the connection once it is made.
    pub(crate) async fn open(&self, budget: Budget) -> Result<Arc<C::Open>, C::Failure> {
        // Twice, because the first attempt may have been begun by others, on a runtime that has ended.
        for _ in 0..2 {
            let mut attempt = match &mut *self.shared.state() {
                State::Closed => return Err(Unconnected::Closed.into()),
                State::Up(open) => return Ok(open.clone()),
                State::Connecting(attempt) => attempt.clone(),
                down @ State::Down => {
                    let attempt = self.begin()?;
                    *down = State::Connecting(attempt.clone());
                    attempt
                }
            };
            let ended = shielded(attempt.wait_for(Option::is_some));
            let outcome = match timeout(budget.left(), ended).await {
                Ok(outcome) => outcome.ok().and_then(|outcome| outcome.clone()),
                Err(_) => return Err(Unconnected::Late.into()),
            };
            match outcome {
                _ if self.is_closed() => return Err(Unconnected::Closed.into()),
                Some(outcome) => return outcome,
                None => self.shared.forget(&attempt),
            }
        }
        Err(Unconnected::Abandoned.into())
    }

    /// Returns a measure of the open connection, this one while it is being made, and `None` without one.
    pub(crate) fn measure<T>(&self, open: impl FnOnce(&C::Open) -> T, connecting: T) -> Option<T> {
        match &*self.shared.state() {
            State::Up(current) => Some(open(current)),
            State::Connecting(_) => Some(connecting),
            State::Down | State::Closed => None,
        }
    }

    /// Ends the connection; requests fail from then on. Returns the connection if it was open.
    pub(crate) fn close(&self) -> Option<Arc<C::Open>> {
        let state = std::mem::replace(&mut *self.shared.state(), State::Closed);
        self.shared.closing.cancel();
        self.shared.gauge.closed();
        match state {
            State::Up(open) => Some(open),
            _ => None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(*self.shared.state(), State::Closed)
    }

    /// Returns whether there is no connection, and none is being made.
    pub(crate) fn is_down(&self) -> bool {
        matches!(*self.shared.state(), State::Down | State::Closed)
    }

    /// Starts to connect, in a task that stores the outcome even if no caller waits for it any more.
    fn begin(&self) -> Result<watch::Receiver<Option<Outcome<C>>>, C::Failure> {
        let (ended, attempt) = watch::channel(None);
        let runtime = match &self.home {
            HomeRuntime::Thread(thread) => thread.handle()?,
            HomeRuntime::Runtime(runtime) => runtime.clone(),
            HomeRuntime::Caller => Handle::current(),
        };
        runtime.spawn(self.shared.clone().keep(ended));
        Ok(attempt)
    }
}

impl<C: Connect> Drop for Connection<C> {
    fn drop(&mut self) {
        let ended = std::mem::replace(&mut *self.shared.state(), State::Closed);
        self.shared.closing.cancel();
        drop(ended);
    }
}

impl<C: Connect> fmt::Debug for Connection<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.shared.state() {
            State::Down => "down",
            State::Connecting(_) => "connecting",
            State::Up(_) => "up",
            State::Closed => "closed",
        })
    }
}

impl<C: Connect> Shared<C> {
    /// Makes the connection and drives it, and remakes it as long as it has to stay up without requests.
    async fn keep(self: Arc<Self>, mut attempt: watch::Sender<Option<Outcome<C>>>) {
        let mut connect = self.connect.clone();
        loop {
            let made = tokio::select! {
                made = connect.connect() => made,
                () = self.closing.cancelled() => return,
            };
            let (open, engine) = match made {
                Ok((open, engine)) => (Ok(Arc::new(open)), Some(engine)),
                Err(failure) => (Err(failure), None),
            };
            self.settle(&open);
            let failure = open.as_ref().err();
            let pause = failure.and_then(|failure| connect.again_after(failure));
            let driven = open.as_ref().ok().map(|open| Driven {
                shared: self.clone(),
                open: Arc::downgrade(open),
            });
            attempt.send_replace(Some(open));
            // It has the connection, which ends when the last caller drops it.
            drop(attempt);
            let next = match (engine, driven, pause) {
                (Some(engine), Some(driven), _) => match connect.drive(engine, &driven).await {
                    AfterEnd::Down => None,
                    AfterEnd::Again => driven.again(),
                },
                (_, _, Some(pause)) => self.again_after(pause).await,
                _ => None,
            };
            match next {
                Some(next) => attempt = next,
                None => return,
            }
        }
    }

    /// Begins another attempt after a pause, unless a request did so meanwhile or the store was closed.
    async fn again_after(&self, pause: Duration) -> Option<watch::Sender<Option<Outcome<C>>>> {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.closing.cancelled() => return None,
        }
        let (ended, attempt) = watch::channel(None);
        let mut state = self.state();
        let is_down = matches!(*state, State::Down);
        is_down.then(|| {
            *state = State::Connecting(attempt);
            ended
        })
    }

    /// Stores the outcome of an attempt. A closed connection stays closed.
    fn settle(&self, outcome: &Outcome<C>) {
        let mut state = self.state();
        if matches!(*state, State::Connecting(_)) {
            self.gauge.connecting_ended(outcome.is_ok());
            *state = match outcome {
                Ok(open) => State::Up(open.clone()),
                Err(_) => State::Down,
            };
        }
    }

    fn forget(&self, attempt: &watch::Receiver<Option<Outcome<C>>>) {
        let mut state = self.state();
        if matches!(&*state, State::Connecting(current) if current.same_channel(attempt)) {
            *state = State::Down;
        }
    }

    /// Changes the state if this connection is the current one. Returns whether it was.
    fn leave_up(&self, open: *const C::Open, next: State<C>) -> bool {
        let mut state = self.state();
        let is_current =
            matches!(&*state, State::Up(current) if std::ptr::eq(Arc::as_ptr(current), open));
        if is_current {
            *state = next;
        }
        is_current
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock()
    }
}

impl<C: Connect> Driven<C> {
    /// Cancelled when the store is closed.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.shared.closing
    }

    /// Returns the connection, unless its last caller has dropped it.
    pub(crate) fn open(&self) -> Option<Arc<C::Open>> {
        self.open.upgrade()
    }

    /// Gives the connection up if it is not needed. Returns whether it was given up, now or before.
    pub(crate) fn give_up_if(&self, is_unused: impl FnOnce(&C::Open) -> bool) -> bool {
        let mut state = self.shared.state();
        match &*state {
            State::Up(open) if std::ptr::eq(Arc::as_ptr(open), self.open.as_ptr()) => {
                let is_unused = is_unused(open);
                if is_unused {
                    self.shared.gauge.closed();
                    *state = State::Down;
                }
                is_unused
            }
            _ => true,
        }
    }

    /// Begins to connect again, unless the connection was given up or closed meanwhile.
    fn again(self) -> Option<watch::Sender<Option<Outcome<C>>>> {
        let (ended, attempt) = watch::channel(None);
        let is_current = (self.shared).leave_up(self.open.as_ptr(), State::Connecting(attempt));
        is_current.then(|| {
            self.shared.gauge.lost();
            ended
        })
    }
}

impl<C: Connect> Drop for Driven<C> {
    fn drop(&mut self) {
        if self.shared.leave_up(self.open.as_ptr(), State::Down) {
            self.shared.gauge.lost();
        }
    }
}
