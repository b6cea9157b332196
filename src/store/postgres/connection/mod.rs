//! One connection to a server: how it is opened, driven and used.
//!
//! Nothing is set on the session and no statement is prepared by name, so that a pooler may give every statement to
//! another server connection. A request is never cancelled, because a cancel turns a wait for a synchronous standby
//! into a success that no standby has. The connection is given up instead: it takes no further requests, and stays open
//! until the server has finished those that were sent, so that neither server nor pooler has work of ours that is not
//! counted.

pub(super) mod connect;
pub(super) mod connections;
pub(super) mod room;
pub(super) mod tls;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, Socket};

use self::connect::{Endpoint, GivenUp, Opened};
use self::room::Room;
use self::tls::Encrypted;
use super::address::Address;
use super::failure::Failure;
use crate::clock::{Boottime, Clock, Instant};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::room::connect_in_turn;
use crate::store::kit::connection::{AfterEnd, Connect, Driven, Exchange, Fault};

/// Number of requests that a connection carries before another is opened. The last of them waits for as many flushes.
pub(super) const BUSY: usize = 4;
/// After how long without an answer a connection counts as stuck, behind a statement that waits for a lock.
const STUCK: Duration = Duration::from_millis(50);
/// Maximum number of messages of the server that wait for a listener.
const HEARD: usize = 1_024;

/// How connections are made.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(super) address: Arc<Address>,
    pub(super) connect_timeout: Duration,
    /// After how long without a request the connection is closed; `Duration::MAX` for never.
    pub(super) idle_after: Duration,
    pub(super) given_up: Arc<GivenUp>,
    room: Arc<Room>,
    lane: Lane,
}

/// The use of a connection, which determines how long it is kept while idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// For renewals. Kept while a lease may be held.
    Watchdog,
    /// The first one for requests, over which leases are renewed as long as the watchdog has none of its own. Kept
    /// while a lease may be held and it is the only one.
    First,
    /// Another one for requests.
    Further,
}

/// The arguments of a statement, with their types, so that no statement has to be prepared.
pub(super) type Arguments<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// One statement and its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    pub(super) statement: &'a str,
    pub(super) arguments: Arguments<'a>,
}

/// An open connection.
pub(crate) struct OpenConnection {
    client: Client,
    /// Whether the server stopped waiting for its standby: later replies may not be on a standby.
    is_unreplicated: AtomicBool,
    in_flight: AtomicUsize,
    /// When the last answer came, or the first request after a pause was sent, in nanoseconds of the lease clock.
    moved_at: AtomicU64,
    /// The listener on this connection.
    heard: Mutex<Option<mpsc::Sender<String>>>,
    /// Dropped with this value, which gives the connection up.
    _end: oneshot::Sender<()>,
}

/// The part that is driven.
pub(crate) struct Engine {
    connection: tokio_postgres::Connection<Socket, Encrypted<Socket>>,
    server: Endpoint,
    ended: oneshot::Receiver<()>,
}

/// Counts a request for as long as a caller waits for it.
struct InFlight<'a>(&'a OpenConnection);

impl Connect for Connector {
    type Open = OpenConnection;
    type Engine = Engine;
    type Failure = Failure;

    async fn connect(&mut self) -> Result<(OpenConnection, Engine), Failure> {
        if let Some(refusal) = self.room.refusal() {
            return Err(refusal);
        }
        let open = || connect::open(&self.address, self.connect_timeout, &self.given_up);
        let opened = connect_in_turn(open, |opened| self.room.note(opened)).await;
        let Opened {
            client,
            connection,
            server,
        } = opened?;
        let (end, ended) = oneshot::channel();
        let open = OpenConnection {
            client,
            is_unreplicated: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            moved_at: AtomicU64::new(Boottime.now().as_nanos()),
            heard: Mutex::default(),
            _end: end,
        };
        let engine = Engine {
            connection,
            server,
            ended,
        };
        Ok((open, engine))
    }

    /// Drives the connection until it breaks, or until it is given up and the server has finished its requests.
    async fn drive(&mut self, engine: Engine, driven: &Driven<Self>) -> AfterEnd {
        let Engine {
            mut connection,
            server,
            ended,
        } = engine;
        let mut run = pin!(async {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                let Some(open) = driven.open() else { continue };
                match message {
                    AsyncMessage::Notice(notice) if says_unreplicated(&notice) => {
                        open.is_unreplicated.store(true, Ordering::Relaxed);
                    }
                    AsyncMessage::Notification(notification) => open.hear(notification.payload()),
                    _ => {}
                }
            }
        });
        let up = (self.lane != Lane::Further).then(|| self.room.count());
        tokio::select! {
            () = &mut run => return AfterEnd::Down,
            _ = ended => {}
            () = self.unused(driven) => {}
        }
        drop(up);
        let _counted = self.given_up.count(server);
        run.await;
        AfterEnd::Down
    }
}

