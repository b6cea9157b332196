//! The connection that all requests of one runtime share: how it is made, and what its failures mean.
//!
//! The redis crate itself never gives up a connection whose server has stopped answering. A connection to a replica is
//! replaced too, because after a planned failover the same address leads to another server while connections to the old
//! one stay open. A replica has carried nothing out, so the request is sent once more on the new connection. So is one
//! whose connection was found closed: it may be sent twice.
//!
//! The scripts are never sent with EVAL, because newer servers drop such scripts after 500 others. A call that finds a
//! script missing loads them all, once for all callers of its connection, and is sent again.

pub(super) mod acks;
mod dial;
pub(super) mod server;

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use deadpool_redis::redis::aio::{ConnectionLike, MultiplexedConnection};
use deadpool_redis::redis::{Pipeline, RedisError, Value};
use deadpool_redis::{Connection, Pool, PoolError, TimeoutType, Timeouts};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{self, oneshot, watch};
use tokio::time::timeout;

use self::acks::{Acks, IsWritten};
use super::address::Address;
use super::failure::{Failure, FailureCause};
use super::protocol::reply;
use super::protocol::scripts::Program;
use crate::clock::{Boottime, Clock, Instant};
use crate::future::{BoxFuture, shielded};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::room::{Need, Refusals, connect_in_turn};
use crate::store::kit::connection::{
    AfterEnd, Connect, Driven, Exchange, Fault, Unconnected, is_transient,
};
use crate::store::kit::server_url::HostPort;

/// Silence after which the connection is held responsible, and not a limit below the round trip. A tenth of the ttl if
/// that is less, so that a renewal gets another connection in time.
const LEAST_SILENCE: Duration = Duration::from_millis(250);
/// Pause before a client that holds a lease, and has no connection for its renewals, tries to connect again.
const AGAIN: Duration = Duration::from_millis(50);

/// State that all connections to one address share.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) address: Address,
    /// Whether the store has several servers: failures name theirs.
    pub(super) is_of_several: bool,
    /// Connections are taken from this pool of the caller's, counted by it, and never returned: a connection that is
    /// given up is broken or used by others. When the pool has none to spare, they are made outside it.
    pub(super) pool: Option<Pool>,
    /// The scripts and commands that the server is asked to run.
    pub(super) program: Program,
    pub(super) connect_timeout: Duration,
    /// Number of replicas that must have a write before it counts.
    pub(super) acknowledged_by: u8,
    /// Whether the leases are renewed over these connections: they are made at once, and remade when they break, even
    /// while others pause because the server is full.
    pub(super) is_of_watchdog: bool,
    pub(super) need: Arc<Need>,
    /// The observations about the server at this address.
    pub(super) refusals: Arc<Refusals<Failure>>,
    /// True if a write was ever carried out at this address, or if others say which server is a master.
    pub(super) has_written: Arc<AtomicBool>,
    /// Number of times that the address of one server led to another one. Odd from the answer of a replica until the
    /// next write.
    pub(super) changes: Arc<watch::Sender<u32>>,
}

impl Connect for Connector {
    type Open = OpenConnection;
    /// The task that drives the connection, which never ends if the caller's pool drives it; and a channel that closes
    /// when the connection does.
    type Engine = (BoxFuture<'static, ()>, oneshot::Receiver<()>);
    type Failure = Failure;

    async fn connect(&mut self) -> Result<(OpenConnection, Self::Engine), Failure> {
        let make = || async {
            let made = timeout(self.connect_timeout, self.make()).await;
            made.unwrap_or(Err(FailureCause::Silent.into()))
        };
        self.make_in_turn(make).await
    }

    fn again_after(&self, failure: &Failure) -> Option<Duration> {
        (is_transient(failure) && self.is_urgent()).then_some(AGAIN)
    }

    async fn drive(&mut self, (driver, dropped): Self::Engine, _: &Driven<Self>) -> AfterEnd {
        tokio::select! {
            biased;
            () = driver => {}
            // An error says that no caller has the connection any more, which is what this waits for.
            _ = dropped => {}
        }
        match self.is_urgent() {
            true => AfterEnd::Again,
            false => AfterEnd::Down,
        }
    }
}

impl Exchange for Connector {
    type Request<'a> = Request<'a>;
    type Answer = Answers;

    async fn exchange<'a>(
        &'a self,
        open: &Arc<OpenConnection>,
        request: Request<'a>,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let loads = open.loads.load(Ordering::Acquire);
        let mut answers = self.send(open, request, budget).await?;
        let lacks_script =
            |answer: &Result<_, _>| answer.as_ref().is_err_and(Failure::is_no_script);
        if answers.iter().any(lacks_script) {
            // The calls were refused, so this is not a second attempt. Boxed, because it is rare and would add to the
            // size of every request.
            let again = async {
                let load = open.clone().load(self.program, loads, budget);
                let loaded = in_a_task(load).await;
                loaded.map_err(Failure::before_the_request)?;
                self.send(open, request, budget).await
            };
            answers = Box::pin(again).await?;
        }
        if answers
            .iter()
            .any(|answer| answer.as_ref().is_err_and(Failure::is_of_replica))
        {
            self.note_replica();
        }
        // The refusal of a command alone may be one of all requests.
        match &answers[..] {
            [Err(failure)] => Err(failure.clone()),
            _ => Ok(answers),
        }
    }

