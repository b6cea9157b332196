//! One connection that many requests share, replaced when it breaks or its server stops answering.
//!
//! ```text
//!   Down --(request)--> Connecting --(made)--> Up --(broken, silent past a limit, idle)--> Down
//! ```
//!
//! A connection is made by a task of its own, so that a caller with little time left, or one whose future is dropped,
//! does not end the attempt that others wait for. The connections that callers share are made and driven on the store's
//! own thread, so that they serve callers on every runtime. Nothing is set on the session and no statement is prepared
//! by name, so that a pooler may give every statement to another server connection. A request is never cancelled,
//! because a cancel turns a wait for a synchronous standby into a success that no standby has. The connection is given
//! up instead.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{FutureExt, Shared};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Row};

use super::address::Address;
use super::failure::Failure;
use crate::clock::{Boottime, Clock, Instant};
use crate::driver::Driver;
use crate::telemetry::ConnectionGauge;

/// How long a connection that is given up may take to close.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection shared by all requests.
pub(super) struct Lane {
    address: Arc<Address>,
    /// The thread on which connections are made and driven. `None`: the runtime of the first caller, which belongs to
    /// the thread for which the lane was made.
    driver: Option<Arc<Driver>>,
    connect_timeout: Duration,
    /// After how long without a request the connection is closed.
    idle_after: Option<Duration>,
    state: Arc<Mutex<State>>,
    gauge: Arc<ConnectionGauge>,
    /// When a connection was last given up because its server was silent.
    replaced_at: Mutex<Option<Instant>>,
}

/// One statement and its arguments.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) statement: &'a str,
    pub(super) arguments: &'a [(&'a (dyn ToSql + Sync), Type)],
}

enum State {
    /// Exits: Connecting (a request), Closed.
    Down,
    /// Exits: Up, Down (failed), Closed.
    Connecting(Attempt),
    /// Exits: Down (broken, silent, idle), Closed.
    Up(Arc<Backend>),
    /// Final.
    Closed,
}

type Attempt = Shared<Pin<Box<dyn Future<Output = Result<Arc<Backend>, Failure>> + Send>>>;

/// One connection.
struct Backend {
    client: Client,
    marks: Arc<BackendMarks>,
    in_flight: AtomicUsize,
    has_others: bool,
    /// Dropped with this value, which ends the task that drives the connection.
    _end: oneshot::Sender<()>,
}

/// The state that a backend shares with the task that drives its connection.
#[derive(Default)]
struct BackendMarks {
    /// Whether the server stopped waiting for its standby: later replies may not be on a standby.
    is_unreplicated: AtomicBool,
    /// When a request was last sent, in nanoseconds of the lease clock.
    used_at: AtomicU64,
}

/// Counts a request for as long as a caller waits for it.
struct InFlight<'a>(&'a AtomicUsize);

impl Lane {
    pub(super) fn new(
        address: Arc<Address>,
        driver: Option<Arc<Driver>>,
        connect_timeout: Duration,
        idle_after: Option<Duration>,
        gauge: Arc<ConnectionGauge>,
    ) -> Self {
        Self {
            gauge,
            address,
            driver,
            connect_timeout,
            idle_after,
            state: Arc::new(Mutex::new(State::Down)),
            replaced_at: Mutex::new(None),
        }
    }

