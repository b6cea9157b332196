//! Distinguishes the process that made a client from a forked child that has a copy of the client.
//!
//! A forked child has the memory of its parent but none of its threads: no thread renews there, and a lock that was
//! held at the fork is never freed. So in a forked child every operation of the client is refused before it takes a
//! lock, and drops do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that made a client. All parts of the client share it.
#[derive(Debug, Clone)]
pub(crate) struct Home(Arc<AtomicU32>);

impl Home {
    /// Returns the current process.
    pub(crate) fn here() -> Self {
        Self(Arc::new(AtomicU32::new(std::process::id())))
    }

    /// Returns whether the current process is a forked child of the one that made the client.
    pub(crate) fn is_forked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != std::process::id()
    }

    /// Makes this process look like a forked child, or again like the process that made the client: a real fork needs
    /// `unsafe`, which is forbidden in tests as well.
    #[cfg(feature = "internals")]
    pub(crate) fn pretend_forked(&self, is_forked: bool) {
        let pid = if is_forked { 0 } else { std::process::id() };
        self.0.store(pid, Ordering::Relaxed);
    }
}
