//! Leases in a ZooKeeper ensemble: for teams that run one already. A grant survives the loss of a minority of servers.
//!
//! Each grant, each release and each batch of renewals is one transaction that the ensemble writes to disk; `README.md`
//! beside this file describes the nodes, for clients in other languages as well. The store needs ZooKeeper 3.5 or
//! later.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::store::zookeeper::Zookeeper;
//!
//! let store = Zookeeper::open("zookeeper://me:secret@zk1.example,zk2.example,zk3.example/jobs")?;
//! # Ok(())
//! # }
//! ```
//!
//! # URLs
//! `zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/CHROOT][?PARAMETERS]`; special characters are written as
//! `%XX`. The chroot must exist. With a user, only that user can use the nodes (the scheme `digest`). The parameters:
//!
//! | parameter | meaning |
//! |---|---|
//! | `prefix` | the node that has the names (default: `leasehold`); leases under different prefixes are unrelated |
//! | `session` | the session time-out that the client asks for (default: `40s`). It gives up a silent server after a tenth of it, at least 0.4 s and at most 4 s |
//! | `token_memory` | how long a name's last token is remembered after the name was freed (default: `3600s`). A name takes three nodes while it is held, and two for that long afterwards |
//!
//! TLS is not supported. The client crate takes certificates but no rustls configuration: it builds one from the
//! process-wide cryptography provider, and its TLS feature compiles a second provider, aws-lc, beside the ring of this
//! crate. With two providers rustls chooses none and panics, unless the program has installed one. Keep the servers on a
//! private network, or put a TLS tunnel on each machine and name its local port in the URL.
//!
//! # What differs from the other stores
//!
//! | | in this store | consequence |
//! |---|---|---|
//! | a lease | is a node with a ttl of its own, measured by the clock of the leader that wrote it; it is not a session | every ttl works with every `tickTime`, and one lease can end while others of its client go on |
//! | a session | only removes the nodes that a dead process left behind, those of leases whose ttl is at most three quarters of the session's time-out | a killed process frees a name after its ttl, as with every store |
//! | a grant | is a write of a quorum to its disks | use it where an ensemble exists, not for 10,000 grants a second |
//! | a change of leaders | the new leader's clock cannot be compared with the stamps of the old one: a name whose holder *died* is granted after one more ttl; leases that are renewed are not affected | choose short ttls if that matters |
//! | alive in the queue | is a client whose session (9 s) has not expired, not one that claimed lately | a client that was cut off for nine seconds stands at the end again |
//! | `WaitOrder::Any` | wakes every waiting client at each release | with many waiting clients use `WaitOrder::Fair`, which wakes two, and costs the servers about 20 requests a grant, with 10, 100 and 1,000 waiting clients. Beside that, each waiting client checks the name every few seconds: about one request a second for each |
//! | a restored snapshot | does not know later grants: their holders are told at their next renewal, and a name can be granted before that | only the fence protects until then |
//! | the clock of the servers | shows in tokens and in `since`; clocks of two leaders may differ by any amount, and shorten no lease | run a time daemon, for the tokens' sake should the data be lost |
//! | `close` | ends the session, and with it what it still holds | drop or release the leases first |
//! | an operator's `deleteall` of a name | is an eviction, found at the next renewal | use `leasehold evict` |
//!
//! # What it promises in each fault
//! *Kept by the leader's clock* means: the last tokens are lost or stale, and tokens rise under the assumption that
//! [the contract](super) makes about the clock. A client knows that clock by a write that is at most a minute old.
//!
//! | fault | tokens rise | told in time | nothing left behind |
//! |---|---|---|---|
//! | a client is killed or paused | kept | kept | kept |
//! | a minority of the servers is lost or cut off, a leader changes | kept | kept | kept |
//! | the majority is lost | kept | kept: nothing is granted | kept |
//! | all data is lost, or restored from a snapshot | kept by the leader's clock | only the fence protects | kept |
//! | the leader's clock steps forward while it leads | kept | only the fence protects | kept |
//! | the leader's clock steps back while it leads | kept | kept | a holder that died leaves its name taken for longer, by the step |
//! | a server's disk is full | kept | kept: the server ends itself | kept |
//!
//! # What it leaves to others
//! A transaction that conflicted with another client's is retried within its limit; nothing else is retried.
//! [`hazards`](Store::hazards) reports what weakens the promises in the ensemble's set-up.

