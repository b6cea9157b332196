//! How clients wait for a name, in which order, and how to elect a leader.
//!
//! # How a wait ends
//! [`Client::acquire`](crate::Client::acquire) subscribes to the store's notices and tries again when the name is freed,
//! when the holder's remaining ttl is over, and every few seconds in between, because a notice can be lost. So a
//! waiting client costs the store almost nothing, and takes over a released name one round trip after the notice. After
//! a crash of the holder it waits for the rest of the holder's ttl.
//!
//! [`acquire_within`](crate::Client::acquire_within) fails with [`TimedOut`](crate::ErrorKind::TimedOut) at its limit, and
//! its source says who had the name. [`try_acquire`](crate::Client::try_acquire) does not wait: that another holder has
//! the name is a value, [`Attempt::Held`](crate::Attempt::Held), and not an error.
//!
//! A wait fails with the store's error when the store is unavailable. With
//! [`OutagePolicy::WaitOut`](crate::OutagePolicy::WaitOut) it keeps trying.
//!
//! All of these can be dropped at any await: what the store granted meanwhile is released in the background.
//!
//! # In which order
//! Within one client, tasks that wait for one name are served first come, first served. Between clients
//! [`WaitOrder::Any`](crate::WaitOrder::Any) lets the first one that asks have a freed name: it is the cheapest, and a
//! client can be unlucky for long. With [`WaitOrder::Fair`](crate::WaitOrder::Fair) the store keeps a queue, and
//! clients take turns in the order in which they joined it; a client that died in the queue costs two seconds at its
//! turn.
//!
//! # Several names
//! [`acquire_all`](crate::Client::acquire_all) takes all names or none, and waits for them in byte order, so two callers
//! that use it never wait for each other. Code that acquires a name and calls code that acquires the same one uses an
//! [`Owner`](crate::Client::owner): it is re-entrant, counts locally, and keeps one token.
//!
//! # Leader election
//! A leader is the holder of an agreed name. Each candidate waits for the name, leads while it holds it, and becomes
//! a candidate again when it loses it:
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, Error, ErrorKind, Lease, store::memory::Memory};
//!
//! async fn lead(lease: &Lease) -> Result<(), Error> {
//!     // ... until the service is stopped, with `lease.pass()?` in each write
//!     lease.check()
//! }
//!
//! let client = Client::builder().store(Memory::new()).build().await?;
//! loop {
//!     match client.run("scheduler/leader", lead).await {
//!         Ok(ended) => break ended?,
//!         Err(error) if error.kind() == ErrorKind::Lost => {} // `lead` was dropped: be a candidate again
//!         Err(error) if error.is_transient() => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
//!         Err(error) => return Err(error),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A leader that was paused may still believe that it leads when the next one has begun, as with every kind of election.
//! Its writes must go through a [fence](super::fencing).
