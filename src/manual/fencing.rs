//! How storage refuses a holder that was told too late.
//!
//! The reference is the module [`fence`](crate::fence): its guarantees, and a table of what each needs. This chapter
//! introduces it.
//!
//! # What a holder shows to storage
//! A holder shows storage its [`Pass`](crate::fence::Pass): the token, the holder and the name.
//! [`Lease::pass`](crate::Lease::pass) makes one, and fails once the lease is lost. The guards call it for you when you
//! give them the lease.
//!
//! [`Lease::token`](crate::Lease::token) alone is for logs and display. The number does not say for which name it was
//! granted, and after a flush, or with two masters, two holders can have been granted the same number.
//!
//! A job under `leasehold run` reads its pass from its environment with
//! [`Pass::from_environment`](crate::fence::Pass::from_environment). A request carries it in the header `Fencing-Token`
//! (feature `http`).
//!
//! # Raise before the first read
//! A fence keeps one row for each resource: the greatest pass that it has admitted. A new holder *raises* the row to
//! its own pass before it reads anything. From then on no write of its predecessor lands, so what it reads stays true
//! until it writes itself. In a database the raise is the first statement of the transaction; the guards' `begin` does
//! that.
//!
//! ```
//! # #[cfg(not(feature = "rusqlite"))] fn main() {}
//! # #[cfg(feature = "rusqlite")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{Client, ErrorKind, fence::rusqlite::Fence, store::memory::Memory};
//! # let mut database = rusqlite::Connection::open_in_memory()?;
//! let fence = Fence::new("ledger")?;
//! fence.create_table(&database)?; // once
//! let client = Client::builder().store(Memory::new()).build().await?;
//!
//! let first = client.acquire("ledger").await?;
//! let stale = first.pass()?; // as a paused process would still have it
//! fence.begin(&mut database, &first)?.commit()?;
//! first.release().await;
//!
//! let second = client.acquire("ledger").await?;
//! fence.begin(&mut database, &second)?.commit()?;
//!
//! let refused = fence.begin(&mut database, &stale).expect_err("the fence is above it");
//! assert_eq!(refused.kind(), ErrorKind::Stale);
//! # Ok(())
//! # }
//! ```
//!
//! # Which guard
//! | the data is in | guard | feature |
//! |---|---|---|
//! | Redis or Valkey | `fence::redis` | `redis` |
//! | SQLite | `fence::rusqlite` | `rusqlite` |
//! | Postgres | `fence::tokio_postgres`, `fence::sqlx` | `tokio-postgres`, `sqlx` |
//! | a device or a service without a database | [`fence::gate`](crate::fence::gate) | none |
//! | an HTTP service | `fence::http`, `fence::tower` | `http`, `tower` |
//! | other storage that can compare and write in one step | your own: [`Bearer`](crate::fence::Bearer), [`judge`](crate::fence::judge), and `fence::conformance` as its tests | `conformance` |
//!
//! The fence and the data must be in the same storage. A row in one database does not protect a write to another.
//!
//! # What cannot be fenced
//! A mail, a payment, or a device that compares nothing cannot be fenced. Give it the resource, the token and a
//! sequence number as an idempotency key, which makes a repeated request harmless; a late request can still take
//! effect.
//!
//! # Rules
//! - Acquire all leases first. Never wait for a lease inside a database transaction: its holder may be waiting for your
//!   row, and no deadlock detector sees both.
//! - Raise several fences in the same order in every writer.
//! - A refusal has the kind [`Stale`](crate::ErrorKind::Stale). It is permanent: stop the work and never retry it.
