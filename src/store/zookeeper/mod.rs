//! Leases in a ZooKeeper ensemble: for teams that run one already. A grant survives the loss of a minority of servers.
//!
//! Each grant, each release and each batch of renewals is one transaction that the ensemble writes to disk; `README.md`
//! in this folder describes the nodes, for clients in other languages as well. The store needs ZooKeeper 3.5 or
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
//! - `prefix`: the node that has the names (default: `leasehold`); leases under different prefixes are unrelated.
//! - `session`: the requested time-out of the session that holds the leases (default: `40s`).
//!
//! A name takes three nodes while it is held, and two for an hour after it was freed. Then only the highest token of
//! all such names in a folder is kept, and the tokens of new names there are above it.
//!
//! TLS is not supported. Keep the servers on a private network, or put a TLS tunnel on each machine and name its local
//! port in the URL.
//!
//! # Connections
//! A client has two connections, each with a session: one for its leases, kept alive by the watchdog, and one of nine
//! seconds for its places in queues, its watches, and requests before its first lease. Each leads to one of the
//! servers, drawn at random. A client leaves a server that closes the connection, or that is silent for one second
//! (half a second while it has a lease with a ttl of 2 s or less, up to four seconds if its connections keep ending
//! within three). It goes to another server and continues its sessions there. If the servers have lost their data, they
//! do not know its sessions: the client makes new ones at once.
//!
//! If a server hangs, its silence and the new connection take a little more than a second of a ttl of 2 s. Where the
//! machines are busy enough to delay a client or a server by half a second, choose a ttl of 4 s or more.
//!
//! Two settings of the servers matter:
//!
//! - `maxClientCnxns`: at least twice the number of clients on one machine, where each running `leasehold` counts as a
//!   client. The server counts by address, and while other servers are down all of these connections can lead to one
//!   server. With the default of 60, the 31st client of a machine can be `Unavailable`; it asks again at growing
//!   pauses.
//! - `minSessionTimeout`: at least two ticks, as by default. With less, the leader can end a session while a lease that
//!   was confirmed in it has time left, and the holder hears of it only at its next renewal.
//!
//! # What differs from the other stores
//!
//! - A lease is a node with a ttl of its own, measured by the clock of the leader that wrote it; it is not a session.
//!   So every ttl works with every `tickTime`, and one lease can end while others of its client go on.
//! - A session only removes the nodes of a dead process, except leases with a ttl above three quarters of the session's
//!   time-out. So after a kill a name is free after its ttl, as with every store.
//! - A grant is a write of a quorum to its disks. Use it where an ensemble exists, not for 10,000 grants a second.
//! - After a change of leaders, the new leader's clock cannot be compared with the stamps of the old one: a name whose
//!   holder *died* is granted after one more ttl. Leases that are renewed are not affected. Choose short ttls if that
//!   matters.
//! - A client in the queue counts as alive while its session (9 s) has not expired, regardless of its last claim. A
//!   client that was cut off for nine seconds joins the end again.
//! - A freed name is kept for the first client in the queue for 2 s, and its claim takes it: a release grants nothing.
//! - After an operator removed a last token (`t-`), the next grant removes the whole name and makes it anew, and
//!   clients that waited for the name join its queue again.
//! - A restored snapshot does not know later grants: their holders hear at their next renewal, and a name can be
//!   granted before that. Only the fence protects until then.
//! - The clock of the servers shows in tokens and in `since`; clocks of two leaders may differ by any amount, and
//!   shorten no lease. Run a time daemon, so that tokens keep rising should the data be lost.
//! - `close` ends the session, and with it what it still holds: drop or release the leases first.
//! - An operator's `deleteall` of a name is an eviction, found at the next renewal: use `leasehold evict`.
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
//! | the leader's clock steps back while it leads | kept | kept | a dead holder's name stays taken for longer |
//! | a server's disk is full | kept | kept: the server ends itself | kept |
//!
//! # What it leaves to others
//! A transaction that conflicted with another client's is retried within its limit; nothing else is retried.
//! [`hazards`](super::Store::hazards) reports what weakens the promises in the ensemble's set-up. It reads no names. A
//! name whose nodes are not in order, with two holders or a node that this version does not know, is granted to no
//! client: [`list`](super::Store::list) returns it without a holder, and [`inspect`](super::Store::inspect) says what
//! is wrong with it.

mod acquire;
mod address;
mod connection;
mod failure;
mod hazards;
mod members;
mod notices;
mod protocol;
mod queue;
mod read;
mod release;
mod remembered;
mod renewals;
mod sweep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::address::Address;
use self::connection::connector::{CONNECT_TIMEOUT, Connector};
use self::connection::sessions::KeptSession;
use self::failure::Failure;
use self::protocol::tree::Tree;
use self::remembered::Remembered;
use super::kit::backend::Backend;
use super::kit::budget::{self, Budget};
use super::kit::connection::{Driver, HomeRuntime, Unconnected};
use super::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, Member, Notices, Purpose, Release, Renewal,
    Renewed,
};
use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::telemetry::{ConnectionPurpose, Sink};