    fn fault(failure: &Failure, open: &OpenConnection, replace_every: Duration) -> Option<Fault> {
        match &failure.cause {
            FailureCause::FoundClosed(_) => Some(Fault::FoundClosed),
            FailureCause::Broken(_) => Some(Fault::Broken),
            FailureCause::Silent => {
                let is_stuck = open.is_silent_for(LEAST_SILENCE.min(replace_every));
                is_stuck.then_some(Fault::Silent)
            }
            _ => failure.is_of_replica().then_some(Fault::WrongServer),
        }
    }

    fn is_silent(open: &OpenConnection, sent_at: Instant, replace_every: Duration) -> bool {
        open.note_silence(sent_at);
        open.is_silent_for(LEAST_SILENCE.min(replace_every))
    }

    fn silence() -> Failure {
        FailureCause::Silent.into()
    }

    fn is_full(failure: &Failure) -> bool {
        failure.is_of_too_many_clients()
    }

    fn unsent(failure: Failure) -> Failure {
        failure.before_the_request()
    }

    // Its task, on another thread, may have sent it all the same.
    fn sent_before(failure: Failure) -> Failure {
        failure.after_another_try()
    }
}

impl Connector {
    /// Returns the settings of the connections to another server.
    pub(super) fn at(&self, endpoint: &HostPort) -> Self {
        let address = self.address.at(endpoint);
        let refusals = match address.endpoint == self.address.endpoint {
            true => self.refusals.clone(),
            false => Arc::default(),
        };
        Self {
            address,
            refusals,
            ..self.clone()
        }
    }

    /// Names the server that a failure is of, where the store has several.
    pub(super) fn named(&self, failure: Failure) -> Failure {
        match self.is_of_several {
            true => failure.at(&self.address.endpoint),
            false => failure,
        }
    }

    /// Returns whether a lease may be held whose renewals need this connection.
    fn is_urgent(&self) -> bool {
        self.is_of_watchdog && self.need.is_there()
    }

    /// Makes a connection, unless the server recently had no room, or was down, and other clients need it more.
    pub(super) async fn make_in_turn<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        make: impl Fn() -> F,
    ) -> Result<T, Failure> {
        if let Some(refusal) = self.refusals.now().filter(|_| !self.is_urgent()) {
            return Err(refusal);
        }
        let is_full = Failure::is_of_too_many_clients;
        let note = |made: &_| (self.refusals).note(made, is_full, self.need.is_there());
        connect_in_turn(make, note).await
    }

    async fn send(
        &self,
        open: &Arc<OpenConnection>,
        request: Request<'_>,
        budget: Budget,
    ) -> Result<Answers, Failure> {
        let Request(commands, is_written) = request;
        match is_written {
            Some(is_written) if self.acknowledged_by > 0 => {
                let (open, commands) = (open.clone(), commands.clone());
                let replicas = self.acknowledged_by;
                in_a_task(open.send_written(commands, replicas, is_written, budget)).await
            }
            _ => open.answers(commands).await,
        }
    }

    async fn make(&self) -> Result<(OpenConnection, <Self as Connect>::Engine), Failure> {
        let pooled = self.take_from_pool().await?;
        let (connection, driver) = match &pooled {
            Some(pooled) => (MultiplexedConnection::clone(pooled), pending().boxed()),
            None => self.address.open().await?,
        };
        let (end, dropped) = oneshot::channel();
        let open = OpenConnection {
            connection,
            silent_since: Mutex::default(),
            has_answered: AtomicBool::new(false),
            acks: Acks::default(),
            loads: AtomicU64::default(),
            loading: sync::Mutex::default(),
            pooled,
            _end: end,
        };
        Ok((open, (driver, dropped)))
    }

    async fn take_from_pool(&self) -> Result<Option<Connection>, Failure> {
        let Some(pool) = &self.pool else {
            return Ok(None);
        };
        let at_once = Timeouts {
            wait: Some(Duration::ZERO),
            ..pool.timeouts()
        };
        match pool.timeout_get(&at_once).await {
            Ok(pooled) => Ok(Some(pooled)),
            Err(PoolError::Timeout(TimeoutType::Wait)) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Records that the server at this address has carried out a write, so the address normally leads to a master.
    pub(super) fn note_write(&self) {
        // Loaded first: a shared cache line should not be written with every request.
        if !self.has_written.load(Ordering::Relaxed) {
            self.has_written.store(true, Ordering::Relaxed);
        }
        if *self.changes.borrow() % 2 == 1 {
            self.changes.send_modify(|changes| *changes += *changes % 2);
        }
    }

    /// Records that a replica answers at this address. Of several servers others say which one counts.
    fn note_replica(&self) {
        if !self.is_of_several {
            self.changes.send_modify(|changes| *changes |= 1);
        }
    }

    /// Returns once the address has led to another server since it had this many `changes`.
    pub(super) async fn changed(&self, since: u32) {
        let mut changes = self.changes.subscribe();
        let is_over = |changes: &u32| *changes > since && changes.is_multiple_of(2);
        // This store owns the sender.
        let _ = changes.wait_for(is_over).await;
    }
}

/// Commands that are sent one right after the other. If an answer reports a write that must not be lost, it counts only
/// once replicas have it.
#[derive(Clone, Copy)]
pub(super) struct Request<'a>(pub(super) &'a Pipeline, pub(super) Option<IsWritten>);

