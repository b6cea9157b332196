#![doc = include_str!("README.md")]

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod gate;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "mysql_async")]
pub mod mysql_async;
#[cfg(feature = "object_store")]
pub mod object_store;
mod pass;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod refusal;
#[cfg(any(
    feature = "mysql_async",
    feature = "rusqlite",
    feature = "sqlx",
    feature = "tokio-postgres"
))]
mod row;
mod rule;
#[cfg(feature = "rusqlite")]
pub mod rusqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;
#[cfg(feature = "tower")]
pub mod tower;

pub use pass::Pass;
use refusal::Shown;
pub use refusal::{Blocked, Refusal, refused};
pub use rule::{Admission, judge};

use crate::error::Error;

/// A writer that can show a pass: a lease, or a bare [`Pass`] that came from elsewhere.
pub trait Bearer: Send + Sync {
    /// Returns the pass to show to storage. A lease checks its own deadline first, without I/O, so that a holder whose
    /// time is up sends nothing to storage.
    ///
    /// # Errors
    /// `Lost` if the lease's own deadline has passed.
    fn pass(&self) -> Result<Pass, Error>;

    /// Reports to the bearer that storage refused the pass. A lease raises its client's floor for the name to [the
    /// token that storage has seen](Refusal::floor), so that the next grant is above it.
    fn refused(&self, refusal: &Refusal);

    /// Returns the group under which the bearer's client is counted in metrics, for the log of a check. A bare pass has
    /// none.
    fn group(&self) -> Option<&str> {
        None
    }
}

impl Bearer for Pass {
    fn pass(&self) -> Result<Pass, Error> {
        Ok(self.clone())
    }

    /// Has no effect: a pass knows no client.
    fn refused(&self, _: &Refusal) {}
}

/// Checks a resource. The rule is that of names, so a resource can be part of a key, a column and a line of a file.
pub(crate) fn checked_resource(resource: &str) -> Result<(), Error> {
    crate::name::check("resource", resource)
}
