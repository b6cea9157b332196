//! A few connections to the first server that accepts writes. A statement has one for itself until it is answered; one
//! that ends, or is silent, takes all that are idle with it, because they are to the same server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable as _};
use mysql_async::{Conn, Row, from_row_opt};
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::KIND;
use super::address::{Address, Server};
use super::failure::{Ended, odd, of_connecting, read_only};
use super::statements::{CAUSAL, VARIABLES};
use crate::clock::{Boottime, Clock as _, Instant};
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::kit::backend::Failing as _;
use crate::store::kit::connection::{HEAD_START, best, first_of};
use crate::store::record::Failure;
use crate::telemetry::{ConnectionGauge, ConnectionPurpose, Sink};

/// Number of statements that are on their way at a time. Each waits for a flush of the server's disk, which it makes for all
/// that wait together.
const CONNECTIONS: usize = 10;
/// Time for which a connection to one server is tried to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without an answer after which a caller that gives up has the next statement make a connection, perhaps to another
/// server.
const SILENCE: Duration = Duration::from_millis(100);
/// Time without use after which the server is asked whether a connection is still there: it ends idle ones.
const DOUBTED_AFTER: Duration = Duration::from_secs(1);
/// Time for which that is awaited, before another one is made.
const PROBE_LIMIT: Duration = Duration::from_millis(500);
/// Time without use after which a connection is closed, as soon as another one was used.
const UNUSED_AFTER: Duration = Duration::from_secs(60);
/// How often a statement that the server has taken back is sent again.
const REPEATS: usize = 3;

/// What a server says of itself, by name.
pub(super) type Variables = HashMap<String, String>;

/// The connections of one runtime, for one use.
#[derive(Debug, Clone)]
pub(super) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    address: Arc<Address>,
    gauge: Arc<ConnectionGauge>,
    room: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: Conn,
    since: Instant,
    /// The runtime on which it was made: on another one it would end with that.
    home: runtime::Id,
}

/// A connection in use. Dropped before its answer it is closed, and so are the idle ones if the server was silent.
struct Borrowed {
    shared: Arc<Shared>,
    connection: Option<Conn>,
    since: Instant,
    _room: OwnedSemaphorePermit,
}

/// What a statement answered.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    /// Number of the rows that it changed.
    pub(super) changed: u64,
}

impl Rows {
    /// Returns the first row, as these columns.
    pub(super) fn first<T: FromRow>(self) -> Result<T, Failure> {
        let mut columns = self.columns()?;
        match columns.is_empty() {
            false => Ok(columns.swap_remove(0)),
            true => Err(odd("an answer without a row")),
        }
    }

    /// Returns each row as these columns.
    pub(super) fn columns<T: FromRow>(self) -> Result<Vec<T>, Failure> {
        let rows = self.rows.into_iter().map(from_row_opt);
        rows.collect::<Result<_, _>>().map_err(odd)
    }
}

impl Connections {
    pub(super) fn new(address: Arc<Address>, purpose: ConnectionPurpose) -> Self {
        Self(Arc::new(Shared {
            address,
            gauge: Sink::of_store(KIND).connection(Some(purpose)),
            room: Arc::new(Semaphore::new(CONNECTIONS)),
            idle: Mutex::default(),
        }))
    }

    /// Sends a statement, and returns its answer, in a task of its own: a caller that is not polled keeps no connection from
    /// the others. When the caller is dropped the task ends.
    pub(super) async fn ask(&self, sql: impl Into<String>) -> Result<Rows, Ended> {
        let (connections, sql) = (self.clone(), sql.into());
        let mut task = JoinSet::new();
        task.spawn(async move { connections.send(&sql).await });
        match task.join_next().await {
            Some(Ok(asked)) => asked,
            _ => Err(Ended::Failed(runtime_ended(Sent::Perhaps))),
        }
    }

    /// Sends a statement. One that the server has taken back is sent again.
    async fn send(&self, sql: &str) -> Result<Rows, Ended> {
        let mut repeats_left = REPEATS;
        loop {
            let mut used = self.take().await.map_err(Ended::Failed)?;
            let connection = used.connection.as_mut().expect("until it is put back");
            let asked = ask(connection, sql).await;
            match asked.as_ref().err().is_none_or(Ended::is_of_the_statement) {
                true => used.put_back(),
                false => self.leave(),
            }
            match asked {
                Err(ended) if ended.is_taken_back() && repeats_left > 0 => repeats_left -= 1,
                asked => return asked,
            }
        }
    }

    /// Has the next statement make a connection.
    pub(super) fn leave(&self) {
        self.0.leave();
    }

    /// Closes the idle connections.
    pub(super) fn close(&self) {
        self.0.idle.lock().clear();
        self.0.gauge.closed();
    }