mod acquire;
mod address;
mod failure;
mod hazards;
mod judge;
mod lane;
mod look;
mod notices;
mod queue;
mod reading;
mod release;
mod remembered;
mod renewals;
mod session;
mod stamp;
mod sweep;
mod tree;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::address::Address;
use self::failure::Failure;
use self::lane::LaneHome;
use self::notices::Subscription;
use self::remembered::Remembered;
use self::session::Session;
use self::tree::Tree;
use super::{
    Answer, Ask, Claim, Clock, Error, Eviction, Facts, Failed, Hazard, Held, Holder, Lane, Member,
    Name, Notices, Queued, Release, Renewal, Renewed, Store,
};
use crate::clock::{Boottime, Instant};
use crate::driver::Driver;
use crate::future::BoxFuture;
use crate::holder::ClientId;
use crate::telemetry::{LaneUse, StoreCounts};

/// The kind of this store in its facts and in metrics.
const KIND: &str = "zookeeper";
/// How long the first session of a thread may take to be made: an election is over by then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A store in a ZooKeeper ensemble.
///
/// It is made without I/O: the first request makes a session.
pub struct Zookeeper {
    shared: Arc<Shared>,
    /// This handle's own session.
    own: Arc<lane::Lane>,
    role: Role,
}

/// What all handles of a client share.
struct Shared {
    address: Arc<Address>,
    tree: Tree,
    remembered: Mutex<Remembered>,
    /// The session in which leases live: the watchdog's, and how many handles there are on it.
    leases: Mutex<Option<(Arc<lane::Lane>, usize)>>,
    /// The session in which places in queues live.
    queue: lane::Lane,
    new_names: AtomicU32,
    is_sweeping: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The user's: its requests go through the watchdog's session as long as there is one.
    User,
    Watchdog,
    Waiting,
}

impl Zookeeper {
    /// Makes the store at this URL, with the default settings.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn open(url: &str) -> Result<Self, Error> {
        let address = Arc::new(Address::parse(url)?);
        let home = LaneHome::Driver(Arc::new(Driver::default()));
        let lane = |timeout| {
            let gauge = counts().connection(Some(LaneUse::Requests));
            lane::Lane::new(address.clone(), home.clone(), timeout, gauge)
        };
        let own = Arc::new(lane(address.session()));
        Ok(Self {
            shared: Arc::new(Shared {
                tree: Tree::new(address.chroot(), address.prefix()),
                remembered: Mutex::default(),
                leases: Mutex::default(),
                queue: lane(Queued::PATIENCE),
                new_names: AtomicU32::new(0),
                is_sweeping: AtomicBool::new(false),
                is_closed: AtomicBool::new(false),
                address: address.clone(),
            }),
            own,
            role: Role::User,
        })
    }

    fn error(&self, failure: Failure, operation: &str, name: &Name) -> Error {
        let store = &self.shared.address;
        failure.during(operation, format_args!("name={name} store={store}"))
    }

    /// The same as `error`, for an operation that concerns no single name.
    fn error_of_all(&self, failure: Failure, operation: &str) -> Error {
        let store = &self.shared.address;
        failure.during(operation, format_args!("store={store}"))
    }

    /// Returns the session through which this handle's requests go.
    fn lane(&self) -> Result<Arc<lane::Lane>, Failure> {
        if self.role != Role::User {
            return Ok(self.own.clone());
        }
        if self.shared.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::Closed);
        }
        let leases = lock(&self.shared.leases);
        let lane = leases.as_ref().map(|(lane, _)| lane.clone());
        Ok(lane.unwrap_or_else(|| self.own.clone()))
    }

    async fn session(&self, until: Instant) -> Result<Arc<Session>, Failure> {
        let lane = self.lane()?;
        match lane.session(until).await {
            // The watchdog ended without closing its handle: its session is gone with it.
            Err(Failure::Abandoned) if !Arc::ptr_eq(&lane, &self.own) => {
                *lock(&self.shared.leases) = None;
                self.own.session(until).await
            }
            // It was closed after it was taken from the slot.
            Err(Failure::Closed) if !Arc::ptr_eq(&lane, &self.own) => self.own.session(until).await,
            session => session,
        }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.shared.remembered()
    }

    /// Returns the same store on a session of its own, or on the one in which leases live already.
    async fn on_lane(&self, lane: Lane) -> Result<Arc<dyn Store>, Failure> {
        if self.shared.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::Closed);
        }
        let address = &self.shared.address;
        let home = LaneHome::Runtime(tokio::runtime::Handle::current());
        let gauge = counts().connection((lane == Lane::Watchdog).then_some(LaneUse::Watchdog));
        let new = || {
            let timeout = address.session();
            Arc::new(lane::Lane::new(address.clone(), home, timeout, gauge))
        };
        let (own, role) = match lane {
            Lane::Watchdog => {
                let mut leases = lock(&self.shared.leases);
                let (lane, handles) = leases.get_or_insert_with(|| (new(), 0));
                *handles += 1;
                (lane.clone(), Role::Watchdog)
            }
            Lane::Waiting => (new(), Role::Waiting),
        };
        let store = Self {
            shared: self.shared.clone(),
            own,
            role,
        };
        if let Err(failure) = store.own.session(until(CONNECT_TIMEOUT)).await {
            store.end().await;
            return Err(failure);
        }
        Ok(Arc::new(store))
    }

    async fn end(&self) {
        match self.role {
            Role::User => {
                self.shared.is_closed.store(true, Ordering::Relaxed);
                tokio::join!(self.own.close(), self.shared.queue.close());
            }
            Role::Waiting => self.own.close().await,
            Role::Watchdog => {
                if self.is_last_handle() {
                    self.own.close().await;
                }
            }
        }
    }

    /// Gives up a handle on the session in which leases live. Returns whether it was the last one.
    fn is_last_handle(&self) -> bool {
        let mut leases = lock(&self.shared.leases);
        match &mut *leases {
            Some((lane, handles)) if Arc::ptr_eq(lane, &self.own) => {
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

    async fn subscribe(&self) -> Result<Option<Box<dyn Notices>>, Error> {
        let subscription = async {
            self.lane()?;
            let subscription = Subscription::new(self.shared.clone());
            subscription.connect().await?;
            Ok(subscription)
        };
        let subscription = subscription.await;
        let subscription =
            subscription.map_err(|failure: Failure| self.error_of_all(failure, "subscribe"))?;
        Ok(Some(Box::new(subscription)))
    }
}

impl Shared {
    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        lock(&self.remembered)
    }
}

impl fmt::Debug for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zookeeper")
            .field("location", &format_args!("{}", self.shared.address))
            .field("role", &self.role)
            .field("lane", &self.own)
            .finish_non_exhaustive()
    }
}

