//! A runtime for distributed leases: exclusive use of a name for a limited time, renewed in the background while you
//! work, with a fencing token by which storage refuses a stale holder.
//!
//! ```
//! # #[cfg(not(feature = "rusqlite"))] fn main() {}
//! # #[cfg(feature = "rusqlite")]
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     use leasehold::fence::rusqlite::{Fence, rusqlite::Connection};
//!     use leasehold::{Client, store::memory::Memory};
//!
//!     // For processes of one machine: Client::open("sqlite:leases").
//!     // For many machines: Client::open("redis://host").
//!     let client = Client::builder().store(Memory::new()).build().await?;
//!     let mut database = Connection::open_in_memory()?; // what is written under the lease
//!     database.execute_batch("CREATE TABLE report (total INTEGER)")?;
//!     let fence = Fence::new("report")?;
//!     fence.create_table(&database)?; // once
//!
//!     let lease = client.acquire("nightly-report").await?; // waits while another has it
//!     let total = tokio::select! {
//!         total = async { 42 } => total, // the work
//!         reason = lease.lost() => return Err(format!("stopped: {reason}").into()),
//!     };
//!     let transaction = fence.begin(&mut database, &lease)?; // fails after a later raise
//!     transaction.execute("INSERT INTO report VALUES (?1)", [total])?;
//!     transaction.commit()?;
//!     lease.release().await;
//!     Ok(())
//! }
//! ```
//!
//! It needs the feature `rusqlite`, and `tokio` with its feature `full`.
//!
//! # What it does not guarantee
//! **A lease alone is not mutual exclusion.** A process can be paused between its last check and its write, for longer
//! than its lease lasts, and no clock inside the process can prevent that. Only storage that compares tokens is safe.
//! The guards in [`fence`] add that comparison to your storage; the transaction of the example is one.
//!
//! [The promises](manual::promises) say what is guaranteed, and under which assumptions:
//! tokens rise from grant to grant; the holder is told before the lease can be granted again; a stale write is refused
//! by a fence; and nothing is left behind.
//!
//! # I want to ...
//! | I want to ... | use |
//! |---|---|
//! | run a job that only one process may run at a time | [`Client::run`]; for a command, the tool `leasehold run` |
//! | hold a name while I work | [`Client::acquire`], then [`Lease::check`] at each step or wait for [`Lease::lost`] |
//! | try, and do something else if another holder has the name | [`Client::try_acquire`] |
//! | wait for a limited time | [`Client::acquire_within`] |
//! | let at most N run at once (a semaphore) | [`Client::permits`] |
//! | let many read, or one write | [`Client::shared`], [`Client::exclusive`] |
//! | hold several names, all or none | [`Client::acquire_all`] |
//! | acquire again what I already hold (re-entrant) | [`Client::owner`] |
//! | elect a leader | [`LeaseRequest::lead`], as in [the manual](manual::waiting#leader-election) |
//! | follow who leads | [`Client::holders`] |
//! | refuse the writes of a stale holder | a guard in [`fence`], as in [the manual](manual::fencing) |
//! | limit a hold, or the time without progress | [`LeaseRequest::max_hold`], [`LeaseRequest::progress_within`] |
//! | go on waiting while the store is down | [`LeaseRequest::on_outage`] with [`OutagePolicy::WaitOut`] |
//! | run a job at most once per interval | [`LeaseRequest::hold_at_least`] |
//! | run a job once for each time of its schedule | [`LeaseRequest::once`] |
//! | check the lease in the tasks that work under it | [`Lease::handle`] |
//! | hold a lease without async | `blocking::Client` (feature `blocking`) |
//! | see who holds a name, or evict the holder | [`Client::store`], then [`Store::inspect`], [`list`] and [`evict`] |
//! | know what happens in a fault | [the manual](manual::failure) |
//! | see which interfaces are stable | [the manual](manual::stable) |
//! | replace another lock | [the table below](#coming-from-another-lock) |
//! | implement a store, or a fence | [`store::Store`], [`fence::Bearer`], and the feature `conformance` |
//!
//! [`Store::inspect`]: store::Store::inspect
//! [`list`]: store::Store::list
//! [`evict`]: store::Store::evict
//!
//! # Features
//! | feature | what it brings |
//! |---|---|
//! | `sqlite` (default) | the embedded store: one file, several processes of one machine |
//! | `redis` | the store on a Redis or Valkey server, and the fence in Redis |
//! | `quorum` | the store on a quorum of such servers |
//! | `postgres` | the store in a Postgres database |
//! | `mysql` | the store in a table of a MySQL or MariaDB database |
//! | `bucket` | the store in a bucket of S3, or of a server like it |
//! | `zookeeper` | the store in a ZooKeeper ensemble |
//! | `etcd` | the store in an etcd cluster |
//! | `kubernetes` | the store in the `Lease` objects of a Kubernetes namespace |
//! | `rusqlite`, `tokio-postgres`, `sqlx`, `mysql_async` | the fence in a transaction of that driver |
//! | `object_store` | the fence of an object in S3, Google Cloud Storage, Azure Blob Storage or a bucket like them |
//! | `http`, `tower` | the fence as an HTTP header, and as a layer in front of a service |
//! | `blocking` | a client for programs without async |
//! | `conformance` | the contracts of a store and of a fence as tests, for those who implement one |
//!
//! The command-line tool is a package of its own, `leasehold-cli`.
//!
//! The crate runs on Linux, in a tokio runtime with its I/O and time drivers enabled. It is also compiled for
//! macOS, and has not been run there.
//!
#![doc = include_str!("coming_from.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(docsrs, doc(auto_cfg(hide(feature = "_tls"))))]
// With the feature, which CI's clippy has, the lint is as strict as everywhere.
#![cfg_attr(
    not(feature = "internals"),
    expect(unreachable_pub, reason = "the feature `internals` re-exports it")
)]

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "leasehold runs on Linux and macOS: whether a clock counts the time of a suspend differs from system to system, and \
     it has been looked at for these two only"
);

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
pub mod clock;
mod codes;
#[cfg(feature = "object_store")]
mod conditional_puts;
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
mod kinds;
mod lease;
pub mod manual;
pub mod metrics;
mod name;
#[cfg(any(feature = "http", feature = "_server"))]
mod percent;
mod reason;
pub mod store;
mod telemetry;
mod term;
mod token;
mod waiting;
mod watchdog;
mod words;

pub use client::{
    Attempt, Client, ClientBuilder, Fire, Holders, LeaseRequest, LeaseSet, OutagePolicy, Owner,
    Share,
};
pub use error::{Error, ErrorKind};
pub use future::BoxFuture;
pub use holder::{ClientId, Holder};
pub use lease::{Lease, LeaseHandle, LeaseState, ReleaseOutcome};
pub use name::Name;
pub use reason::LossReason;
pub use token::Token;
