//! The authority that grants leases, and the contract that every one of them keeps.
//!
//! [`memory`] is the reference to read, `sqlite` the embedded default, `redis` what people scale to. A store is passive:
//! it has no timers and renews nothing; the watchdog above it does. `store::conformance` (feature `conformance`) holds
//! this contract as tests, for the authors of other stores.
//!
//! # Guarantees
//! 1. At most one holder has a name at any moment of the store's own clock.
//! 2. A new grant's token is above that of every grant of the name that was told before this claim was sent, and above
//!    the floor of the attempt that brought it.
//! 3. Asked again by its holder, `acquire` **sets the full ttl again** and answers the token kept in the lease,
//!    whatever the floor of this attempt. So a repeated request is idempotent, and each reply belongs to the moment at
//!    which its own attempt was sent.
//! 4. `renew` compares and extends, it never creates. One bad lease does not spoil its batch.
//! 5. `release` frees only what this holder holds. It is idempotent.
//! 6. Whatever is granted runs out by itself, at most one ttl after the store last heard of it.
//! 7. Waiting is fair: the clients in the queue of a name take turns in the order in which they joined, and no client
//!    overtakes a live one. A client is live if it claimed within its [patience](Queued::PATIENCE) and takes up an
//!    [offer](Queued::OFFER) in time. A flush,
//!    a failover or a step of the server's clock can cost the order, and nothing else. A store without a queue
//!    ignores a claim's place in it.
//! 8. Every call returns within about its `limit`, whatever the server and the network do. The client gives up at 1.5
//!    times the `limit`, and after 30 s where a call brings none, and treats the outcome as unknown, as after a lost
//!    reply. A call that panics fails with `Misconfigured`.
//!
//! # Assumptions
//! Where the store's highest token is lost or behind (flush, eviction, empty restart, a replica that missed it), the
//! clock that mints the next token is not behind the clock that minted the last one by more than the time between the
//! two grants.
//!
//! # Errors
//! The kind of an error tells the caller what to do; it does not tell whether the request was carried out. For `acquire`
//! that is told by [`Sent`], in doubt by [`Sent::Perhaps`]: then the claim is *doubtful*, whatever the kind. An answer
//! that cannot be read, a protocol error and a permission that is missing in the middle of a script are doubtful too.
//! For the other calls the outcome is unknown after every error. A name that another holder has is a value, not an
//! error.
//!
//! # Cancel safety
//! A future that is dropped may or may not have been carried out, as with a lost reply. Retry it or release the name.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(not(all(feature = "postgres", feature = "redis", feature = "sqlite")))]
mod absent;
mod bounded;
mod claim;
mod facts;
mod hazard;
pub(crate) mod limit;
mod notice;
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

pub(crate) use self::bounded::Bounded;
pub use self::claim::{Answer, Ask, Claim, Failed, Grant, Held, HeldState, Info, Queued, Sent};
pub use self::facts::{Facts, Lane, Member, MemberState};
pub use self::hazard::{Hazard, Severity};
pub use self::notice::{Notice, Notices, Topic};
pub use self::url::{init, init_sql, open};

/// The most renewals in one batch. 256 keep a Redis server busy for 0.2 to 0.5 ms, and a SQLite file for some
/// milliseconds; 1,000 would block a Redis server for 1 to 1.7 ms.
pub const MAX_BATCH: usize = 256;

/// A store of leases. The [module](self) says what it promises.
///
/// No method is defaulted: a wrapper that forgets one must not compile. Wrappers also deny
/// `clippy::missing_trait_methods`.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What a client has to know of this store before it asks. Always the same while the store is open.
    fn facts(&self) -> Facts;

    /// The clock by which leases of this store are measured: it runs whenever a rival's can.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Where the leases are kept, for people; without secrets.
    fn location(&self) -> String;

    /// The part of the store that keeps this name. Leases of one shard are renewed together, and a shard that does not
    /// answer delays no other. A store on one server answers 0 for every name. The answer may change while the store is
    /// open: the watchdog asks when a lease is enrolled and again after each batch.
    fn shard(&self, name: &Name) -> u32;

    /// Grants the name to the claim's holder, or returns who has it. This is one attempt of a claim; each attempt of it
    /// carries an [`Ask`] of its own.
    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>>;

    /// Extends each lease to its full ttl from now, if its holder still has it. Returns one outcome for each renewal, in
    /// the order of the batch, whatever happens. A batch is of one [shard](Self::shard), as far as the caller was told,
    /// and has at most [`MAX_BATCH`] renewals: a store sends it as one request and does not divide a longer one.
    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed>;

    /// Frees the name if this holder has it. With `keep_for` the name stays taken for that long and cannot be renewed;
    /// an evicted holder keeps nothing, so its name is free at once.
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

    /// Opens a subscription to hints that names were freed, if this store can give hints.
    ///
    /// # Errors
    /// As the store's other calls. `None` is the answer of a store whose waiters look again by time only.
    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>>;

    /// Returns who has this name, by one direct read.
    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>>;

    /// Lists the holders of all names with this prefix, in name order. May read the whole store.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>>;

    /// Takes the name from its holder by order of an operator. Returns whether the name was held.
    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// Returns what in this store's set-up weakens the promises.
    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>>;

    /// Returns the servers that the store consists of and whether each takes part.
    ///
    /// # Errors
    /// As the store's other calls, but a server that gives no answer is a [`MemberState::Down`].
    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>>;

    /// Opens the same store on a connection of its own, made on the calling runtime, so that nothing that blocks the
    /// user's connections can delay a renewal or a departure from the queue.
    fn on_own_connection(&self, lane: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>>;

    /// Closes the connections. Later calls fail with `Closed`.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// One lease to extend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// What is held.
    pub name: Name,
    /// By whom.
    pub holder: Holder,
    /// For how long from now.
    pub ttl: Duration,
}

impl Renewal {
    /// Extends this holder's lease to `ttl` from now.
    pub const fn new(name: Name, holder: Holder, ttl: Duration) -> Self {
        Self { name, holder, ttl }
    }
}

/// The reply to a batch of renewals.
#[derive(Debug)]
#[non_exhaustive]
pub struct Renewed {
    /// One for each renewal of the batch, in its order.
    pub outcomes: Vec<Outcome>,
    /// The server's own clock when it answered, since 1970: what tells a step of that clock from the passing of time.
    pub server_time: Option<Duration>,
}

impl Renewed {
    /// A reply without a server's time.
    pub const fn new(outcomes: Vec<Outcome>) -> Self {
        Self {
            outcomes,
            server_time: None,
        }
    }
}

/// The outcome of one renewal.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Extended.
    Renewed,
    /// The holder no longer has the name. Final.
    Refused,
    /// An operator evicted the holder. Final.
    Evicted,
    /// Unknown outcome. Retry until the deadline.
    Unknown(Error),
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// This holder had the name and gave it up.
    Released,
    /// This holder does not hold it. Final only if none of its claims is unanswered.
    NotHeld,
}

/// How an operator takes a name from its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Eviction {
    /// The holder hears it at its next renewal; the name stays taken for the rest of its ttl, so that no two overlap.
    Marked,
    /// The name is free at once. The holder may work on until its next renewal; only a fence protects.
    Now,
}
