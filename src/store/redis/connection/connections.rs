//! One connection for each runtime whose tasks send requests.
//!
//! A connection is a task of the runtime on which it was made: while that runtime is blocked, or once it has ended, no
//! task reads the server's answers. But a client can be used from several runtimes, one after the other or at the same
//! time. So the callers of each runtime share a connection of their own. A thread that drives one connection for all of
//! them would wake twice for each request, which doubles the time of a hand-off to a task of a runtime with several
//! threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::super::failure::Failure;
use super::super::protocol::reply;
use super::budget::Budget;
use super::open::Request;
use super::{Connector, RuntimeConnection};
use crate::telemetry::{LaneUse, StoreCounts};

/// The connections to one address.
#[derive(Debug)]
pub(in super::super) struct Connections {
    settings: Connector,
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
    connection: Arc<RuntimeConnection>,
    /// The task that waits for the end of the runtime ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Connections {
    /// Connections for this purpose.
    pub(in super::super) fn new(settings: Connector, purpose: Option<LaneUse>) -> Self {
        Self {
            settings,
            purpose,
            open: Arc::default(),
        }
    }

    /// Returns how many replicas must have a write before it counts.
    pub(in super::super) fn acknowledged_by(&self) -> u8 {
        self.settings.acknowledged_by
    }

    /// Returns connections to the same address that are made beside the pool, so that no other user of the pool
    /// can take them all.
    pub(in super::super) fn beside(&self, purpose: Option<LaneUse>) -> Self {
        let settings = self.settings.clone();
        let source = settings.source.beside();
        Self::new(Connector { source, ..settings }, purpose)
    }

    /// Makes the connection of the calling runtime now.
    pub(in super::super) async fn connect(&self) -> Result<(), Failure> {
        self.of_this_runtime()?.connect().await.map(drop)
    }

    /// Sends one command and awaits its answer, as [`RuntimeConnection::request`] does.
    pub(in super::super) async fn request(
        &self,
        command: &Cmd,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let request = Request::One(command);
        self.exchange(request, budget, replace_every).await
    }

    /// The same for a request of any kind.
    pub(in super::super) async fn exchange(
        &self,
        request: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let connection = self.of_this_runtime()?;
        connection.request(request, budget, replace_every).await
    }

    /// Sends these commands one right after the other, and awaits their answers. A command that is refused has an error
    /// for an answer.
    pub(in super::super) async fn request_all(
        &self,
        commands: &Pipeline,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let request = Request::All(commands);
        reply::into_items(self.exchange(request, budget, replace_every).await?)
    }

    /// Returns how often the scripts were loaded by the calling runtime, for [`load`](Self::load).
    pub(in super::super) fn loads(&self) -> Result<u64, Failure> {
        Ok(self.of_this_runtime()?.loads())
    }

    /// Loads the scripts, as [`RuntimeConnection::load`] does.
    pub(in super::super) async fn load(
        &self,
        seen: u64,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<(), Failure> {
        self.of_this_runtime()?
            .load(seen, budget, replace_every)
            .await
    }

    /// Notes that the server at this address has carried out a write, so the address normally leads to a master.
    pub(in super::super) fn note_write(&self) {
        self.settings.note_write();
    }

    /// Closes all connections; requests fail from then on.
    pub(in super::super) fn close(&self) {
        let open = {
            let mut open = lock(&self.open);
            open.is_closed = true;
            std::mem::take(&mut open.by_runtime)
        };
        open.values()
            .for_each(|of_runtime| of_runtime.connection.close());
    }

    pub(in super::super) fn is_closed(&self) -> bool {
        lock(&self.open).is_closed
    }

    /// The connection of the calling runtime.
    fn of_this_runtime(&self) -> Result<Arc<RuntimeConnection>, Failure> {
        let runtime = Handle::current();
        let mut open = lock(&self.open);
        if open.is_closed {
            return Err(Failure::Closed);
        }
        if let Some(known) = open.by_runtime.get(&runtime.id()) {
            return Ok(known.connection.clone());
        }
        let counts = StoreCounts::of(self.settings.program.kind);
        if self.settings.program.kind == super::super::KIND {
            counts.has_replicas();
        }
        let gauge = counts.connection(self.purpose);
        let connection = Arc::new(RuntimeConnection::new(
            self.settings.clone(),
            runtime.clone(),
            gauge,
        ));
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
            let _ended = lock(&open).by_runtime.remove(&self.id);
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