/// The kind of this store in its facts and in metrics.
const KIND: &str = "zookeeper";
/// Time-out of the session with the places of waiting clients: a dead client keeps its place for this long.
const WAITING_SESSION: Duration = Duration::from_secs(9);

/// A store in a ZooKeeper ensemble.
///
/// It is made without I/O: the first request makes a session.
pub struct Zookeeper {
    shared: Arc<Shared>,
    role: Role,
}

/// State that all handles of a client share.
pub(crate) struct Shared {
    address: Arc<Address>,
    tree: Tree,
    remembered: Mutex<Remembered>,
    /// Where the shared connections of the client live.
    driver: Arc<Driver>,
    /// The session of the leases, which the watchdog uses, and the number of handles on it.
    leases: Mutex<Option<(Arc<KeptSession>, usize)>>,
    /// The session of everything else: places in queues, watches, and requests while there is no watchdog. Its time-out
    /// is how long a client without a sign of life keeps its places. It is closed with the store.
    waiting: Arc<KeptSession>,
    /// Has one permit, which a sweep takes.
    sweeping: Arc<Semaphore>,
}

/// The user of a handle, which decides the session of its requests.
#[derive(Clone)]
enum Role {
    /// The user's: its requests go through the watchdog's session as long as there is one.
    User,
    Watchdog(Arc<KeptSession>),
    Waiting,
}

impl Zookeeper {
    /// Makes the store at this URL, with the default settings.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(Self::at(Address::parse(url)?))
    }

    /// The same, for tests: a name is swept this long after it was freed, instead of an hour.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn open_sweeping(url: &str, token_memory: Duration) -> Result<Self, Error> {
        let mut address = Address::parse(url)?;
        address.token_memory = token_memory;
        Ok(Self::at(address))
    }

    fn at(address: Address) -> Self {
        let address = Arc::new(address);
        let driver = Arc::<Driver>::default();
        let home = HomeRuntime::Thread(driver.clone());
        let connector = Connector::new(address.clone(), WAITING_SESSION);
        let gauge = counts().connection(Some(ConnectionPurpose::Notices));
        let waiting = KeptSession::new(connector, home, gauge);
        Self {
            shared: Arc::new(Shared {
                tree: Tree::new(&address.chroot, &address.prefix),
                remembered: Mutex::default(),
                driver,
                leases: Mutex::default(),
                waiting: Arc::new(waiting),
                sweeping: Arc::new(Semaphore::new(1)),
                address,
            }),
            role: Role::User,
        }
    }
}

impl fmt::Debug for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zookeeper")
            .field(&self.shared.address)
            .finish()
    }
}

impl Backend for Zookeeper {
    type Failure = Failure;

    fn own_facts(&self) -> Facts {
        Facts::new(KIND).with_queue().with_notices()
    }

    fn own_location(&self) -> &dyn fmt::Display {
        &*self.shared.address
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let call = self.call(budget).await?;
        let _permit = call.permit().await?;
        call.until_unchanged(|| call.take(claim, ask)).await
    }

    async fn try_renew(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        self.renew_batch(batch, budget).await
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let call = self.call(budget).await?;
        let _permit = call.permit().await?;
        call.until_unchanged(|| call.free(name, holder, keep_for))
            .await
    }

    async fn try_notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        let waiting = self.try_own_connection(Purpose::Waiting).await?;
        Ok(Some(Box::new(notices::subscribe(waiting).await?)))
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        let reading = self.call(budget).await?.read_freshly(name).await?;
        Ok(reading.shown(name))
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        self.call(budget).await?.list(prefix).await
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let call = self.call(budget).await?;
        call.until_unchanged(|| call.evict(name, how)).await
    }

    async fn try_hazards(&self, budget: Budget) -> Result<Vec<Hazard>, Failure> {
        self.hazards_of_set_up(budget).await
    }

    async fn try_members(&self, budget: Budget) -> Result<Vec<Member>, Failure> {
        Ok(members::ask_each(&self.shared.address.servers, budget).await)
    }

    async fn try_own_connection(&self, purpose: Purpose) -> Result<Self, Failure> {
        let shared = self.shared.clone();
        if shared.waiting.is_closed() {
            return Err(Unconnected::Closed.into());
        }
        let role = match purpose {
            Purpose::Watchdog => Role::Watchdog(shared.take_leases()),
            Purpose::Waiting => Role::Waiting,
        };
        let store = Self { shared, role };
        if let Err(failure) = store.call(Budget::new(CONNECT_TIMEOUT)).await {
            store.own_close().await;
            return Err(failure);
        }
        Ok(store)
    }

    async fn own_close(&self) {
        match &self.role {
            Role::User => self.shared.waiting.end().await,
            Role::Waiting => {}
            Role::Watchdog(kept) => self.shared.give_up_leases(kept).await,
        }
    }
}

fn counts() -> &'static Sink {
    Sink::of_store(KIND)
}

/// Converts to whole milliseconds, rounded up: the lease must be kept for at least as long as its holder expects.
fn millis(duration: Duration) -> Vec<u8> {
    budget::millis(duration).to_string().into_bytes()
}
