//! One multiplexed connection that all requests share, replaced when it breaks or its server stops answering.
//!
//! ```text
//!   Down --(request)--> Connecting --(made)--> Up --(broken, silent past a limit, or to a replica)--> Down
//! ```
//!
//! A connection is made by a task of its own, so that a caller with little time left, or one whose future is dropped,
//! does not end the attempt that others wait for. The connection belongs to the runtime of the first caller; so all
//! callers of a lane are on one runtime. The redis crate itself never gives up a connection whose server has stopped
//! answering; a lane does.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::Value;
use futures_util::future::{FutureExt, Shared};
use tokio::time::timeout;

use super::budget::Budget;
use super::connector::Connector;
use super::failure::Failure;
use super::link::{Link, Request};
use super::reply;
use super::run::{NodeKey, ServerRun};
use crate::clock::{Boottime, Clock, Instant};
use crate::future::shielded;
use crate::telemetry::ConnectionGauge;

/// How long requests must have waited without an answer before the connection is held responsible, and not a limit that
/// is shorter than the round trip. A tenth of the ttl if that is less, so that a renewal gets another connection in
/// time.
const LEAST_SILENCE: Duration = Duration::from_millis(250);

/// A connection shared by all requests of one runtime.
pub(super) struct Lane {
    settings: Settings,
    state: Arc<Mutex<State>>,
    gauge: Arc<ConnectionGauge>,
    /// When a connection was last given up because its server was silent or a replica.
    replaced_at: Mutex<Option<Instant>>,
}

/// What all lanes to one address have in common.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) source: Connector,
    pub(super) node: NodeKey,
    pub(super) connect_timeout: Duration,
    /// How many replicas must have a write before it counts.
    pub(super) acknowledged_by: u8,
    /// Whether a write was ever carried out at this address.
    pub(super) has_written: Arc<AtomicBool>,
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

impl Lane {
    pub(super) fn new(settings: Settings, gauge: Arc<ConnectionGauge>) -> Self {
        Self {
            settings,
            gauge,
            state: Arc::new(Mutex::new(State::Down)),
            replaced_at: Mutex::new(None),
        }
    }

    /// Makes the connection now.
    pub(super) async fn connect(&self) -> Result<Arc<Link>, Failure> {
        self.link(Budget::new(self.settings.connect_timeout)).await
    }

    /// Sends a request and awaits its answer.
    ///
    /// If no answer comes in time the connection is replaced, but only once in `replace_every`, so that a slow server
    /// is not flooded with handshakes. A connection to a replica is replaced as often, because after a planned failover
    /// the same address leads to another server while connections to the old one stay open. A connection that was
    /// already closed when the request should have been sent is replaced at once. In these two cases the request is sent
    /// once more, on the new connection: a replica has carried nothing out, and a request that was sent on a connection
    /// just before it closed is one that may be sent twice.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(super) async fn request(
        &self,
        request: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let mut link = self.link_for_request(budget).await?;
        let mut outcome = self.send(&link, request, budget).await;
        let is_found_closed = matches!(outcome, Err(Failure::FoundClosed(_)));
        match &outcome {
            Err(Failure::FoundClosed(_)) => {
                self.drop_link(&link);
                let another = self.link(budget).await;
                link = another.map_err(Failure::after_another_try)?;
                outcome = self.send(&link, request, budget).await;
            }
            Err(Failure::RunUnknown) => {
                self.drop_link(&link);
                link = self.link_for_request(budget).await?;
                outcome = self.send(&link, request, budget).await;
            }
            Err(failure) if failure.is_of_replica() && self.replace_link(&link, replace_every) => {
                link = self.link_for_request(budget).await?;
                outcome = self.send(&link, request, budget).await;
            }
            _ => {}
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
        outcome.map_err(|failure| {
            let failure = match self.settings.has_written() {
                true => failure.after_a_write(),
                false => failure,
            };
            match is_found_closed {
                true => failure.after_another_try(),
                false => failure,
            }
        })
    }

    async fn send(
        &self,
        link: &Link,
        request: Request<'_>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let Request::Claim(claim) = request else {
            return self.send_as_it_is(link, request, budget).await;
        };
        let claim = ServerRun::told_in(claim, link.run());
        let claim = Request::Written(&claim, reply::is_grant);
        reply::takes_claims(self.send_as_it_is(link, claim, budget).await?)
    }

    async fn send_as_it_is(
        &self,
        link: &Link,
        request: Request<'_>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        match (request, self.settings.acknowledged_by) {
            (Request::Written(command, is_written), replicas) if replicas > 0 => {
                let sent = link.send_written(command, replicas, is_written, budget);
                sent.await
            }
            (request, _) => link.send(request, budget).await,
        }
    }

    /// Closes the connection; requests fail from then on.
    pub(super) fn close(&self) {
        self.gauge.closed();
        *self.state() = State::Closed;
    }

    fn is_closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }

    async fn link_for_request(&self, budget: Budget) -> Result<Arc<Link>, Failure> {
        let link = self.link(budget).await;
        link.map_err(Failure::before_the_request)
    }

    async fn link(&self, budget: Budget) -> Result<Arc<Link>, Failure> {
        let attempt = match &mut *self.state() {
            State::Closed => return Err(Failure::Closed),
            State::Up(link) => return Ok(link.clone()),
            State::Connecting(attempt) => attempt.clone(),
            down @ State::Down => {
                let attempt = self.begin();
                *down = State::Connecting(attempt.clone());
                attempt
            }
        };
        let outcome = timeout(budget.left(), shielded(attempt.clone())).await;
        if let Ok(Err(Failure::Abandoned)) = &outcome {
            self.forget(&attempt);
        }
        match outcome {
            Ok(_) if self.is_closed() => Err(Failure::Closed),
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Silent),
        }
    }

    /// Starts to connect, in a task that stores the outcome even if no caller waits for it any more.
    fn begin(&self) -> Attempt {
        let (settings, state) = (self.settings.clone(), self.state.clone());
        let gauge = self.gauge.clone();
        let task = tokio::spawn(async move {
            let limit = settings.connect_timeout;
            let making = async {
                let mut link = Link::make(&settings.source, limit).await?;
                link.meet(&settings.node, limit).await?;
                Ok(link)
            };
            let made = match timeout(limit, making).await {
                Ok(made) => made.map(Arc::new),
                Err(_) => Err(Failure::Silent),
            };
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            // A closed lane stays closed.
            if matches!(*state, State::Connecting(_)) {
                gauge.connecting_ended(made.is_ok());
                *state = made.clone().map_or(State::Down, State::Up);
            }
            made
        });
        let outcome = async move { task.await.unwrap_or(Err(Failure::Abandoned)) };
        let outcome: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(outcome);
        outcome.shared()
    }

    fn forget(&self, attempt: &Attempt) {
        let mut state = self.state();
        if matches!(&*state, State::Connecting(current) if current.ptr_eq(attempt)) {
            *state = State::Down;
        }
    }

    /// Gives up a link whose server is silent or a replica, unless the link before it was given up just now. Returns
    /// whether the next request gets another link.
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

    /// Gives up this link, unless it was replaced already.
    fn drop_link(&self, link: &Arc<Link>) {
        let mut state = self.state();
        if state.is_up_with(link) {
            self.gauge.lost();
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
            .field("source", &self.settings.source)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Notes that the server at this address has carried out a write, so the address normally leads to a master.
    pub(super) fn note_write(&self) {
        // Loaded first: a shared cache line should not be written with every request.
        if !self.has_written() {
            self.has_written.store(true, Ordering::Relaxed);
        }
    }

    fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }
}
