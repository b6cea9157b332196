//! A runtime for distributed leases.

mod client;
pub mod clock;
mod error;
mod holder;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod lease;
mod name;
pub mod store;
mod telemetry;
pub mod term;
mod token;
mod waiting;
mod watchdog;

pub use client::{Attempt, Builder, Client, Outage, Request};
pub use error::{Error, ErrorKind};
pub use holder::Holder;
pub use lease::{Ending, Lease, Reason, State};
pub use name::Name;
pub use token::Token;
