//! A server: one connection for each runtime whose tasks send requests to it.
//!
//! A connection is a task of the runtime on which it was made: while that runtime is blocked, or once it has ended, no
//! task reads the server's answers. But a client can be used from several runtimes, one after the other or at the same
//! time. So the callers of each runtime share a connection of their own. A thread that drives one connection for all of
//! them would wake twice for each request, which doubles the time of a hand-off to a task of a runtime with several
//! threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};

use super::super::failure::{Failure, FailureCause};
use super::super::protocol::reply;
use super::acks::IsWritten;
use super::{Connector, Request};
use crate::store::budget::Budget;
use crate::store::connection::{Connection, HomeRuntime};
use crate::telemetry::{LaneUse, Sink};

/// The connections to one server.
#[derive(Debug)]
pub(in super::super) struct Server {
    pub(in super::super) connector: Connector,
    purpose: Option<LaneUse>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    by_runtime: HashMap<runtime::Id, Arc<Connection<Connector>>>,
    is_closed: bool,
}

impl Server {
    pub(in super::super) fn new(connector: Connector, purpose: Option<LaneUse>) -> Self {
        Self {
            connector,
            purpose,
            open: Mutex::default(),
        }
    }

    /// Makes the connection of the calling runtime now.
    pub(in super::super) async fn connect(&self) -> Result<(), Failure> {
        let connection = self.of_this_runtime()?;
        let budget = Budget::new(self.connector.connect_timeout);
        connection.open(budget).await.map(drop)
    }

    /// Sends a command and awaits its answer. If it `is_written` by its answer, that counts only once replicas have it.
    /// Scripts that the server does not have are loaded.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(in super::super) async fn request(
        &self,
        command: &Cmd,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        self.send(Request::One(command, is_written), budget).await
    }

    /// Sends these commands one right after the other, and awaits their answers. A command that is refused has an error
    /// for an answer.
    pub(in super::super) async fn request_all(
        &self,
        commands: &Pipeline,
        is_written: Option<IsWritten>,
        budget: Budget,
    ) -> Result<Vec<Value>, Failure> {
        let request = Request::All(commands, is_written);
        reply::into_items(self.send(request, budget).await?)
    }

    async fn send(&self, request: Request<'_>, budget: Budget) -> Result<Value, Failure> {
        let connection = self.of_this_runtime()?;
        let outcome = connection.request(request, budget).await;
        match self.connector.has_written.load(Ordering::Relaxed) {
            true => outcome.map_err(Failure::after_a_write),
            false => outcome,
        }
    }

    /// Closes all connections; requests fail from then on.
    pub(in super::super) fn close(&self) {
        let open = {
            let mut open = self.open.lock();
            open.is_closed = true;
            std::mem::take(&mut open.by_runtime)
        };
        for connection in open.values() {
            connection.close();
        }
    }

    /// Returns the connection of the calling runtime.
    fn of_this_runtime(&self) -> Result<Arc<Connection<Connector>>, Failure> {
        let runtime = Handle::current().id();
        let mut open = self.open.lock();
        if open.is_closed {
            return Err(FailureCause::Closed.into());
        }
        if let Some(known) = open.by_runtime.get(&runtime) {
            return Ok(known.clone());
        }
        // The connections of runtimes that have ended are down. The id of such a runtime may be given to another one,
        // for which its connection is made again.
        open.by_runtime.retain(|_, known| !known.is_down());
        let kind = self.connector.program.kind;
        let counts = Sink::of_store(kind);
        if kind == super::super::KIND {
            counts.has_replicas();
        }
        let gauge = counts.connection(self.purpose);
        let connection = Connection::new(self.connector.clone(), HomeRuntime::Caller, gauge);
        let connection = Arc::new(connection);
        open.by_runtime.insert(runtime, connection.clone());
        Ok(connection)
    }
}
