//! One multiplexed connection that all requests share, replaced when it breaks or falls silent.
//!
//! ```text
//!   Down --(request)--> Connecting --(made)--> Up --(broken, silent past a limit, or to a replica)--> Down
//! ```
//!
//! A connection is made by a task of its own, so that a caller with little time left, or one that goes away, does not
//! end the attempt that others wait for. The connection that callers share is made and driven on the store's own thread, so
//! that it serves callers on every runtime; the lane beside the pool belongs to the thread that made it. The crate itself never gives up a connection whose server has fallen silent;
//! a lane does.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use deadpool::managed::Manager;
use deadpool_redis::redis::aio::{ConnectionLike, MultiplexedConnection};
use deadpool_redis::redis::{Cmd, Value};
use deadpool_redis::{Connection, Pool};
use futures_util::future::{FutureExt, Shared};
use tokio::time::timeout;

use super::address::Address;
use super::failure::Failure;
use crate::clock::{Boottime, Clock, Instant};
use crate::driver::Driver;
use crate::future::shielded;

/// For how long requests must have waited in vain before the connection is to blame, and not a limit that is shorter than
/// the way to the server. A tenth of the ttl if that is less, so that a renewal has another connection in time.
const LEAST_SILENCE: Duration = Duration::from_millis(250);

/// A connection shared by all requests.
pub(super) struct Lane {
    source: Connector,
    sharing: Sharing,
    /// The key that only a member of a quorum has.
    node: Arc<str>,
    driver: Arc<Driver>,
    connect_timeout: Duration,
    state: Arc<Mutex<State>>,
    /// When a connection was last given up whose server was silent, or a replica.
    replaced_at: Mutex<Option<Instant>>,
    /// Whether a write was ever carried out at this address. Shared by all lanes to it.
    has_written: Arc<AtomicBool>,
}

/// What makes the connections.
#[derive(Clone)]
pub(super) enum Connector {
    Pool(Pool),
    /// Each is made by itself, because its certificates are read for it.
    Address(Box<Address>),
}

/// Whom a lane's connections serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// All callers: made and driven on the store's own thread. Taken from the pool if there is one, counted by it, and never
    /// given back: what a lane drops is broken or in use by others.
    Shared,
    /// One thread, on whose runtime they are made and driven. Made beside the pool, so that no user of the pool can keep
    /// them from us.
    Own,
}

enum State {
    /// Exits: Connecting (a request comes), Closed.
    Down,
    /// Exits: Up, Down (failed), Closed.
    Connecting(Attempt),
    /// Exits: Down (broken, silent, to a replica), Closed.
    Up(Arc<Link>),
    /// Final.
    Closed,
}

type Attempt = Shared<Pin<Box<dyn Future<Output = Result<Arc<Link>, Failure>> + Send>>>;

/// What is left of a caller's limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    ends_at: Instant,
}

/// One connection.
struct Link {
    connection: MultiplexedConnection,
    /// When the first request was sent that waited in vain, if none was answered since.
    silent_since: Mutex<Option<Instant>>,
    /// Keeps the pool's count of connections true.
    _slot: Option<PoolSlot>,
}

/// A connection's place in the pool, given up when it is dropped.
struct PoolSlot(Option<Connection>);

impl Lane {
    pub(super) fn new(
        source: Connector,
        sharing: Sharing,
        node: Arc<str>,
        connect_timeout: Duration,
    ) -> Self {
        Self {
            source,
            sharing,
            node,
            driver: Arc::default(),
            connect_timeout,
            state: Arc::new(Mutex::new(State::Down)),
            replaced_at: Mutex::new(None),
            has_written: Arc::default(),
        }
    }

    /// The same address over another connection.
    pub(super) fn another(&self, sharing: Sharing) -> Self {
        Self {
            has_written: self.has_written.clone(),
            driver: self.driver.clone(),
            ..Self::new(
                self.source.clone(),
                sharing,
                self.node.clone(),
                self.connect_timeout,
            )
        }
    }

