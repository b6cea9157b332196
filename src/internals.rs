//! What the project's own tests and benches must reach. Not for users: no promise of stability.

pub use crate::watchdog::schedule;
pub use crate::watchdog::signal;

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::client::Client;
use crate::term;

/// Makes this process look like the child of a fork to the client and all that belongs to it, or like its parent again. A
/// real fork needs `unsafe`, which is forbidden in tests as well.
pub fn inherit(client: &Client, is_inherited: bool) {
    let pid = if is_inherited { 0 } else { std::process::id() };
    client.inner.origin.0.store(pid, Ordering::Relaxed);
}

/// The limit of one request where the caller names none.
pub fn request_limit(ttl: Duration) -> Duration {
    term::request_limit(ttl)
}
