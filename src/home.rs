//! Whether this process is the one that made a client, or the child of a fork that inherited it.
//!
//! A child has the memory of its parent but not its threads: nobody renews there, and a lock that was held at the fork is
//! never freed. So there every operation of an inherited client is refused before it takes a lock, and drops do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that made a client. Shared by all that belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct Origin(pub(crate) Arc<AtomicU32>);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Self {
        Self(Arc::new(AtomicU32::new(std::process::id())))
    }

    /// Whether this is another process than the one that made it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.0.load(Ordering::Relaxed) != std::process::id()
    }
}
