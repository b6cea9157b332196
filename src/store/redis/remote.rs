//! A server for a store of another kind: it has that store's scripts, and the connections, notices and hazards of a
//! server alone.

use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};

use super::connection::Request;
use super::connection::server::Server;
use super::failure::Failure;
use super::notices::Listener;
use super::protocol::reply;
use super::protocol::scripts::Program;
use super::{Builder, Redis, hazards, of_ttl};
use crate::name::Name;
use crate::store::backend::{Backend, Failing};
use crate::store::budget::Budget;
use crate::store::{Error, Failed, Hazard, Member, Notices, Purpose, Store};
use crate::telemetry::StoreCounts;

/// A server for a store of another kind.
#[derive(Debug)]
pub(in crate::store) struct RemoteServer {
    redis: Redis,
    program: Program,
}

impl RemoteServer {
    /// Makes the server at the URL of this builder, which has to name one server.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub(in crate::store) fn new(server: Builder, program: Program) -> Result<Self, Error> {
        let redis = server.program(program).build()?;
        Ok(Self { redis, program })
    }

    /// Returns where it is, for people to read and without secrets.
    pub(in crate::store) fn place(&self) -> &str {
        &self.redis.place
    }

    /// Returns the key of what the server keeps of itself.
    pub(in crate::store) fn node_key(&self) -> String {
        self.redis.keys.node()
    }

    /// Returns the keys of the lease of this name, and of the mark of its slot.
    pub(in crate::store) fn keys_of(&self, name: &Name) -> [String; 2] {
        [self.redis.keys.lease(name), self.redis.keys.mark(name)]
    }

    /// Returns the same server on a connection of its own, not connected yet.
    pub(in crate::store) fn beside(&self, purpose: Purpose) -> Self {
        Self {
            redis: self.redis.beside(purpose),
            program: self.program,
        }
    }

    pub(in crate::store) fn is_closed(&self) -> bool {
        self.redis.fleet.is_closed()
    }

    pub(in crate::store) async fn close(&self) {
        self.redis.close().await;
    }

    /// Calls one of the scripts, and reads its reply. `ttl` is that of the leases: a silent connection is replaced in
    /// time for them.
    ///
    /// # Errors
    /// Those of a request. A reply that `read` does not know is one.
    pub(in crate::store) async fn call<T>(
        &self,
        call: &Cmd,
        operation: &str,
        limit: Duration,
        ttl: Duration,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Failed> {
        let ask = async {
            let budget = of_ttl(Budget::new(limit), ttl);
            let reply = self.server().run(Request::One(call, None), budget).await?;
            // A replica refuses all scripts.
            self.redis.fleet.note_write();
            read(&reply).ok_or_else(|| reply::refusal(&reply))
        };
        ask.await.map_err(|failure: Failure| Failed {
            sent: failure.sent(),
            error: self.redis.error_of_all(failure, operation),
        })
    }

    /// Opens a subscription. If the server cannot be reached now, it begins to listen once it can.
    ///
    /// # Errors
    /// `Denied` if this user may not subscribe, and the other errors that last.
    pub(in crate::store) async fn notices(&self) -> Result<Box<dyn Notices>, Error> {
        let listener = Listener::new(&self.redis, StoreCounts::of(self.program.kind));
        match listener.subscribe(true).await {
            Ok(subscription) => Ok(Box::new(subscription)),
            Err(failure) => Err(self.redis.error_of_all(failure, "subscribe")),
        }
    }

    /// Returns whether it answers.
    pub(in crate::store) async fn see(&self, limit: Duration) -> Result<Member, Error> {
        let seen = hazards::see_one(self.server(), Budget::new(limit)).await;
        seen.map_err(|failure| self.redis.error_of_all(failure, "check the servers"))
    }

    /// Returns the faults of its set-up.
    pub(in crate::store) async fn hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Error> {
        self.redis.hazards(limit).await
    }

    /// Returns the names with this prefix that have a lease here, in order.
    pub(in crate::store) async fn names(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<Vec<Name>, Error> {
        let names = self.redis.names(prefix, Budget::new(limit)).await;
        names.map_err(|failure| self.redis.error_of_all(failure, "list"))
    }

    /// Returns a key that belongs to a name or a slot, if there is any.
    pub(in crate::store) async fn any_key(&self, limit: Duration) -> Result<Option<String>, Error> {
        let found = self.redis.any_key(self.server(), Budget::new(limit)).await;
        found.map_err(|failure| self.redis.error_of_all(failure, "init"))
    }

    fn server(&self) -> &Server {
        self.redis.fleet.only().expect("it was built at one server")
    }
}
