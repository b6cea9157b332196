//! The stores, which grant leases, and the contract that every store keeps.
//!
//! [`memory`] is the reference implementation to read, `sqlite` is embedded, and `redis`, `postgres` and `zookeeper`
//! are for many machines; `quorum` uses several Redis servers that know nothing of each other. A store is passive: it
//! has no timers and renews nothing; the watchdog renews.
//!
//! A client has its store as [`Client::store`](crate::Client::store), to inspect, list and evict leases. The types in
//! [`spi`] are for those who implement a store; `store::conformance` (feature `conformance`) has this contract as
//! tests for them.
//!
//! # Guarantees
//! 1. At most one holder has a name at any moment of the store's own clock.
//! 2. A new grant's token is above that of every grant of the name that was answered before this claim was sent, and
//!    above the floor of the attempt that was granted.
//! 3. If the holder itself asks again, `acquire` **sets the full ttl again** and returns the token kept in the lease,
//!    whatever the floor of this attempt. So a repeated request is idempotent, and each reply belongs to the moment at
//!    which its own attempt was sent.
//! 4. `renew` extends a lease only if both its holder and its token are those of the renewal, and never creates one.
//!    One bad lease does not affect the others of its batch.
//! 5. `release` frees a name only if this holder has it, and its answer says whether that was so: `Released` means
//!    that no other holder was granted the name between this holder's grant and the release. It is idempotent. If
//!    all attempts of a claim were answered, it was granted at most once, so the answer is about that grant's token.
//! 6. Every lease expires by itself, at most one ttl after the store last heard of it.
//! 7. Waiting is fair: the clients in the queue of a name take turns in the order in which they joined, and no client
//!    overtakes a live one. A client is live if it claimed within its [patience](Queued::PATIENCE) and accepts an
//!    [offer](Queued::OFFER) in time; where a session keeps its place (ZooKeeper), while that session has not ended.
//!    A flush, a failover or a step of the server's clock can disturb the order, and nothing else. A store without a
//!    queue ignores a claim's place in it.
//! 8. If a request was answered before an `inspect` of the same client is sent, the `inspect` shows its effect. Of two
//!    clients that each claim a name and then look at the other's, at least one sees the other: permits and shared
//!    names rest on this. A read from a replica that may lag breaks it.
//! 9. Every call returns within about its `limit`, whatever the server and the network do. The client gives up at 1.5
//!    times the `limit`, and after 30 s if a call has no limit, and treats the outcome as unknown, as after a lost
//!    reply. A call that panics fails with `Misconfigured`.
//!
//! # Assumptions
//! If the store's highest token is lost or stale (flush, eviction, empty restart, a replica that missed it), the clock
//! that mints the next token is not behind the clock that minted the last one by more than the time between the two
//! grants, and the last token was not ahead of its own clock by more than that time, because of a floor or of a clock
//! that was set back.
//!
//! # Errors
//! The kind of an error says what the caller should do; it does not say whether the request was carried out. For
//! `acquire` [`Sent`] says that; in doubt it is [`Sent::Perhaps`], and the claim is *doubtful*, whatever the kind. A
//! reply that cannot be parsed, a protocol error, and a permission that is missing in the middle of a script leave a
//! claim doubtful too. For the other calls the outcome is unknown after every error. That another holder has the name
//! is a value, not an error.
//!
//! # Cancel safety
//! Dropping a future leaves the outcome unknown, as a lost reply does. Retry the call or release the name.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "quorum")]
pub mod quorum;
#[cfg(feature = "redis")]
pub mod redis;
pub mod spi;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

mod backend;
mod bounded;
#[cfg_attr(
    not(any(
        feature = "postgres",
        feature = "redis",
        feature = "sqlite",
        feature = "zookeeper"
    )),
    expect(dead_code, reason = "the store in memory waits for nothing")
)]
mod budget;
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod check;
mod claim;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod connect_timeout;
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod connection;
mod facts;
mod hazard;
mod notice;
mod release;
mod renewal;
#[cfg(feature = "redis")]
mod scheme;
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod server_url;
#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
))]
mod subscription;
mod tables;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod tls;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::token::Token;

pub(crate) use self::bounded::{Bounded, gives_up_after};
pub use self::claim::{Held, HeldState, Info};
pub use self::facts::{Member, MemberState};
pub use self::hazard::{Hazard, Severity};
pub use self::release::{Eviction, MAX_KEEP};
#[cfg(not(feature = "internals"))]
pub(crate) use self::spi::*;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use self::spi::*;
pub use self::tables::TableSettings;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub use self::tls::Tls;
pub use self::url::{init, init_script, open, replace, replace_script, shared_url};
pub use crate::kinds::shown;

