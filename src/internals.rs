//! What the project's own tests and benches must reach. Not for users: no promise of stability.

pub use crate::watchdog::claiming;
pub use crate::watchdog::leaving;
pub use crate::watchdog::schedule;
pub use crate::watchdog::signal;

use std::time::Duration;

use crate::client::Client;
use crate::term;

/// Makes this process look like a forked child to the client and all that belongs to it, or like its parent again.
pub fn pretend_forked(client: &Client, is_forked: bool) {
    client.inner.home.pretend_forked(is_forked);
}

/// The limit of one request where the caller names none.
pub fn request_limit(ttl: Duration) -> Duration {
    term::request_limit(ttl)
}
