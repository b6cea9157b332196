#![doc = include_str!("README.md")]

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod gate;
#[cfg(feature = "http")]
pub mod http;
mod pass;
#[cfg(all(feature = "internals", feature = "conformance"))]
#[doc(hidden)]
pub mod planted;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod refusal;
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
pub use refusal::{Blocked, Refusal, refused};
pub use rule::{Admission, judge};

use crate::error::Error;

/// Who writes: whatever can show a pass. A lease can; so can a bare [`Pass`] that came from elsewhere.
pub trait Bearer: Send + Sync {
    /// The pass to show. A lease looks at its own deadline first, without I/O: so a holder that already knows that its time is
    /// up does not even ask storage.
    ///
    /// # Errors
    /// `Lost` where that time is up.
    fn pass(&self) -> Result<Pass, Error>;

    /// Told that storage refused the pass. A lease raises its client's floor for the name to
    /// [what storage has seen](Refusal::floor), so that the next grant is above it.
    fn refused(&self, refusal: &Refusal) {
        let _ = refusal;
    }
}

impl Bearer for Pass {
    fn pass(&self) -> Result<Pass, Error> {
        Ok(self.clone())
    }
}

/// What is protected. The same rule as for names: so it can be a part of a key, a column and a line of a file.
pub(crate) fn checked_resource(resource: &str) -> Result<(), Error> {
    crate::name::check("resource", resource)
}
