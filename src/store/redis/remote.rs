//! Lets another store (the quorum) run its own scripts on a Redis server, with this store's connections, notices and
//! hazards.

use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};

use super::failure::Failure;
use super::notices::Listener;
use super::protocol::reply;
use super::{Redis, of_ttl};
use crate::store::kit::backend::{Backend as _, Failing as _};
use crate::store::kit::budget::Budget;
use crate::store::{Failed, Notices};

impl Redis {
    /// Returns how long making a connection may take.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.fleet.settings.connect_timeout
    }

    /// Returns how many replicas a grant waits for.
    pub(crate) fn acknowledged_by(&self) -> u8 {
        self.fleet.settings.acknowledged_by
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.fleet.is_closed()
    }

    /// Calls one of the scripts, and reads its reply. `ttl` is that of the leases: a silent connection is replaced in
    /// time for them.
    ///
    /// # Errors
    /// Those of a request, including a reply that `read` does not know.
    pub(crate) async fn call<T>(
        &self,
        call: Cmd,
        operation: &str,
        limit: Duration,
        ttl: Duration,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Failed> {
        let ask = async {
            let budget = of_ttl(Budget::new(limit), ttl);
            let reply = self.fleet.first()?.ask(call, None, budget).await?;
            // A replica refuses all scripts.
            self.fleet.settings.note_write();
            read(&reply).ok_or_else(|| reply::refusal(&reply))
        };
        ask.await.map_err(|failure| self.failed(failure, operation))
    }

    /// Opens a subscription. If the server cannot be reached now, it begins to listen once it can.
    ///
    /// # Errors
    /// `Denied` if this user may not subscribe, and other permanent errors.
    pub(crate) async fn listen(&self) -> Result<Box<dyn Notices>, Failed> {
        match Listener::subscribe(self, true).await {
            Ok(subscription) => Ok(Box::new(subscription)),
            Err(failure) => Err(self.failed(failure, "subscribe")),
        }
    }

    pub(crate) fn failed(&self, failure: Failure, operation: &str) -> Failed {
        Failed {
            sent: failure.sent(),
            error: self.error_of_all(failure, operation),
        }
    }
}
