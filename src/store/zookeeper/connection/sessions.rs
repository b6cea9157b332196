//! The sessions of a client, and over which of them a handle's requests go: the watchdog's for everything about leases,
//! as long as there is one, and the one of everything else.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::super::address::Address;
use super::super::failure::Failure;
use super::super::{Role, Shared, Zookeeper, counts};
use super::connector::{CONNECT_TIMEOUT, Connector, LastFailure};
use super::session::{Aborted, Change, Session, Stat};
use crate::clock::{Boottime, Clock};
use crate::store;
use crate::store::budget::Budget;
use crate::store::connection::{Connection, HomeRuntime, Unconnected};
use crate::telemetry::{ConnectionGauge, LaneUse};

/// Most claims and releases under way at once, so that renewals never queue behind more.
const IN_FLIGHT: usize = 256;
/// Limit for the end of a session.
const GOODBYE: Duration = Duration::from_secs(1);

/// A session shared by many requests, and kept connected without them.
#[derive(Debug)]
pub(in super::super) struct KeptSession {
    connection: Connection<Connector>,
    permits: Semaphore,
    last_failure: LastFailure,
}

/// One call of the store, with the session through which its requests go. What it writes is heard by the clock.
pub(in super::super) struct SessionCall<'a> {
    pub(in super::super) store: &'a Zookeeper,
    pub(in super::super) shared: &'a Shared,
    session: Session,
    /// Says that the call has asked the leader for its time.
    pub(in super::super) has_stamp: AtomicBool,
}

impl KeptSession {
    pub(in super::super) fn new(
        address: Arc<Address>,
        home: HomeRuntime,
        session_timeout: Duration,
        gauge: Arc<ConnectionGauge>,
    ) -> Self {
        let connector = Connector::new(address, session_timeout);
        Self {
            last_failure: connector.last_failure.clone(),
            connection: Connection::new(connector, home, gauge),
            permits: Semaphore::new(IN_FLIGHT),
        }
    }

    /// Returns the session once it is connected to a server.
    pub(in super::super) async fn session(&self, budget: Budget) -> Result<Session, Failure> {
        match self.connection.open(budget).await {
            Ok(line) => Ok(Session { line, budget }),
            Err(Failure::NotReached(_) | Failure::Unconnected(Unconnected::Late)) => {
                Err(self.last_failure.failure())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Waits until few enough requests are under way.
    pub(in super::super) async fn permit(
        &self,
        budget: Budget,
    ) -> Result<SemaphorePermit<'_>, Failure> {
        match timeout(budget.left(), self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Unconnected::Closed.into()),
            Err(_) => Err(Failure::Busy),
        }
    }

    /// Ends the session; requests fail from now on.
    pub(in super::super) async fn close(&self) {
        self.permits.close();
        if let Some(line) = self.connection.close() {
            // If its runtime has ended or the server has stopped, the session expires by itself.
            let _ = timeout(GOODBYE, line.ended.cancelled()).await;
        }
    }
}

impl Deref for SessionCall<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl<'a> SessionCall<'a> {
    /// Returns the same call through the session of places in queues.
    pub(in super::super) async fn waiting(&self) -> Result<SessionCall<'a>, Failure> {
        Ok(SessionCall {
            store: self.store,
            shared: self.shared,
            session: self.shared.waiting.session(self.budget).await?,
            has_stamp: AtomicBool::new(false),
        })
    }

    /// Does all steps or none. Returns the stat of the node that each `Set` wrote.
    pub(in super::super) async fn transact(&self, steps: &[Change]) -> Result<Vec<Stat>, Aborted> {
        let stats = self.session.transact(steps).await?;
        stats.iter().for_each(|stat| self.hear(*stat));
        Ok(stats)
    }

    /// The same. Returns the stat of the first node that a `Set` wrote.
    pub(in super::super) async fn write(&self, steps: &[Change]) -> Result<Stat, Failure> {
        let stats = self.transact(steps).await?;
        let stat = stats.first().copied();
        stat.ok_or_else(|| Failure::Odd("write without a stamp"))
    }

    pub(in super::super) async fn set(&self, path: &str, data: &[u8]) -> Result<Stat, Failure> {
        let stat = self.session.set(path, data).await?;
        self.hear(stat);
        Ok(stat)
    }

    pub(in super::super) fn hear(&self, stat: Stat) {
        let mut remembered = self.shared.remembered();
        remembered.clock.hear(stat.stamp, Boottime.now());
    }

