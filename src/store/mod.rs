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
//!    whatever the floor of this attempt. So a repeated request is idempotent, and each reply counts from when its own
//!    attempt was sent.
//! 4. `renew` extends a lease only if both its holder and its token are those of the renewal, and never creates one.
//!    One bad lease does not affect the others of its batch.
//! 5. `release` frees a name only if this holder has it, and its answer says whether that was so: `Released` means
//!    that no other holder was granted the name between this holder's grant and the release. It is idempotent. If
//!    all attempts of a claim were answered, it was granted at most once, so the answer is about that grant's token.
//! 6. Every lease expires by itself, at most one ttl after the store last heard of it; where the store does not end
//!    leases itself, for a client that never saw it at most its [`grace`](spi::Facts::grace) later.
//! 7. Where the store keeps a queue, clients take turns in the order of joining, and no claim overtakes a live place. A
//!    waiting claim keeps its client's place for a [term](spi::Queued::term). The request that frees a name grants it
//!    in the same step to the claim at the first live place, for the rest of that term, under a new token. A store that
//!    detects dead clients at once may keep places for [longer](spi::Place::kept_for); it then grants for the longest
//!    term at most, and the notice has the [end](spi::Handover::ends_at). The answer to a waiting claim has the
//!    [height](spi::Place::height); the notice of a grant names the claim and a token above that height. A notice
//!    extends nothing. A release takes its holder's claim out of its place, which is passed over until another caller
//!    of the client claims. While a store keeps out, a release grants nothing, and the first client finds the name
//!    free. In ZooKeeper sessions keep the queue: there the first client finds a freed name kept for it. A flush, a
//!    failover or a step of the server's clock can disturb the order, and nothing else. A store without a queue ignores
//!    these fields of a claim.
//! 8. If a request was answered before an `inspect` of the same client is sent, the `inspect` shows its effect. Of two
//!    clients that each claim a name and then inspect the other's, at least one sees the other: permits and shared
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

#[cfg(feature = "bucket")]
pub mod bucket;
mod contract;
#[cfg(feature = "etcd")]
pub mod etcd;
mod kinds;
#[cfg_attr(
    not(all(
        feature = "postgres",
        feature = "quorum",
        feature = "sqlite",
        feature = "zookeeper"
    )),
    expect(
        clippy::allow_attributes,
        reason = "what is unused depends on the stores"
    ),
    allow(dead_code, unused_imports, reason = "each store uses a part of it")
)]
mod kit;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "quorum")]
pub mod quorum;
pub mod record;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

#[cfg(feature = "conformance")]
pub use self::contract::conformance;
#[cfg(not(feature = "internals"))]
pub(crate) use self::contract::spi::*;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use self::contract::spi::*;
pub(crate) use self::contract::{Bounded, gives_up_after};
pub use self::contract::{
    Eviction, Hazard, Held, HeldState, Info, MAX_KEEP, Member, MemberState, Severity, Store, spi,
};
pub use self::kinds::{init, init_script, open, replace, replace_script, shared_url};
pub use self::kit::tables::TableSettings;
#[cfg(feature = "_tls")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "postgres", feature = "redis"))))]
pub use self::kit::tls::Tls;
pub use crate::kinds::{StoreKind, kinds, shown};
