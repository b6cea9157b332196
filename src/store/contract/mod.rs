//! The promises and messages of every store: the trait, whose contract is the text of [`store`](crate::store), and one
//! file for each kind of message.

pub(crate) mod bounded;
mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
mod facts;
mod hazard;
mod notice;
mod release;
mod renewal;
pub mod spi;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::bounded::{Bounded, gives_up_after};
pub use self::claim::{Held, HeldState, Info};
pub use self::facts::{Member, MemberState};
pub use self::hazard::{Hazard, Severity};
pub(crate) use self::release::kept_for;
pub use self::release::{Eviction, MAX_KEEP};
pub(crate) use self::spi::*;
use crate::clock::Clock;
use crate::error::Error;
use crate::future::BoxFuture;
use crate::holder::Holder;
use crate::name::Name;

/// A store of leases. The [module](crate::store) has the contract.
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

    /// Frees the name if this holder has it: where clients wait in the store's queue, it is granted to the first of
    /// them in the same step. A claim of this holder that waits is taken out of its client's place, which another
    /// caller of the client may take for the rest of its term. With `keep_for` the name stays taken for that long, and
    /// cannot be renewed; a longer time than [`MAX_KEEP`] counts as that. An evicted holder keeps nothing, so its name
    /// is free at once.
    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>>;

    /// Opens a subscription to notices that names were freed or granted. Returns `None` if this store cannot give them:
    /// waiting clients then only check again after some time.
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
    /// user's connections can delay a renewal or a release.
    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>>;

    /// Closes the connections. Later calls fail with `Closed`.
    fn close(&self) -> BoxFuture<'_, ()>;
}