/// A store of leases. The [module](self) has the contract.
///
/// No method is defaulted: a wrapper that forgets one must not compile. Wrappers also deny
/// `clippy::missing_trait_methods`.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Returns what a client has to know about this store before it sends a request. The facts never change while the
    /// store is open, except for [`max_ttl`](Facts::max_ttl).
    fn facts(&self) -> Facts;

    /// Returns the clock by which leases of this store are measured. It runs whenever a rival's clock can.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Returns where the leases are kept, for people to read and without secrets.
    fn location(&self) -> String;

    /// Returns the part of the store that keeps this name. Leases of one shard are renewed together, and a shard that
    /// does not answer delays no other. A store on one server answers 0 for every name. The answer may change while
    /// the store is open: the watchdog asks when a claim is sent, when a renewal falls due and when a release is sent,
    /// so this must be cheap.
    fn shard(&self, name: &Name) -> u32;

    /// Grants the name to the claim's holder, or returns who has it. This is one attempt of a claim; each attempt of
    /// it carries an [`Ask`] of its own.
    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>>;

    /// Extends each lease to its full ttl from now, if its holder still has it. Always returns one outcome for each
    /// renewal, in the order of the batch. A batch is of one [shard](Self::shard), as far as the caller knows, and
    /// has at most [`MAX_BATCH`] renewals: a store sends it as one request and does not divide a longer one.
    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed>;

    /// Frees the name if this holder has it. With `keep_for` the name stays taken for that long, and cannot be renewed;
    /// a longer time than [`MAX_KEEP`] counts as that. An evicted holder keeps nothing, so its name is free at once.
    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>>;

    /// Removes a client from the queue of this name and passes on an offer that was kept for it. It is idempotent.
    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Opens a subscription to hints that names were freed. Returns `None` if this store cannot give hints: waiting
    /// clients then only check again after some time.
    ///
    /// # Errors
    /// The errors of the store's other calls.
    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>>;

    /// Returns the holder of this name, by one direct read.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # use leasehold::{Client, Name, store::memory::Memory};
    /// # let limit = std::time::Duration::from_secs(5);
    /// # let client = Client::builder().store(Memory::new()).label("report 7").build().await?;
    /// let lease = client.acquire("nightly").await?;
    /// let held = client.store().inspect(lease.name(), limit).await?.expect("it is held");
    /// assert_eq!(held.info.label.as_deref(), Some("report 7"));
    /// # Ok(())
    /// # }
    /// ```
    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>>;

    /// Lists the holders of all names with this prefix, in name order. May read the whole store, and fails as a whole
    /// if a part of it cannot be read: on a cluster, while no node serves the slot of one of the names, or one of them
    /// loads its data.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # use leasehold::{Client, store::memory::Memory};
    /// # let limit = std::time::Duration::from_secs(5);
    /// # let client = Client::builder().store(Memory::new()).build().await?;
    /// # let leases = client.acquire_all(["report/a", "report/b", "other"]).await?;
    /// for held in client.store().list("report/", limit).await? {
    ///     println!("{held}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>>;

    /// Evicts the holder of this name, for an operator. Returns whether the name was held.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # use leasehold::{Client, Name, store::memory::Memory};
    /// # let limit = std::time::Duration::from_secs(5);
    /// # let client = Client::builder().store(Memory::new()).build().await?;
    /// use leasehold::store::Eviction;
    ///
    /// # let lease = client.acquire("nightly").await?;
    /// let name = Name::new("nightly")?;
    /// let was_held = client.store().evict(&name, Eviction::Marked, limit).await?;
    /// assert!(was_held); // the holder is told at its next renewal
    /// # Ok(())
    /// # }
    /// ```
    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// Returns the faults of this store's set-up that weaken the promises. The store does not know the ttl of its
    /// users' leases: [`Hazard::concerns`] says whether a fault weakens those of a given ttl.
    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>>;

    /// Returns the servers of the store, and whether each takes part in grants.
    ///
    /// # Errors
    /// The errors of the store's other calls. A server that does not answer is not an error but [`MemberState::Down`].
    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>>;

    /// Opens the same store on a connection of its own, made on the calling runtime, so that nothing that blocks the
    /// user's connections can delay a renewal or a departure from the queue.
    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>>;

    /// Closes the connections. Later calls fail with `Closed`.
    fn close(&self) -> BoxFuture<'_, ()>;
}
