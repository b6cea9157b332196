//! The sessions of a client, and the choice between them for a handle's requests: the watchdog's session for everything
//! about leases, as long as there is one, and another for everything else.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::super::failure::Failure;
use super::super::{Role, Shared, Zookeeper, counts};
use super::connector::Connector;
use super::session::{Line, SessionCall};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::{Connection, HomeRuntime, Unconnected};
use crate::telemetry::ConnectionPurpose;

/// Limit for the end of a session.
const GOODBYE: Duration = Duration::from_secs(1);

/// A session shared by many requests, and kept connected without them.
pub(crate) type KeptSession = Connection<Connector>;

impl KeptSession {
    /// Returns the session once it is connected to a server.
    pub(crate) async fn line(&self, budget: Budget) -> Result<Arc<Line>, Failure> {
        match self.open(budget).await {
            Err(Failure::NotReached(_) | Failure::Unconnected(Unconnected::Late)) => {
                Err(self.connector().failure())
            }
            line => line,
        }
    }

    /// Ends the session; requests fail from now on.
    pub(crate) async fn end(&self) {
        if let Some(line) = self.close() {
            // If its runtime has ended or the server has stopped, the session expires by itself.
            let _ = timeout(GOODBYE, line.requests.closed()).await;
        }
    }
}

impl Zookeeper {
    /// Begins a call, whose requests all end with this budget, through the session of this handle.
    pub(crate) async fn call(&self, budget: Budget) -> Result<SessionCall<'_>, Failure> {
        let (shared, waiting) = (&self.shared, &self.shared.waiting);
        let leases = match &self.role {
            Role::Watchdog(kept) => Some(kept.clone()),
            _ if waiting.is_closed() => return Err(Unconnected::Closed.into()),
            Role::Waiting => None,
            Role::User => shared.leases.lock().as_ref().map(|(kept, _)| kept.clone()),
        };
        let line = match leases {
            None => waiting.line(budget).await?,
            Some(kept) => match kept.line(budget).await {
                // The watchdog ended without closing its handle: its session ends with it.
                Err(Failure::Unconnected(Unconnected::Abandoned)) => {
                    *shared.leases.lock() = None;
                    waiting.line(budget).await?
                }
                // It was closed after it was taken from the slot.
                Err(Failure::Unconnected(Unconnected::Closed)) => waiting.line(budget).await?,
                line => line?,
            },
        };
        Ok(self.call_through(line, budget))
    }

    fn call_through(&self, line: Arc<Line>, budget: Budget) -> SessionCall<'_> {
        SessionCall {
            store: self,
            shared: &self.shared,
            line,
            budget,
            has_stamp: AtomicBool::new(false),
        }
    }
}

impl<'a> SessionCall<'a> {
    /// Returns the same call through the session of places in queues.
    pub(crate) async fn waiting(&self) -> Result<SessionCall<'a>, Failure> {
        let line = self.shared.waiting.line(self.budget).await?;
        Ok(self.store.call_through(line, self.budget))
    }
}

impl Shared {
    /// Takes a handle on the session of the leases. The first handle makes the session, on the calling runtime.
    pub(crate) fn take_leases(&self) -> Arc<KeptSession> {
        let mut leases = self.leases.lock();
        let (kept, handles) = leases.get_or_insert_with(|| {
            let home = HomeRuntime::Runtime(Handle::current());
            let connector = Connector::new(self.address.clone(), self.address.session);
            let gauge = counts().connection(Some(ConnectionPurpose::Watchdog));
            (Arc::new(KeptSession::new(connector, home, gauge)), 0)
        });
        *handles += 1;
        kept.clone()
    }

    /// Gives up a handle on the session of the leases. The last handle ends the session.
    pub(crate) async fn give_up_leases(&self, kept: &Arc<KeptSession>) {
        {
            let mut leases = self.leases.lock();
            if let Some((_, handles)) = leases.as_mut().filter(|(it, _)| Arc::ptr_eq(it, kept)) {
                *handles -= 1;
                if *handles > 0 {
                    return;
                }
                *leases = None;
            }
        }
        kept.end().await;
    }
}