    /// Makes the connection now, on the calling runtime.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        let until = Boottime.now().after(self.connect_timeout);
        self.link(until).await.map(drop)
    }

    /// Sends one statement and awaits its answer.
    ///
    /// If no answer comes in time the connection is replaced, but only once in `replace_every`, so that a slow server
    /// is not flooded with handshakes. A connection that was already closed before the statement was sent is replaced
    /// at once, and the statement is sent on the new one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(super) async fn request(
        &self,
        call: Query<'_>,
        until: Instant,
        replace_every: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let mut link = self.link(until).await?;
        let mut outcome = link.send(call, until).await;
        if matches!(outcome, Err(Failure::Unsent(_))) {
            self.drop_link(&link);
            link = self.link(until).await?;
            outcome = link.send(call, until).await;
        }
        match &outcome {
            Err(Failure::Silent) => self.replace_link(&link, replace_every),
            Err(failure) if failure.is_broken() => {
                self.drop_link(&link);
            }
            _ => {}
        }
        outcome
    }

    /// Returns how many requests are under way; `None` without a connection.
    pub(super) fn load(&self) -> Option<usize> {
        match &*self.state() {
            State::Up(link) => Some(link.in_flight.load(Ordering::Relaxed)),
            State::Connecting(_) => Some(0),
            State::Down | State::Closed => None,
        }
    }

    /// Closes the connection; requests fail from then on.
    pub(super) fn close(&self) {
        self.gauge.closed();
        *self.state() = State::Closed;
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }

    async fn link(&self, until: Instant) -> Result<Arc<Backend>, Failure> {
        // Twice, because the first attempt may have been started by others, on a runtime that has ended.
        for _ in 0..2 {
            let attempt = match &mut *self.state() {
                State::Closed => return Err(Failure::Closed),
                State::Up(link) => return Ok(link.clone()),
                State::Connecting(attempt) => attempt.clone(),
                down @ State::Down => {
                    let attempt = self.begin()?;
                    *down = State::Connecting(attempt.clone());
                    attempt
                }
            };
            match timeout(left(until), attempt.clone()).await {
                Ok(Err(Failure::Abandoned)) => self.forget(&attempt),
                Ok(_) if self.is_closed() => return Err(Failure::Closed),
                Ok(outcome) => return outcome,
                Err(_) => return Err(Failure::NotReached),
            }
        }
        Err(Failure::Abandoned)
    }

    /// Starts to connect, in a task that stores the outcome even if no caller waits for it any more.
    fn begin(&self) -> Result<Attempt, Failure> {
        let (address, limit) = (self.address.clone(), self.connect_timeout);
        let (state, idle_after) = (self.state.clone(), self.idle_after);
        let gauge = self.gauge.clone();
        let connecting = async move {
            let made = match timeout(
                limit,
                Backend::make(&address, limit, idle_after, &state, &gauge),
            )
            .await
            {
                Ok(made) => made,
                Err(_) => Err(Failure::NotReached),
            };
            let mut state = lock(&state);
            // A closed lane stays closed.
            if matches!(*state, State::Connecting(_)) {
                gauge.connecting_ended(made.is_ok());
                *state = made.clone().map_or(State::Down, State::Up);
            }
            made
        };
        let task = match &self.driver {
            Some(driver) => driver.spawn(connecting).map_err(|_| Failure::NoThread)?,
            None => tokio::spawn(connecting),
        };
        let outcome = async move { task.await.unwrap_or(Err(Failure::Abandoned)) };
        let outcome: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(outcome);
        Ok(outcome.shared())
    }

    fn forget(&self, attempt: &Attempt) {
        let mut state = self.state();
        if matches!(&*state, State::Connecting(current) if current.ptr_eq(attempt)) {
            *state = State::Down;
        }
    }

    /// Gives up a silent connection, unless the one before it was given up just now.
    fn replace_link(&self, link: &Arc<Backend>, replace_every: Duration) {
        let now = Boottime.now();
        let mut replaced_at = lock(&self.replaced_at);
        if replaced_at.is_none_or(|at| now.since(at) >= replace_every) && self.drop_link(link) {
            *replaced_at = Some(now);
        }
    }

    /// Gives up this connection, unless it was replaced already. Returns whether it did.
    fn drop_link(&self, link: &Arc<Backend>) -> bool {
        let mut state = self.state();
        let is_current = matches!(&*state, State::Up(current) if Arc::ptr_eq(current, link));
        if is_current {
            self.gauge.lost();
            *state = State::Down;
        }
        is_current
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
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

impl Backend {
    async fn make(
        address: &Address,
        connect_timeout: Duration,
        idle_after: Option<Duration>,
        state: &Arc<Mutex<State>>,
        gauge: &Arc<ConnectionGauge>,
    ) -> Result<Arc<Self>, Failure> {
        let has_others = address.has_several_hosts();
        let handshake = address.handshake().await?;
        let made = address.config(connect_timeout).connect(handshake).await;
        let (client, connection) = made.map_err(|error| Failure::unmade(&error, has_others))?;
        let marks = Arc::<BackendMarks>::default();
        marks.use_now();
        let (end, ended) = oneshot::channel();
        let link = Arc::new(Self {
            client,
            marks: marks.clone(),
            in_flight: AtomicUsize::new(0),
            has_others,
            _end: end,
        });
        let idle = idle_after.map(|after| Idle {
            after,
            marks: marks.clone(),
            link: Arc::downgrade(&link),
            state: state.clone(),
            gauge: gauge.clone(),
        });
        tokio::spawn(drive(connection, marks, ended, idle));
        Ok(link)
    }

    async fn send(&self, call: Query<'_>, until: Instant) -> Result<Vec<Row>, Failure> {
        self.marks.use_now();
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let _counted = InFlight(&self.in_flight);
        let mut answer = pin!(self.client.query_typed(call.statement, call.arguments));
        // Only a connection that was already closed fails without waiting for anything: then nothing was sent.
        let at_once = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        let (answer, is_unsent) = match at_once {
            Poll::Ready(answer) => (answer, true),
            Poll::Pending => match timeout(left(until), answer).await {
                Ok(answer) => (answer, false),
                Err(_) => return Err(Failure::Silent),
            },
        };
        let rows =
            answer.map_err(|error| Failure::of_request(&error, is_unsent, self.has_others))?;
        if self.marks.is_unreplicated.load(Ordering::Relaxed) {
            return Err(Failure::Unreplicated);
        }
        Ok(rows)
    }
}

impl BackendMarks {
    fn use_now(&self) {
        let now = Boottime.now().as_nanos();
        self.used_at.store(now, Ordering::Relaxed);
    }

    fn unused_for(&self) -> Duration {
        let used_at = Instant::from_nanos(self.used_at.load(Ordering::Relaxed));
        Boottime.now().since(used_at)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes a connection that is not used.
struct Idle {
    after: Duration,
    marks: Arc<BackendMarks>,
    link: Weak<Backend>,
    state: Arc<Mutex<State>>,
    gauge: Arc<ConnectionGauge>,
}

impl Idle {
    /// Returns once the connection has been given up.
    async fn run(self) {
        loop {
            let rest = self.after.saturating_sub(self.marks.unused_for());
            if rest.is_zero() && self.give_up() {
                return;
            }
            sleep(rest.max(Duration::from_millis(100))).await;
        }
    }

    fn give_up(&self) -> bool {
        let mut state = lock(&self.state);
        let Some(link) = self.link.upgrade() else {
            return true;
        };
        if link.in_flight.load(Ordering::Relaxed) > 0 {
            return false;
        }
        if matches!(&*state, State::Up(current) if Arc::ptr_eq(current, &link)) {
            self.gauge.closed();
            *state = State::Down;
        }
        true
    }
}

/// Drives the connection until it breaks, or until its `Backend` is dropped and it was closed in order.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    marks: Arc<BackendMarks>,
    ended: oneshot::Receiver<()>,
    idle: Option<Idle>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut run = pin!(async {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message
                && notice.parsed_severity() == Some(Severity::Warning)
                && [&SqlState::WARNING, &SqlState::ADMIN_SHUTDOWN].contains(&notice.code())
            {
                marks.is_unreplicated.store(true, Ordering::Relaxed);
            }
        }
    });
    let given_up = async {
        tokio::select! {
            _ = ended => {}
            () = async {
                match idle {
                    Some(idle) => idle.run().await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    };
    tokio::select! {
        () = &mut run => {}
        () = given_up => {
            // No caller waits for the rest.
            let _ = timeout(GOODBYE, run).await;
        }
    }
}

pub(super) fn left(until: Instant) -> Duration {
    until.since(Boottime.now())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
