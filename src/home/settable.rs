//! A home whose process id a test can set: a real fork needs `unsafe`, which is forbidden in tests as well.

use std::sync::atomic::Ordering;

use super::Home;

impl Home {
    /// Makes this process look like a forked child, or again like the process that made the client.
    pub(crate) fn pretend_forked(&self, is_forked: bool) {
        let pid = if is_forked { 0 } else { std::process::id() };
        self.0.store(pid, Ordering::Relaxed);
    }
}
