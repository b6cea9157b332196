//! The sessions of a client, and over which of them a handle's requests go: the watchdog's for everything about leases,
//! as long as there is one, and the one of everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::super::address::Address;
use super::super::failure::Failure;
use super::super::{Role, Shared, Zookeeper, counts};
use super::connector::Connector;
use super::session::{Line, SessionCall};
use crate::store::budget::Budget;
use crate::store::connection::{Connection, HomeRuntime, Unconnected};
use crate::telemetry::LaneUse;

/// Limit for the end of a session.
const GOODBYE: Duration = Duration::from_secs(1);

/// A session shared by many requests, and kept connected without them.
#[derive(Debug)]
pub(in super::super) struct KeptSession(Connection<Connector>);

impl KeptSession {
    pub(in super::super) fn new(
        address: &Arc<Address>,
        home: HomeRuntime,
        session_timeout: Duration,
        purpose: Option<LaneUse>,
    ) -> Self {
        let connector = Connector::new(address.clone(), session_timeout);
        Self(Connection::new(
            connector,
            home,
            counts().connection(purpose),
        ))
    }

    /// Returns the session once it is connected to a server.
    pub(in super::super) async fn line(&self, budget: Budget) -> Result<Arc<Line>, Failure> {
        match self.0.open(budget).await {
            Err(Failure::NotReached(_) | Failure::Unconnected(Unconnected::Late)) => {
                Err(self.0.connector().failure())
            }
            line => line,
        }
    }

    /// Ends the session; requests fail from now on.
    pub(in super::super) async fn close(&self) {
        if let Some(line) = self.0.close() {
            // If its runtime has ended or the server has stopped, the session expires by itself.
            let _ = timeout(GOODBYE, line.requests.closed()).await;
        }
    }
}

impl Zookeeper {
    /// Begins a call, whose requests all end with this budget, through the session of this handle.
    pub(in super::super) async fn call(&self, budget: Budget) -> Result<SessionCall<'_>, Failure> {
        let (shared, waiting) = (&self.shared, &self.shared.waiting);
        let leases = match &self.role {
            Role::Watchdog(kept) => Some(kept.clone()),
            _ if shared.is_closed.load(Ordering::Relaxed) => return Err(Unconnected::Closed.into()),
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
    pub(in super::super) async fn waiting(&self) -> Result<SessionCall<'a>, Failure> {
        let line = self.shared.waiting.line(self.budget).await?;
        Ok(self.store.call_through(line, self.budget))
    }
}

impl Shared {
    /// Takes a handle on the session in which leases live. The first one makes it, on the calling runtime.
    pub(in super::super) fn take_leases(&self) -> Arc<KeptSession> {
        let mut leases = self.leases.lock();
        let (kept, handles) = leases.get_or_insert_with(|| {
            let home = HomeRuntime::Runtime(Handle::current());
            let (address, timeout) = (&self.address, self.address.session);
            let kept = KeptSession::new(address, home, timeout, Some(LaneUse::Watchdog));
            (Arc::new(kept), 0)
        });
        *handles += 1;
        kept.clone()
    }

    /// Gives up a handle on the session in which leases live. The last one ends it.
    pub(in super::super) async fn give_up_leases(&self, kept: &Arc<KeptSession>) {
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
        kept.close().await;
    }
}
