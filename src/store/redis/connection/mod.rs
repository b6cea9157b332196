//! The connection that all requests of one runtime share: how it is made, and what its failures mean.
//!
//! The redis crate itself never gives up a connection whose server has stopped answering. A connection to a replica is
//! replaced too, because after a planned failover the same address leads to another server while connections to the old
//! one stay open. A replica has carried nothing out, so the request is sent once more on the new connection. So is one
//! whose connection was found closed: it may be sent twice.

pub(super) mod acks;
pub(super) mod budget;
pub(super) mod connections;
mod dial;
pub(super) mod loading;
pub(super) mod open;
pub(super) mod origin;
pub(super) mod server;
pub(super) mod shared_task;
mod tls;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::redis::Value;
use tokio::runtime::Handle;
use tokio::time::timeout;

use self::budget::Budget;
use self::loading::Loading;
use self::open::{OpenConnection, Request};
use self::origin::Origin;
use super::failure::Failure;
use super::protocol::scripts::Program;
use crate::store::connection::{
    AfterEnd, Connect, Connection, Driven, Exchange, Fault, HomeRuntime,
};
use crate::telemetry::ConnectionGauge;

/// How long requests must have waited without an answer before the connection is held responsible, and not a limit that
/// is shorter than the round trip. A tenth of the ttl if that is less, so that a renewal gets another connection in
/// time.
const LEAST_SILENCE: Duration = Duration::from_millis(250);

/// A connection shared by all requests of one runtime, and the scripts that were loaded over it.
#[derive(Debug)]
pub(super) struct RuntimeConnection {
    connection: Connection<Connector>,
    pub(super) loading: Mutex<Loading>,
}

/// What all connections to one address have in common.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub(super) source: Origin,
    /// What the server is asked to do.
    pub(super) program: Program,
    pub(super) connect_timeout: Duration,
    /// How many replicas must have a write before it counts.
    pub(super) acknowledged_by: u8,
    /// Whether a write was ever carried out at this address.
    pub(super) has_written: Arc<AtomicBool>,
}

impl RuntimeConnection {
    /// A connection of this runtime.
    pub(super) fn new(settings: Connector, runtime: Handle, gauge: Arc<ConnectionGauge>) -> Self {
        Self {
            connection: Connection::new(settings, HomeRuntime::Runtime(runtime), gauge),
            loading: Mutex::default(),
        }
    }

    fn program(&self) -> Program {
        self.connection.connector().program
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.connection.connector().connect_timeout
    }

    /// Makes the connection now.
    pub(super) async fn connect(&self) -> Result<Arc<OpenConnection>, Failure> {
        let budget = Budget::new(self.connect_timeout());
        self.connection.open(budget).await
    }

    /// Sends a request and awaits its answer.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub(super) async fn request(
        &self,
        request: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let outcome = self.connection.request(request, budget, replace_every);
        outcome.await.map_err(|failure| {
            if self.connection.connector().has_written() {
                failure.after_a_write()
            } else {
                failure
            }
        })
    }

    /// Closes the connection; requests fail from then on.
    pub(super) fn close(&self) {
        self.connection.close();
    }
}

impl Connect for Connector {
    type Open = OpenConnection;
    type Engine = ();
    type Failure = Failure;

    async fn connect(&mut self) -> Result<(OpenConnection, ()), Failure> {
        let limit = self.connect_timeout;
        let making = OpenConnection::make(&self.source, limit);
        let made = timeout(limit, making).await.unwrap_or(Err(Failure::Silent));
        made.map(|open| (open, ()))
    }

    async fn drive(&mut self, (): (), _: &Driven<Self>) -> AfterEnd {
        AfterEnd::Unseen
    }
}

impl Exchange for Connector {
    type Request<'a> = Request<'a>;
    type Answer = Value;

    async fn exchange<'a>(
        &'a self,
        open: &Arc<OpenConnection>,
        request: Request<'a>,
        budget: Budget,
    ) -> Result<Value, Failure> {
        match (request, self.acknowledged_by) {
            (Request::Written(command, is_written), replicas) if replicas > 0 => {
                let sent = open.send_written(command, replicas, is_written, budget);
                sent.await
            }
            (request, _) => open.send(request, budget).await,
        }
    }

    fn fault(failure: &Failure, open: &OpenConnection, replace_every: Duration) -> Option<Fault> {
        match failure {
            Failure::FoundClosed(_) => Some(Fault::FoundClosed),
            Failure::Silent => {
                let is_stuck = open.is_silent_for(LEAST_SILENCE.min(replace_every));
                is_stuck.then_some(Fault::Silent)
            }
            failure if failure.is_broken() => Some(Fault::Broken),
            failure => failure.is_of_replica().then_some(Fault::WrongServer),
        }
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