    /// Attempts something until no other client changes the name meanwhile.
    pub(in super::super) async fn until_unchanged<T, F>(
        &self,
        attempt: impl Fn() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        loop {
            match attempt().await {
                Err(failure) if failure.is_stale() && !self.budget.left().is_zero() => {}
                done => return done,
            }
        }
    }
}

impl Zookeeper {
    /// Returns the session through which this handle's requests go.
    pub(in super::super) fn kept(&self) -> Result<Arc<KeptSession>, Failure> {
        let waiting = || self.shared.waiting.clone();
        match &self.role {
            Role::Watchdog(kept) => Ok(kept.clone()),
            _ if self.shared.is_closed.load(Ordering::Relaxed) => Err(Unconnected::Closed.into()),
            Role::Waiting => Ok(waiting()),
            Role::User => {
                let leases = self.shared.leases.lock();
                let kept = leases.as_ref().map(|(kept, _)| kept.clone());
                Ok(kept.unwrap_or_else(waiting))
            }
        }
    }

    pub(in super::super) async fn session(&self, budget: Budget) -> Result<Session, Failure> {
        let (kept, waiting) = (self.kept()?, &self.shared.waiting);
        match kept.session(budget).await {
            session if Arc::ptr_eq(&kept, waiting) => session,
            // The watchdog ended without closing its handle: its session ends with it.
            Err(Failure::Unconnected(Unconnected::Abandoned)) => {
                *self.shared.leases.lock() = None;
                waiting.session(budget).await
            }
            // It was closed after it was taken from the slot.
            Err(Failure::Unconnected(Unconnected::Closed)) => waiting.session(budget).await,
            session => session,
        }
    }

    /// Begins a call, whose requests all end with this budget.
    pub(in super::super) async fn call(&self, budget: Budget) -> Result<SessionCall<'_>, Failure> {
        Ok(SessionCall {
            store: self,
            shared: &self.shared,
            session: self.session(budget).await?,
            has_stamp: AtomicBool::new(false),
        })
    }

    /// Returns the same store for this purpose: on a session that the calling runtime keeps alive for leases, and on
    /// the one of everything else for clients that wait.
    pub(in super::super) async fn for_purpose(
        &self,
        purpose: store::Purpose,
    ) -> Result<Self, Failure> {
        if self.shared.is_closed.load(Ordering::Relaxed) {
            return Err(Unconnected::Closed.into());
        }
        let role = match purpose {
            store::Purpose::Watchdog => Role::Watchdog(self.shared.leases()),
            store::Purpose::Waiting => Role::Waiting,
        };
        let shared = self.shared.clone();
        let store = Self { shared, role };
        let session = store.kept()?.session(Budget::new(CONNECT_TIMEOUT)).await;
        if let Err(failure) = session {
            store.close_sessions().await;
            return Err(failure);
        }
        Ok(store)
    }

    pub(in super::super) async fn close_sessions(&self) {
        match &self.role {
            Role::User => {
                self.shared.is_closed.store(true, Ordering::Relaxed);
                self.shared.waiting.close().await;
            }
            Role::Waiting => {}
            Role::Watchdog(kept) => {
                if self.shared.is_last_handle(kept) {
                    kept.close().await;
                }
            }
        }
    }
}

impl Shared {
    /// Takes a handle on the session in which leases live. The first one makes it, on the calling runtime.
    fn leases(&self) -> Arc<KeptSession> {
        let mut leases = self.leases.lock();
        let (kept, handles) = leases.get_or_insert_with(|| {
            let home = HomeRuntime::Runtime(Handle::current());
            let gauge = counts().connection(Some(LaneUse::Watchdog));
            let timeout = self.address.session();
            let kept = KeptSession::new(self.address.clone(), home, timeout, gauge);
            (Arc::new(kept), 0)
        });
        *handles += 1;
        kept.clone()
    }

    /// Gives up a handle on the session in which leases live. Returns whether it was the last one.
    fn is_last_handle(&self, kept: &Arc<KeptSession>) -> bool {
        let mut leases = self.leases.lock();
        match &mut *leases {
            Some((current, handles)) if Arc::ptr_eq(current, kept) => {
                *handles = handles.saturating_sub(1);
                let is_last = *handles == 0;
                if is_last {
                    *leases = None;
                }
                is_last
            }
            _ => true,
        }
    }
}
