//! A runtime for distributed leases.

pub mod clock;
mod error;
pub mod fence;
mod holder;
mod name;
pub mod store;
pub mod term;
mod token;

pub use error::{Error, ErrorKind};
pub use holder::Holder;
pub use name::Name;
pub use token::Token;