impl Connector {
    pub(super) fn new(
        address: &Arc<Address>,
        connect_timeout: Duration,
        idle_after: Duration,
        room: &Arc<Room>,
        lane: Lane,
    ) -> Self {
        Self {
            address: address.clone(),
            connect_timeout,
            idle_after,
            given_up: Arc::default(),
            room: room.clone(),
            lane,
        }
    }

    /// Returns the same for another connection to the same servers.
    fn for_another(&self, lane: Lane) -> Self {
        Self {
            lane,
            ..self.clone()
        }
    }

    /// Returns whether the connection is kept for a renewal.
    fn is_kept(&self) -> bool {
        match self.lane {
            Lane::Watchdog => self.room.is_needed(),
            Lane::First => self.room.is_needed() && !self.room.has_others(),
            Lane::Further => false,
        }
    }

    /// Returns once the connection was given up after a long time without use.
    async fn unused(&self, driven: &Driven<Self>) {
        let is_unused = |open: &OpenConnection| {
            open.in_flight.load(Ordering::Relaxed) == 0
                && open.rested_for() >= self.idle_after
                && !open.has_listener()
                && !self.is_kept()
        };
        loop {
            // A connection that was replaced in the meantime does not count as given up while callers wait on it.
            let may_end = driven.open().is_none_or(|open| is_unused(&open));
            if may_end && driven.give_up_if(is_unused) {
                return;
            }
            sleep(self.idle_after / 8).await;
        }
    }
}

impl Exchange for Connector {
    type Request<'a> = Query<'a>;
    type Answer = Vec<Row>;

    async fn exchange<'a>(
        &'a self,
        open: &Arc<OpenConnection>,
        request: Query<'a>,
        budget: Budget,
    ) -> Result<Vec<Row>, Failure> {
        open.send(request, budget).await
    }

    fn fault(failure: &Failure, _: &OpenConnection, _: Duration) -> Option<Fault> {
        match failure {
            Failure::Ended => Some(Fault::FoundClosed),
            Failure::Silent => Some(Fault::Silent),
            failure => failure.is_broken().then_some(Fault::Broken),
        }
    }

    fn is_silent(_: &OpenConnection, _: Instant, _: Duration) -> bool {
        true
    }

    fn silence() -> Failure {
        Failure::Silent
    }

    fn is_full(failure: &Failure) -> bool {
        matches!(failure, Failure::Refused { code, .. } if code == "53300")
    }
}

impl OpenConnection {
    /// Returns how many requests are under way, or more than [`BUSY`] if they wait behind one that takes long.
    pub(super) fn load(&self) -> usize {
        let requests = self.in_flight.load(Ordering::Relaxed);
        if requests > 0 && self.rested_for() > STUCK {
            requests + 1_000 * BUSY
        } else {
            requests
        }
    }

    /// Begins to listen. The notices end when this connection is given up or ends.
    pub(super) fn listen(&self) -> mpsc::Receiver<String> {
        let (sender, heard) = mpsc::channel(HEARD);
        *self.heard.lock() = Some(sender);
        heard
    }

    /// Sends statements without results, outside of all requests.
    pub(super) async fn order(&self, statements: &str) -> Result<(), Failure> {
        let sent = self.client.batch_execute(statements).await;
        sent.map_err(|error| Failure::of_request(&error))
    }

    /// Gives a notice to the listener. With too many one is lost, because the listener waits for answers.
    fn hear(&self, payload: &str) {
        if let Some(sender) = &*self.heard.lock() {
            let _ = sender.try_send(payload.into());
        }
    }

    fn has_listener(&self) -> bool {
        let heard = self.heard.lock();
        heard.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    fn rested_for(&self) -> Duration {
        let moved_at = Instant::from_nanos(self.moved_at.load(Ordering::Relaxed));
        Boottime.now().since(moved_at)
    }

    fn note_move(&self) {
        let now = Boottime.now().as_nanos();
        self.moved_at.store(now, Ordering::Relaxed);
    }

    async fn send(&self, query: Query<'_>, budget: Budget) -> Result<Vec<Row>, Failure> {
        // Checked before anything is sent: a connection that closes afterwards may have carried the request out.
        if self.client.is_closed() {
            return Err(Failure::Ended);
        }
        if self.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.note_move();
        }
        let _counted = InFlight(self);
        let answer = self.client.query_typed(query.statement, query.arguments);
        let Ok(answer) = timeout(budget.left(), answer).await else {
            return Err(Failure::Silent);
        };
        let rows = answer.map_err(|error| Failure::of_request(&error))?;
        if self.is_unreplicated.load(Ordering::Relaxed) {
            return Err(Failure::Unreplicated);
        }
        Ok(rows)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.note_move();
    }
}

/// Returns whether the server says that it no longer waits for its standby.
fn says_unreplicated(notice: &DbError) -> bool {
    notice.parsed_severity() == Some(Severity::Warning)
        && [&SqlState::WARNING, &SqlState::ADMIN_SHUTDOWN].contains(&notice.code())
}