    async fn take(&self) -> Result<Borrowed, Failure> {
        let room = self.0.room.clone().acquire_owned().await;
        let room = room.expect("it is never closed");
        while let Some(Idle {
            mut connection,
            since,
            ..
        }) = self.0.pop()
        {
            let is_there = Boottime.now().since(since) < DOUBTED_AFTER
                || matches!(timeout(PROBE_LIMIT, connection.ping()).await, Ok(Ok(())));
            if is_there {
                return Ok(Borrowed::new(self.0.clone(), connection, room));
            }
            self.leave();
        }
        self.make(room).await
    }

    /// Makes a connection in a task of its own: a caller with little time left leaves it to the next one.
    async fn make(&self, room: OwnedSemaphorePermit) -> Result<Borrowed, Failure> {
        let shared = self.0.clone();
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let made = connect(&shared.address).await;
            shared.gauge.connecting_ended(made.is_ok());
            let made = made.map(|connection| Borrowed::new(shared, connection, room));
            if let Err(Ok(unclaimed)) = tell.send(made) {
                unclaimed.put_back();
            }
        });
        let told = told.await;
        told.unwrap_or_else(|_| Err(runtime_ended(Sent::Never)))
    }
}

fn runtime_ended(sent: Sent) -> Failure {
    let what = "the runtime of this call ends";
    Failure::new(ErrorKind::Unavailable, sent, what)
}

impl Shared {
    /// Takes the connection that was used last.
    fn pop(&self) -> Option<Idle> {
        let here = runtime::Handle::current().id();
        let mut idle = self.idle.lock();
        let found = idle.iter().rposition(|one| one.home == here)?;
        Some(idle.remove(found))
    }

    fn leave(&self) {
        self.idle.lock().clear();
        self.gauge.lost();
    }
}

impl Borrowed {
    fn new(shared: Arc<Shared>, connection: Conn, room: OwnedSemaphorePermit) -> Self {
        Self {
            shared,
            connection: Some(connection),
            since: Boottime.now(),
            _room: room,
        }
    }

    fn put_back(mut self) {
        let connection = self.connection.take().expect("it was in use");
        let since = Boottime.now();
        let home = runtime::Handle::current().id();
        let mut idle = self.shared.idle.lock();
        idle.retain(|one| since.since(one.since) < UNUSED_AFTER);
        idle.push(Idle {
            connection,
            since,
            home,
        });
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.connection.is_some() && Boottime.now().since(self.since) > SILENCE {
            self.shared.leave();
        }
    }
}

async fn ask(connection: &mut Conn, sql: &str) -> Result<Rows, Ended> {
    let rows = connection.query(sql).await?;
    let changed = connection.affected_rows();
    Ok(Rows { rows, changed })
}

/// Connects to the first server that accepts writes.
async fn connect(address: &Address) -> Result<Conn, Failure> {
    let attempts = address.servers.iter().map(async |server| {
        let (connection, says) = open(address, server).await?;
        match is_read_only(&says) {
            true => Err(read_only(&server.to_string()).before_it_was_sent()),
            false => Ok(connection),
        }
    });
    let failures = match first_of(HEAD_START, attempts).await {
        Ok(connection) => return Ok(connection),
        Err(failures) => failures,
    };
    // What has to be changed is told rather than what passes.
    let told = best(failures, |failure| !failure.kind().is_transient());
    Err(told.expect("there is a server, and it failed"))
}

/// Connects to a server, and returns what it says of itself.
pub(super) async fn open(address: &Address, server: &Server) -> Result<(Conn, Variables), Failure> {
    let opened = timeout(CONNECT_TIMEOUT, try_open(address, server)).await;
    opened.unwrap_or_else(|_| {
        let what = format!("no answer from {server}");
        Err(Failure::new(ErrorKind::Unavailable, Sent::Never, what))
    })
}

async fn try_open(address: &Address, server: &Server) -> Result<(Conn, Variables), Failure> {
    let options = address.options(server).await?;
    let failed = |error| of_connecting(&server.to_string(), error);
    let mut connection = Conn::new(options).await.map_err(failed)?;
    let answered = ask(&mut connection, VARIABLES).await;
    let answered = answered.map_err(|ended| Failure::from(ended).before_it_was_sent())?;
    let says: Variables = answered.columns()?.into_iter().collect();
    if is_on(&says, "wsrep_on") {
        connection.query_drop(CAUSAL).await.map_err(failed)?;
    }
    Ok((connection, says))
}

pub(super) fn is_read_only(says: &Variables) -> bool {
    // So are the readers of Aurora.
    is_on(says, "innodb_read_only")
        || !matches!(says.get("read_only").map(String::as_str), Some("OFF" | "0"))
}

pub(super) fn is_on(says: &Variables, name: &str) -> bool {
    says.get(name)
        .is_some_and(|value| value == "ON" || value == "1")
}
