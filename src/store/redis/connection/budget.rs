//! Decides how often a connection is given up within a caller's limit.

use std::time::Duration;

pub(in super::super) use crate::store::budget::{Budget, millis};

/// The longest pause between two replacements, for requests of long leases: a tenth of a ttl of one hour would keep
/// them from a new master for six minutes.
const REPLACE_AT_LEAST_EVERY: Duration = Duration::from_secs(3);

/// Returns how often a connection to a silent server or to a replica is replaced: once in ttl/10, however many requests
/// fail on it, and at least as often as for leases of the default ttl.
pub(in super::super) fn replace_every(ttl: Duration) -> Duration {
    (ttl / 10).min(REPLACE_AT_LEAST_EVERY)
}
