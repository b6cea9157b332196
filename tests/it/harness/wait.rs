//! Waiting for what a test expects, with an end.

use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant};
use leasehold::{Lease, LossReason};

/// Long enough for a busy machine; a test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Now, by the clock that leases on a server are measured by.
pub(crate) fn now() -> Instant {
    Boottime.now()
}

/// Returns at this moment of the same clock, and never before.
pub(crate) async fn at(moment: Instant) {
    Boottime.sleep_until(moment).await;
}

/// Looks again every few milliseconds until there is something, and fails with `what` if there never is.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = now().after(PATIENCE);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(now() < end, "waited {PATIENCE:?} in vain for {what}");
        at(now().after(Duration::from_millis(5))).await;
    }
}

/// The loss of this lease, which is to come.
pub(crate) async fn lost(lease: &Lease) -> LossReason {
    let lost = tokio::time::timeout(PATIENCE, lease.lost()).await;
    lost.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for the loss of {lease:?}"))
}
