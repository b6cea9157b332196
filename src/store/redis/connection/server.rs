//! A server: one connection for each runtime whose tasks send requests to it.
//!
//! A connection is a task of the runtime on which it was made: while that runtime is blocked, or once it has ended, no
//! task reads the server's answers. But a client can be used from several runtimes, one after the other or at the same
//! time. So the callers of each runtime share a connection of their own. A thread that drives one connection for all of
//! them would wake twice for each request, which doubles the time of a hand-off to a task of a runtime with several
//! threads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::super::failure::{Failure, FailureCause};
use super::super::protocol::reply;
use super::acks::IsWritten;
use super::{Connector, Request};
use crate::store::budget::Budget;
use crate::store::connection::{Connection, HomeRuntime};
use crate::telemetry::{LaneUse, StoreCounts};

/// The connections to one server.
#[derive(Debug)]
pub(in super::super) struct Server {
    pub(in super::super) connector: Connector,
    purpose: Option<LaneUse>,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    by_runtime: HashMap<runtime::Id, OfRuntime>,
    is_closed: bool,
}

/// The connection of a runtime.
#[derive(Debug)]
struct OfRuntime {
    connection: Arc<Connection<Connector>>,
    /// The task that waits for the end of the runtime ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Server {
    pub(in super::super) fn new(connector: Connector, purpose: Option<LaneUse>) -> Self {
        Self {
            connector,
            purpose,
            open: Arc::default(),
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

    /// Sends these words as a command.
    pub(in super::super) async fn ask(
        &self,
        words: &[&str],
        budget: Budget,
    ) -> Result<Value, Failure> {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(*word);
        });
        self.request(&command, None, budget).await
    }

    /// Sends these commands one right after the other, and awaits their answers. A command that is refused has an error
    /// for an answer.
    pub(in super::super) async fn request_all(
        &self,
        commands: &Pipeline,
        budget: Budget,
    ) -> Result<Vec<Value>, Failure> {
        reply::into_items(self.send(Request::All(commands), budget).await?)
    }

    async fn send(&self, request: Request<'_>, budget: Budget) -> Result<Value, Failure> {
        let connection = self.of_this_runtime()?;
        let every = budget.replace_every();
        let outcome = connection.request(request, budget, every).await;
        match self.connector.has_written() {
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
        for of_runtime in open.values() {
            of_runtime.connection.close();
        }
    }

    /// Returns the connection of the calling runtime.
    fn of_this_runtime(&self) -> Result<Arc<Connection<Connector>>, Failure> {
        let runtime = Handle::current();
        let mut open = self.open.lock();
        if open.is_closed {
            return Err(FailureCause::Closed.into());
        }
        if let Some(known) = open.by_runtime.get(&runtime.id()) {
            return Ok(known.connection.clone());
        }
        let kind = self.connector.program.kind;
        let counts = StoreCounts::of(kind);
        if kind == super::super::KIND {
            counts.has_replicas();
        }
        let (connector, home) = (
            self.connector.clone(),
            HomeRuntime::Runtime(runtime.clone()),
        );
        let gauge = counts.connection(self.purpose);
        let connection = Arc::new(Connection::new(connector, home, gauge));
        let (stop, stopped) = oneshot::channel::<()>();
        let end = RuntimeEnd {
            id: runtime.id(),
            open: Arc::downgrade(&self.open),
        };
        let of_runtime = OfRuntime {
            connection: connection.clone(),
            _stop: stop,
        };
        open.by_runtime.insert(runtime.id(), of_runtime);
        // A runtime that is shutting down drops a new task at once, and the end of the runtime takes the lock.
        drop(open);
        runtime.spawn(async move {
            let _end = end;
            // An error says that the connection was closed, which is what this waits for.
            let _ = stopped.await;
        });
        Ok(connection)
    }
}

/// Forgets the connection of a runtime when the runtime ends, and drops this with its tasks. The runtime's id may then
/// be given to another one.
struct RuntimeEnd {
    id: runtime::Id,
    open: Weak<Mutex<Open>>,
}

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        if let Some(open) = self.open.upgrade() {
            // Dropped after the lock is free.
            let _ended = open.lock().by_runtime.remove(&self.id);
        }
    }
}