    /// Makes the connection now.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        self.link(Budget::new(self.connect_timeout)).await.map(drop)
    }

    /// Sends one command and awaits its answer.
    ///
    /// A connection on which the answer fails to come in time is replaced, but only once in `replace_every`: so a slow
    /// server is not buried in handshakes. A connection to a replica is replaced as often, because after a planned failover
    /// the same address leads to another server while connections to the old one stay. A connection that was found closed
    /// before the command left is replaced at once. In these two cases nothing was carried out, and the command is sent
    /// once more on the new connection.
    ///
    /// # Cancel safety
    /// The command may or may not have been carried out.
    pub(super) async fn request(
        &self,
        command: &Cmd,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let mut link = self.link_for_request(budget).await?;
        let mut outcome = link.send(command, budget).await;
        let is_left = match &outcome {
            Err(Failure::Unsent(_)) => {
                self.drop_link(&link);
                true
            }
            Err(failure) if failure.is_of_replica() => self.replace_link(&link, replace_every),
            _ => false,
        };
        if is_left {
            link = self.link_for_request(budget).await?;
            outcome = link.send(command, budget).await;
        }
        match &outcome {
            Err(Failure::Silent) if link.is_silent_for(LEAST_SILENCE.min(replace_every)) => {
                self.replace_link(&link, replace_every);
            }
            Err(failure) if failure.is_broken() => {
                self.drop_link(&link);
            }
            _ => {}
        }
        outcome.map_err(|failure| match self.has_written.load(Ordering::Relaxed) {
            true => failure.after_a_write(),
            false => failure,
        })
    }

    /// Notes that the server at this address has carried out a write: so the address leads to a master, as a rule.
    pub(super) fn note_write(&self) {
        // Loaded first: a shared cache line is not to be written with every request.
        if !self.has_written.load(Ordering::Relaxed) {
            self.has_written.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the connection; requests fail from now on.
    pub(super) fn close(&self) {
        *self.state() = State::Closed;
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }

    async fn link_for_request(&self, budget: Budget) -> Result<Arc<Link>, Failure> {
        let link = self.link(budget).await;
        link.map_err(Failure::before_the_request)
    }

    async fn link(&self, budget: Budget) -> Result<Arc<Link>, Failure> {
        // Twice, because the first attempt may have been begun by others, on a runtime that is gone.
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
            match timeout(budget.left(), shielded(attempt.clone())).await {
                Ok(Err(Failure::Abandoned)) => self.forget(&attempt),
                Ok(_) if self.is_closed() => return Err(Failure::Closed),
                Ok(outcome) => return outcome,
                Err(_) => return Err(Failure::Silent),
            }
        }
        Err(Failure::Abandoned)
    }

    /// Begins to connect, in a task that writes the outcome down whether or not anybody still waits for it.
    fn begin(&self) -> Result<Attempt, Failure> {
        let (source, sharing, limit) = (self.source.clone(), self.sharing, self.connect_timeout);
        let (state, node) = (self.state.clone(), self.node.clone());
        let connecting = async move {
            let making = async {
                let link = Link::make(&source, sharing, limit).await?;
                link.refuse_member(&node, limit).await?;
                Ok(link)
            };
            let made = match timeout(limit, making).await {
                Ok(made) => made.map(Arc::new),
                Err(_) => Err(Failure::Silent),
            };
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            // Closed stays closed.
            if matches!(*state, State::Connecting(_)) {
                *state = made.clone().map_or(State::Down, State::Up);
            }
            made
        };
        let task = match self.sharing {
            Sharing::Shared => self.driver.spawn(connecting).map_err(Failure::no_thread)?,
            Sharing::Own => tokio::spawn(connecting),
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

    /// Gives up a link whose server is silent or a replica, unless the one before it was given up just now. Answers
    /// whether the next request has another link.
    fn replace_link(&self, link: &Arc<Link>, replace_every: Duration) -> bool {
        let now = Boottime.now();
        let mut replaced_at = self.replaced_at();
        if !self.is_current(link) {
            return true;
        }
        if replaced_at.is_some_and(|at| now.since(at) < replace_every) {
            return false;
        }
        *replaced_at = Some(now);
        self.drop_link(link);
        true
    }

    /// Gives this link up, unless another has taken its place already.
    fn drop_link(&self, link: &Arc<Link>) {
        let mut state = self.state();
        if state.is_up_with(link) {
            *state = State::Down;
        }
    }

    fn is_current(&self, link: &Arc<Link>) -> bool {
        self.state().is_up_with(link)
    }

    fn replaced_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.replaced_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_up_with(&self, link: &Arc<Link>) -> bool {
        matches!(self, Self::Up(current) if Arc::ptr_eq(current, link))
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
            .field("sharing", &self.sharing)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

impl Budget {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            ends_at: Boottime.now().after(limit),
        }
    }

    pub(super) fn left(self) -> Duration {
        self.ends_at.since(Boottime.now())
    }
}

impl Link {
    async fn make(source: &Connector, sharing: Sharing, limit: Duration) -> Result<Self, Failure> {
        let (connection, slot) = match (source, sharing) {
            (Connector::Pool(pool), Sharing::Shared) => {
                let slot = PoolSlot(Some(pool.get().await?));
                let connection = slot.0.as_deref().expect("just put there").clone();
                (connection, Some(slot))
            }
            (Connector::Pool(pool), Sharing::Own) => (pool.manager().create().await?, None),
            (Connector::Address(address), _) => (address.connect(limit).await?, None),
        };
        Ok(Self {
            connection,
            silent_since: Mutex::default(),
            _slot: slot,
        })
    }

    /// Fails on a member of a quorum: what was granted there past the quorum, its other clients would not know of.
    async fn refuse_member(&self, node: &str, limit: Duration) -> Result<(), Failure> {
        let mut look = Cmd::new();
        look.arg("EXISTS").arg(node);
        match self.send(&look, Budget::new(limit)).await {
            Ok(Value::Int(0)) => Ok(()),
            Ok(_) => Err(Failure::Member),
            // One who may not look, and a node of a cluster, is told by the requests what is wrong. A server that could
            // answer later is asked later.
            Err(failure @ Failure::Refused { .. }) if !failure.is_of_busy_server() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn send(&self, command: &Cmd, budget: Budget) -> Result<Value, Failure> {
        let mut connection = self.connection.clone();
        let mut answer = pin!(shielded(connection.req_packed_command(command)));
        // Only a connection that was closed already fails without waiting for anything: then nothing was sent.
        let at_once = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        let answer = match at_once {
            Poll::Ready(Err(error)) if error.is_connection_dropped() => {
                return Err(Failure::Unsent(error));
            }
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                let sent_at = Boottime.now();
                match timeout(budget.left(), answer).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        self.note_silence(sent_at);
                        return Err(Failure::Silent);
                    }
                }
            }
        };
        *self.silent_since() = None;
        match answer? {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }
}

impl Link {
    fn silent_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request of this moment has waited in vain.
    fn note_silence(&self, sent_at: Instant) {
        let mut since = self.silent_since();
        *since = Some(since.map_or(sent_at, |since| since.min(sent_at)));
    }

    /// Whether nothing was answered for so long, although requests were sent.
    fn is_silent_for(&self, least: Duration) -> bool {
        let since = *self.silent_since();
        since.is_some_and(|since| Boottime.now().since(since) >= least)
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(Connection::take(connection));
        }
    }
}
