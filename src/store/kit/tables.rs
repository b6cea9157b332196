//! The settings of the tables of a store that keeps its leases in a database.

use std::time::Duration;

/// The settings of the tables that [`init`](crate::store::init) makes. Settings that are absent stay as they are, or
/// take their default when the tables are made for the first time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSettings {
    /// The longest ttl that the store grants (default: ten minutes). After a failover nothing is granted for this long.
    pub max_ttl: Option<Duration>,
}