impl Store for Zookeeper {
    fn facts(&self) -> Facts {
        Facts::new(KIND).with_queue().with_notices()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Boottime)
    }

    fn location(&self) -> String {
        self.shared.address.to_string()
    }

    fn shard(&self, _: &Name) -> u32 {
        0
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move {
            let answer = self.try_acquire(claim, ask, limit).await;
            answer.map_err(|failure| Failed {
                sent: failure.sent(),
                error: self.error(failure, "acquire", &claim.name),
            })
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_all(batch, limit))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(async move {
            let release = self.try_release(name, holder, keep_for, limit).await;
            release.map_err(|failure| self.error(failure, "release", name))
        })
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let left = self.try_leave(name, client, limit).await;
            left.map_err(|failure| self.error(failure, "leave the queue", name))
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(self.subscribe())
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async move {
            let held = self.try_inspect(name, limit).await;
            held.map_err(|failure| self.error(failure, "inspect", name))
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(async move {
            let list = self.try_list(prefix, limit).await;
            list.map_err(|failure| self.error_of_all(failure, "list"))
        })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let evicted = self.try_evict(name, how, limit).await;
            evicted.map_err(|failure| self.error(failure, "evict", name))
        })
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(async move {
            let hazards = self.look_for_hazards(limit).await;
            hazards.map_err(|failure| self.error_of_all(failure, "inspect the store"))
        })
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async move { Ok(self.look_at_members(limit).await) })
    }

    fn on_own_connection(&self, lane: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let store = self.on_lane(lane).await;
            store.map_err(|failure| self.error_of_all(failure, "connect"))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.end())
    }
}

fn counts() -> &'static StoreCounts {
    StoreCounts::of(KIND)
}

/// Opens the store at a URL whose scheme is ours.
pub(super) fn open_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(Zookeeper::open(url)?))
}

/// Converts to whole milliseconds, rounded up: the lease must be kept for at least as long as its holder expects.
fn millis(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).to_string()
}

/// Returns the moment at which a call with this limit is given up.
fn until(limit: Duration) -> Instant {
    Boottime.now().after(limit)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
