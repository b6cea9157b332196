//! One session that many requests share, made anew when it has ended.
//!
//! ```text
//!   Down --(request)--> Connecting --(made)--> Up --(the session ended)--> Down
//! ```
//!
//! A session is made by a task of its own, on the runtime that is to keep it alive: the session ends when that runtime
//! is blocked or has ended. A caller that times out or is dropped does not end the attempt that other callers wait for.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{FutureExt, Shared};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::address::Address;
use super::failure::Failure;
use super::session::Session;
use crate::clock::{Boottime, Clock, Instant};
use crate::driver::Driver;
use crate::telemetry::ConnectionGauge;

/// How many claims and releases may be under way at once, so that renewals never queue behind more.
const IN_FLIGHT: usize = 256;
/// How long the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A session shared by all requests.
pub(super) struct Lane {
    address: Arc<Address>,
    home: LaneHome,
    session_timeout: Duration,
    state: Arc<Mutex<State>>,
    permits: Semaphore,
    gauge: Arc<ConnectionGauge>,
}

/// Where the session lives.
#[derive(Debug, Clone)]
pub(super) enum LaneHome {
    /// On the store's own thread.
    Driver(Arc<Driver>),
    /// On the runtime of the thread for which the lane was made.
    Runtime(Handle),
}

enum State {
    /// Exits: Connecting (a request), Closed.
    Down,
    /// Exits: Up, Down (failed), Closed.
    Connecting(Attempt),
    /// Exits: Down (the session ended), Closed.
    Up(Arc<Session>),
    /// Final.
    Closed,
}

type Attempt = Shared<Pin<Box<dyn Future<Output = Result<Arc<Session>, Failure>> + Send>>>;

impl Lane {
    pub(super) fn new(
        address: Arc<Address>,
        home: LaneHome,
        session_timeout: Duration,
        gauge: Arc<ConnectionGauge>,
    ) -> Self {
        Self {
            address,
            home,
            session_timeout,
            state: Arc::new(Mutex::new(State::Down)),
            permits: Semaphore::new(IN_FLIGHT),
            gauge,
        }
    }

    /// Returns the session once it is connected to a server.
    pub(super) async fn session(&self, until: Instant) -> Result<Arc<Session>, Failure> {
        // Tries twice, because another caller may have begun the first attempt, on a runtime that has ended.
        let mut outcome = Err(Failure::NotReached);
        for _ in 0..2 {
            let made = match self.made() {
                Available::Session(session) => Ok(Ok(session)),
                Available::Attempt(attempt) => timeout(left(until), attempt).await,
                Available::Failure(failure) => return Err(failure),
            };
            let session = match made {
                Ok(Ok(session)) => session,
                Ok(Err(failure)) => {
                    outcome = Err(failure);
                    continue;
                }
                Err(_) => return Err(Failure::NotReached),
            };
            if timeout(left(until), session.settled()).await.is_err() {
                return Err(Failure::NotReached);
            }
            if self.is_closed() {
                return Err(Failure::Closed);
            }
            if session.is_connected() {
                return Ok(session);
            }
        }
        outcome
    }

    /// Waits until few enough requests are under way.
    pub(super) async fn permit(&self, until: Instant) -> Result<SemaphorePermit<'_>, Failure> {
        match timeout(left(until), self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Failure::Closed),
            Err(_) => Err(Failure::Busy),
        }
    }

    /// Ends the session; requests fail from now on.
    pub(super) async fn close(&self) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        self.permits.close();
        if let State::Up(session) = state
            && let Some(session) = Arc::into_inner(session)
        {
            // If its runtime has ended or the server is gone, the session expires by itself.
            let _ = timeout(GOODBYE, session.end()).await;
        }
        self.gauge.closed();
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }

    fn made(&self) -> Available {
        let mut state = self.state();
        if let State::Up(session) = &*state {
            if !session.is_over() {
                return Available::Session(session.clone());
            }
            *state = State::Down;
        }
        match &mut *state {
            State::Closed => Available::Failure(Failure::Closed),
            State::Connecting(attempt) if attempt.peek().is_none() => {
                Available::Attempt(attempt.clone())
            }
            other => match self.begin() {
                Ok(attempt) => {
                    *other = State::Connecting(attempt.clone());
                    Available::Attempt(attempt)
                }
                Err(failure) => Available::Failure(failure),
            },
        }
    }

    /// Begins to connect, in a task that stores the outcome whether or not a caller still waits for it.
    fn begin(&self) -> Result<Attempt, Failure> {
        let (address, session_timeout) = (self.address.clone(), self.session_timeout);
        let (state, gauge) = (self.state.clone(), self.gauge.clone());
        let connecting = async move {
            let made = Session::connect(&address, session_timeout, gauge.clone()).await;
            let made = made.map(Arc::new);
            let mut state = lock(&state);
            // A lane that was closed meanwhile stays closed.
            if matches!(*state, State::Connecting(_)) {
                gauge.connecting_ended(made.is_ok());
                *state = made.clone().map_or(State::Down, State::Up);
            }
            made
        };
        let task = match &self.home {
            LaneHome::Driver(driver) => driver.spawn(connecting).map_err(|_| Failure::NoThread)?,
            LaneHome::Runtime(runtime) => runtime.spawn(connecting),
        };
        let outcome = async move { task.await.unwrap_or(Err(Failure::Abandoned)) };
        let outcome: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(outcome);
        Ok(outcome.shared())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The session, or what there is in its place.
enum Available {
    Session(Arc<Session>),
    Attempt(Attempt),
    Failure(Failure),
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.state() {
            State::Down => "down",
            State::Connecting(_) => "connecting",
            State::Up(_) => "up",
            State::Closed => "closed",
        };
        f.debug_struct("Lane")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

/// Returns the answer, unless the time is up first: the outcome of the request is then unknown.
pub(super) async fn within<T>(
    until: Instant,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout(left(until), answer).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::Silent),
    }
}

pub(super) fn left(until: Instant) -> Duration {
    until.since(Boottime.now())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
