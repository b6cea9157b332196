//! A server: one connection for each runtime whose tasks send requests to it, and the scripts on it.
//!
//! A connection is a task of the runtime on which it was made: while that runtime is blocked, or once it has ended, no
//! task reads the server's answers. But a client can be used from several runtimes, one after the other or at the same
//! time. So the callers of each runtime share a connection of their own. A thread that drives one connection for all of
//! them would wake twice for each request, which doubles the time of a hand-off to a task of a runtime with several
//! threads.
//!
//! The scripts are never sent with EVAL: newer servers drop scripts that came with it after 500 others. A call that
//! finds them missing loads them all, once for all callers of its runtime.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::super::failure::{Failure, FailureCause};
use super::super::protocol::reply;
use super::Connector;
use super::Request;
use crate::store::budget::Budget;
use crate::store::connection::shared_task::{self, SharedTask};
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
    connection: Arc<RuntimeConnection>,
    /// The task that waits for the end of the runtime ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

/// A connection shared by all requests of one runtime, and the scripts that were loaded over it.
#[derive(Debug)]
struct RuntimeConnection {
    connection: Connection<Connector>,
    loading: Mutex<Loading>,
}

/// The scripts that were loaded over a connection.
#[derive(Debug, Default)]
struct Loading {
    /// The number of times that the scripts were loaded.
    loads: u64,
    under_way: Option<SharedTask<(), Failure>>,
}

impl Server {
    pub(in super::super) fn new(connector: Connector, purpose: Option<LaneUse>) -> Self {
        Self {
            connector,
            purpose,
            open: Arc::default(),
        }
    }

    /// Returns the same server on connections of their own, so that no other user of a pool can take them all.
    pub(in super::super) fn beside(&self, purpose: Option<LaneUse>) -> Self {
        let mut connector = self.connector.clone();
        connector.pool = None;
        Self::new(connector, purpose)
    }

    /// Makes the connection of the calling runtime now.
    pub(in super::super) async fn connect(&self) -> Result<(), Failure> {
        let connection = self.of_this_runtime()?;
        let budget = Budget::new(self.connector.connect_timeout);
        connection.connection.open(budget).await.map(drop)
    }

    /// Sends a request and awaits its answer.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(in super::super) async fn request(
        &self,
        request: Request<'_>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        self.of_this_runtime()?.request(request, budget).await
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
        self.request(Request::One(&command, None), budget).await
    }

    /// Sends these commands one right after the other, and awaits their answers. A command that is refused has an error
    /// for an answer.
    pub(in super::super) async fn request_all(
        &self,
        commands: &Pipeline,
        budget: Budget,
    ) -> Result<Vec<Value>, Failure> {
        reply::into_items(self.request(Request::All(commands), budget).await?)
    }

    /// Calls a script. If the server does not have it, loads all of them and calls it again: the first call was refused
    /// as a whole, so this does not count as a second attempt.
    pub(in super::super) async fn run(
        &self,
        call: Request<'_>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        let connection = self.of_this_runtime()?;
        let loads = connection.loading.lock().loads;
        let missing = match connection.request(call, budget).await {
            Err(failure) if failure.is_no_script() => failure,
            outcome => return outcome,
        };
        let again = async {
            connection.load(loads, budget).await?;
            connection.request(call, budget).await
        };
        let is_sent_before = missing.is_after_another_try();
        // Boxed, because it is rare and would add to the size of every request.
        Box::pin(again)
            .await
            .map_err(|failure| failure.after_another_try(is_sent_before))
    }

    /// Returns how often the scripts were loaded by the calling runtime, for [`load`](Self::load).
    pub(in super::super) fn loads(&self) -> Result<u64, Failure> {
        Ok(self.of_this_runtime()?.loading.lock().loads)
    }

    /// Loads the scripts, unless that was done after they had been loaded `seen` times.
    ///
    /// # Errors
    /// Those of a step before the request that needs them.
    pub(in super::super) async fn load(&self, seen: u64, budget: Budget) -> Result<(), Failure> {
        self.of_this_runtime()?.load(seen, budget).await
    }

    /// Closes all connections; requests fail from then on.
    pub(in super::super) fn close(&self) {
        let open = {
            let mut open = self.open.lock();
            open.is_closed = true;
            std::mem::take(&mut open.by_runtime)
        };
        for of_runtime in open.values() {
            of_runtime.connection.connection.close();
        }
    }

    pub(in super::super) fn is_closed(&self) -> bool {
        self.open.lock().is_closed
    }

    /// Returns the connection of the calling runtime.
    fn of_this_runtime(&self) -> Result<Arc<RuntimeConnection>, Failure> {
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
        let connection = Arc::new(RuntimeConnection {
            connection: Connection::new(connector, home, counts.connection(self.purpose)),
            loading: Mutex::default(),
        });
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

impl RuntimeConnection {
    async fn request(&self, request: Request<'_>, budget: Budget) -> Result<Value, Failure> {
        let every = budget.replace_every();
        let outcome = self.connection.request(request, budget, every).await;
        match self.connection.connector().has_written() {
            true => outcome.map_err(Failure::after_a_write),
            false => outcome,
        }
    }

    async fn load(self: &Arc<Self>, seen: u64, budget: Budget) -> Result<(), Failure> {
        let load = {
            let mut loading = self.loading.lock();
            if loading.loads != seen {
                return Ok(());
            }
            let begin = || shared_task::start(self.clone().load_all(budget));
            loading.under_way.get_or_insert_with(begin).clone()
        };
        let loaded = shared_task::outcome(&load, budget).await;
        loaded.map_err(Failure::before_the_request)
    }

    async fn load_all(self: Arc<Self>, budget: Budget) -> Result<(), Failure> {
        let connector = self.connection.connector();
        // Not the limit of the caller that came first: others may have more time.
        let budget = Budget::new(connector.connect_timeout).replacing_every(budget.replace_every());
        let loads = (connector.program.scripts)().into_iter().map(|script| {
            let connection = self.clone();
            async move {
                connection
                    .request(Request::One(&script.load(), None), budget)
                    .await
            }
        });
        let loaded = try_join_all(loads).await.map(drop);
        let mut loading = self.loading.lock();
        loading.under_way = None;
        loading.loads += u64::from(loaded.is_ok());
        loaded
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
