//! The longest ttl that the server grants, as it last reported it.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Boottime, Clock, Instant};

/// How long this value counts. An operator may raise it (`leasehold init --max-ttl`), and a client that refuses longer
/// ones by itself does not ask the server any more.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// The longest ttl, if it is known; nothing before the server has reported it.
#[derive(Debug, Default)]
pub(super) struct MaxTtl(Mutex<Option<(Duration, Instant)>>);

impl MaxTtl {
    pub(super) fn learn(&self, max_ttl: Duration) {
        *self.0.lock() = Some((max_ttl, Boottime.now()));
    }

    pub(super) fn known(&self) -> Option<Duration> {
        let told = *self.0.lock();
        let counts = |at| Boottime.now().since(at) < COUNTS_FOR;
        told.and_then(|(max_ttl, at)| counts(at).then_some(max_ttl))
    }
}
