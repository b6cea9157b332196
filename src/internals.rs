//! Opens the core to the project's own tests and benches. Not for users: it may change at any time.

pub use crate::client::taking;
pub use crate::store::memory::queue::{Queue, Waiting};
pub use crate::telemetry::{RenewalStats, Survey};
pub use crate::term::{answer_limit, request_limit};
pub use crate::waiting::{registry, waiters, wake};
pub use crate::watchdog::claiming;
pub use crate::watchdog::schedule;
pub use crate::watchdog::signal;

use crate::client::Client;

/// Makes this process look like a forked child to the client and all its parts, or again like the process that made it.
pub fn pretend_forked(client: &Client, is_forked: bool) {
    client.inner.home.pretend_forked(is_forked);
}

/// Returns the scripts of a member of a quorum, `names.lua` and `node.lua`, as they are loaded.
#[cfg(feature = "quorum")]
pub fn quorum_scripts() -> [&'static str; 2] {
    crate::store::quorum::sources()
}
