//! The connections of a store. A server connection carries out one statement at a time, including its disk flush, so a
//! single one would allow one grant for each flush; another one is opened when all are busy.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_postgres::Row;

use super::super::address::Address;
use super::super::failure::Failure;
use super::connect;
use super::room::Room;
use super::{Arguments, BUSY, Connector, Lane, OpenConnection, Query};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::{Connection, Driver, HomeRuntime};
use crate::telemetry::ConnectionPurpose;

/// Time before an unused connection is closed, because each costs the server a process.
const IDLE: Duration = Duration::from_secs(10);
/// The longest pause before a request that conflicted with another transaction is sent again.
const AGAIN: Duration = Duration::from_millis(5);
/// A request that found a row locked is sent again if this much of its limit is left: more than the functions wait for
/// a lock, because a request without an answer costs its connection.
const WORTH_A_LOCK: Duration = Duration::from_millis(250);

/// Several connections to the same servers.
#[derive(Debug)]
pub(crate) struct Connections {
    all: Vec<Arc<Connection<Connector>>>,
    /// Locked while a listener takes one of them.
    listening: Mutex<()>,
    room: Arc<Room>,
}

impl Connections {
    /// Connections for requests, on a thread of the store's: at most as many as the URL says, each closed when it is no
    /// longer used.
    pub(crate) fn new(address: &Arc<Address>, connect_timeout: Duration) -> Self {
        let room = Arc::default();
        let connector = Connector::new(address, connect_timeout, IDLE, &room, Lane::First);
        let home = HomeRuntime::Thread(Arc::<Driver>::default());
        let connection = |index| {
            let gauge = super::super::counts().connection(Some(ConnectionPurpose::Requests));
            let connector = match index {
                0 => connector.clone(),
                _ => connector.for_another(Lane::Further),
            };
            Arc::new(Connection::new(connector, home.clone(), gauge))
        };
        Self {
            all: (0..address.connections).map(connection).collect(),
            listening: Mutex::default(),
            room,
        }
    }

    /// The watchdog's connection, on the calling runtime. It is made for the first renewal, and kept while a lease may
    /// be held.
    pub(crate) fn for_watchdog(&self, connect_timeout: Duration) -> Self {
        let address = &self.all[0].connector().address;
        let connector = Connector::new(address, connect_timeout, IDLE, &self.room, Lane::Watchdog);
        let gauge = super::super::counts().connection(Some(ConnectionPurpose::Watchdog));
        let home = HomeRuntime::Runtime(Handle::current());
        Self {
            all: vec![Arc::new(Connection::new(connector, home, gauge))],
            listening: Mutex::default(),
            room: self.room.clone(),
        }
    }

    /// A connection for a listener: one of these on which no other listens, or one of its own.
    pub(crate) fn for_listener(&self) -> Arc<Connection<Connector>> {
        let _one_by_one = self.listening.lock();
        let is_free = |connection: &&Arc<_>| Arc::strong_count(connection) == 1;
        self.all.iter().find(is_free).cloned().unwrap_or_else(|| {
            let connector = self.all[0].connector().for_another(Lane::Further);
            let gauge = super::super::counts().connection(Some(ConnectionPurpose::Notices));
            Arc::new(Connection::new(
                connector,
                self.all[0].home().clone(),
                gauge,
            ))
        })
    }

    /// Makes one connection now, on the calling runtime, and keeps it.
    pub(crate) async fn connected(
        address: &Arc<Address>,
        connect_timeout: Duration,
    ) -> Result<Self, Failure> {
        let room = Arc::default();
        let never = Duration::MAX;
        let connector = Connector::new(address, connect_timeout, never, &room, Lane::Further);
        let gauge = super::super::counts().connection(None);
        let connection = Connection::new(connector, HomeRuntime::Runtime(Handle::current()), gauge);
        let longest = connect::longest(address, connect_timeout);
        connection.open(Budget::new(longest)).await?;
        Ok(Self {
            all: vec![Arc::new(connection)],
            listening: Mutex::default(),
            room,
        })
    }

    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// Makes the first connection, unless there is one or it was refused a moment ago.
    pub(crate) async fn open(&self, budget: Budget) {
        // A request would report the failure.
        let _ = self.all[0].open(budget).await;
    }

    /// Returns whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        let is_open = |connection: &Arc<Connection<_>>| connection.measure(|_| true, false);
        self.all.iter().any(|one| is_open(one) == Some(true))
    }

    /// Records that a lease was renewed over these connections. For the watchdog, which has one, earlier given-up
    /// connections no longer count.
    pub(crate) fn has_renewed(&self) {
        let connector = self.all[0].connector();
        if connector.lane == Lane::Watchdog {
            connector.given_up.forgive();
        }
    }

    /// Calls one of the store's functions.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(crate) async fn call(
        &self,
        function: &str,
        arguments: Arguments<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, Failure> {
        let schema = &self.all[0].connector().address.schema;
        let query = Query {
            statement: &schema.call(function, arguments.len()),
            arguments,
        };
        self.request(query, budget).await
    }

    /// Sends one statement and awaits its answer. Retries it within the limit if the server reports that it conflicted
    /// with another transaction, or found a row locked, and nothing was done.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(crate) async fn request(
        &self,
        query: Query<'_>,
        budget: Budget,
    ) -> Result<Vec<Row>, Failure> {
        loop {
            let (first, chosen) = (self.all[0].as_ref(), self.choose());
            let mut outcome = chosen.request(query, budget).await;
            // The server may refuse another connection while the first one works.
            if matches!(&outcome, Err(failure) if failure.is_unconnected())
                && !std::ptr::eq(first, chosen)
            {
                outcome = first.request(query, budget).await;
            }
            match outcome {
                Err(failure)
                    if failure.is_to_be_repeated() && budget.left() > AGAIN
                        || failure.is_of_lock() && budget.left() > WORTH_A_LOCK =>
                {
                    tokio::time::sleep(AGAIN.mul_f64(fastrand::f64())).await;
                }
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn close(&self) {
        self.all.iter().for_each(|connection| {
            connection.close();
        });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.all.iter().all(|connection| connection.is_closed())
    }

    /// Returns the open connection with the fewest requests; another one if all are busy.
    fn choose(&self) -> &Connection<Connector> {
        let load = |connection: &Connection<_>| connection.measure(OpenConnection::load, BUSY - 1);
        let open = self.all.iter().map(Arc::as_ref);
        let open = open.filter_map(|connection| Some((load(connection)?, connection)));
        let closed = || {
            let mut all = self.all.iter().map(Arc::as_ref);
            all.find(|connection| load(connection).is_none())
        };
        match open.min_by_key(|(load, _)| *load) {
            Some((load, connection)) if load < BUSY => connection,
            Some((_, connection)) => closed().unwrap_or(connection),
            None => &self.all[0],
        }
    }
}
