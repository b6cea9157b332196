//! A lease is a promise with a deadline. leasehold keeps the promise renewed while you work, tells you *before* it can
//! lapse, and hands you a number with which storage can refuse you if you were told too late.
//!
//! ```
//! use leasehold::store::memory::Memory;
//! use leasehold::{Client, Error, Lease};
//!
//! async fn report(lease: &Lease) -> Result<u64, Error> {
//!     lease.check()?; // exact, and without I/O
//!     // ... work, and hand `lease.pass()?` to storage with each write.
//!     Ok(lease.token().get())
//! }
//!
//! # fn main() -> Result<(), Error> { tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
//! let client = Client::builder().store(Memory::new()).build().await?;
//! // Waits for the lease, drops the work if the lease is lost, releases it in the end.
//! let first = client.run("nightly-report", report).await??;
//! let second = client.run("nightly-report", report).await??;
//! assert!(second > first);
//! # Ok(()) }) }
//! ```
//!
//! # Promises
//! 0. **A lease alone is not mutual exclusion.** A process can be paused between its last check and its write, a VM
//!    without any clock inside noticing. Only storage that compares the token is safe.
//! 1. **Tokens rise.** Each grant of a name carries a [`Token`] greater than every earlier grant's of that name, as long as
//!    the counter lives; where it is lost, as long as the clock that mints the next token is not behind the clock that
//!    minted the last one by more than the time between the two grants.
//! 2. **Told in time.** [`Lease::check`] never says yes at or past `sent_at + ttl - margin`, where `sent_at` was read
//!    before the last confirmed request left. The [cancellation token](Lease::cancellation_token) follows at that moment,
//!    or as soon as the process runs again: no reply is needed, and nothing of yours that blocks can delay it. So the
//!    lease is over here before the same server can grant it again, as long as that server's clock gains no more than the
//!    margin on ours within one ttl.
//! 3. **Stale writes are refused** by a [`fence`] from the moment the successor raised it, in one atomic step with the write.
//! 4. **Nothing is left behind.** Dropped futures, lost replies, panics and crashes leave no lease longer than one ttl
//!    after the store last heard of it, and no renewal without a live [`Lease`].
//!
//! # Where to begin
//! [`Client`] is the way to a [`Lease`]; [`store`] says what grants them, [`fence`] how storage checks them. Runs on Linux, in a tokio runtime with its I/O
//! and time drivers on.
//!
//! # Features
//! `redis` (default, with its fence) and `sqlite` are stores, `cli` is the command-line tool with both. `rusqlite`,
//! `tokio-postgres`, `sqlx`, `http` and `tower` are fences by the names of their drivers. `conformance` has the contracts
//! of a store and of a fence as tests.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
pub mod clock;
#[cfg(feature = "redis")]
mod driver;
mod error;
pub mod fence;
mod floors;
mod future;
mod group;
mod holder;
mod home;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod lease;
mod name;
mod reason;
#[cfg(feature = "redis")]
mod redis_codes;
pub mod store;
mod telemetry;
mod term;
mod token;
mod waiting;
mod watchdog;

pub use client::{
    Attempt, Client, ClientBuilder, LeaseRequest, OutagePolicy, Owner, Share, WaitOrder,
};
pub use error::{Error, ErrorKind};
pub use future::BoxFuture;
pub use holder::{ClientId, Holder};
pub use lease::{Lease, LeaseState, ReleaseOutcome};
pub use name::Name;
pub use reason::LossReason;
pub use token::Token;
