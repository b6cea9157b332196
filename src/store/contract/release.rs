//! The ends of a lease before its time: released by its holder, or evicted by an operator.

use std::time::Duration;

/// Maximum time that a release keeps its name taken.
pub const MAX_KEEP: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Returns how long a release that asks for this time keeps its name.
pub(crate) fn kept_for(asked: Option<Duration>) -> Option<Duration> {
    asked.map(|time| time.min(MAX_KEEP))
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// This holder had the name, and the name was released.
    Released,
    /// This holder does not have the name. This is final only if no attempt of its claim is unanswered.
    NotHeld,
}

/// How an operator takes a name from its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Eviction {
    /// The holder hears at its next renewal. The name stays taken for the rest of the ttl, so that no two holders
    /// overlap; on a quorum for its longest ttl, unless the holder releases it.
    Marked,
    /// The name is free at once. The holder may continue its work until its next renewal, and only a fence protects.
    Now,
}