/// The answers to commands, in their order. The refusal of one does not concern the others.
pub(super) type Answers = Vec<Result<Value, Failure>>;

/// One connection.
pub(super) struct OpenConnection {
    connection: MultiplexedConnection,
    /// When the first request was sent that is still unanswered, if none was answered since.
    silent_since: Mutex<Option<Instant>>,
    /// It has answered a request.
    has_answered: AtomicBool,
    acks: Acks,
    /// The number of times that the scripts were loaded.
    loads: AtomicU64,
    /// Locked while they are loaded.
    loading: sync::Mutex<()>,
    /// The pool's own handle on the connection, if it came from a pool.
    pooled: Option<Connection>,
    /// Its engine ends when this is dropped.
    _end: oneshot::Sender<()>,
}

impl OpenConnection {
    /// Sends commands, and awaits their answers up to the end of the budget.
    async fn send(&self, commands: &Pipeline, budget: Budget) -> Result<Answers, Failure> {
        let sent_at = Boottime.now();
        let answers = timeout(budget.left(), self.answers(commands)).await;
        answers.unwrap_or_else(|_| {
            self.note_silence(sent_at);
            Err(FailureCause::Silent.into())
        })
    }

    /// Sends commands, and awaits their answers for as long as it takes.
    async fn answers(&self, commands: &Pipeline) -> Result<Answers, Failure> {
        let mut connection = self.connection.clone();
        let answer = pin!(async {
            let mut each = commands.cmd_iter();
            match (each.next(), each.next()) {
                // For a single command the driver reports what it could not read.
                (Some(command), None) => {
                    let answer = connection.send_packed_command(command).await?;
                    Ok::<Answers, RedisError>(vec![reply::no_error(answer)])
                }
                _ => {
                    let answers = connection.req_packed_commands(commands, 0, commands.len());
                    let answers = answers.await?.into_iter();
                    Ok(answers.map(reply::no_error).collect())
                }
            }
        });
        let mut answer = pin!(shielded(answer));
        // Only a connection that was already closed fails without waiting. Its task may run on another thread, so in
        // rare cases it closed after it had sent this.
        let at_once = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        let answer = match at_once {
            Poll::Ready(Err(error)) if error.is_connection_dropped() => {
                return Err(self.unanswered(FailureCause::FoundClosed(error)));
            }
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        };
        *self.silent_since.lock() = None;
        let answers = answer.map_err(|error| self.unanswered(error))?;
        // Loaded first, like the note of a write.
        if !self.has_answered.load(Ordering::Relaxed) {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        Ok(answers)
    }

    fn unanswered(&self, why: impl Into<Failure>) -> Failure {
        match self.has_answered.load(Ordering::Relaxed) {
            true => why.into(),
            false => why.into().without_answer(),
        }
    }

    /// Loads the scripts, unless that was done after they had been loaded `seen` times.
    #[expect(
        clippy::await_holding_invalid_type,
        reason = "only tasks hold the lock, and a task is always polled"
    )]
    async fn load(
        self: Arc<Self>,
        program: Program,
        seen: u64,
        budget: Budget,
    ) -> Result<(), Failure> {
        let turn = timeout(budget.left(), self.loading.lock()).await;
        let _turn = turn.map_err(|_| FailureCause::Silent)?;
        if self.loads.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        let mut loads = Pipeline::new();
        for script in (program.scripts)() {
            loads.add_command(script.load());
        }
        for answer in self.send(&loads, budget).await? {
            answer?;
        }
        self.loads.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Records that a request sent at this moment is unanswered.
    fn note_silence(&self, sent_at: Instant) {
        let mut since = self.silent_since.lock();
        *since = Some(since.map_or(sent_at, |since| since.min(sent_at)));
    }

    /// Returns whether no request was answered for this long, although some were sent.
    fn is_silent_for(&self, least: Duration) -> bool {
        let since = *self.silent_since.lock();
        since.is_some_and(|since| Boottime.now().since(since) >= least)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.pooled.take().map(Connection::take);
    }
}

/// Runs this in a task, which continues if the caller is not polled, because others wait for it.
// Not an `async fn`, which would have room for the work too, and so would each request.
fn in_a_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> impl Future<Output = Result<T, Failure>> {
    shielded(tokio::spawn(work)).map(|done| {
        // It may have been sent before its runtime ended.
        done.unwrap_or_else(|_| Err(Failure::from(Unconnected::Abandoned).after_another_try()))
    })
}
