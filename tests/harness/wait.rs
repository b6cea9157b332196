//! Waits with a limit for the event that a test expects.

use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant};
use leasehold::store::{Notice, Notices};
use leasehold::{Lease, LossReason};

use super::times::PATIENCE;

/// Returns the current moment of the clock that leases on a server are measured by.
pub fn now() -> Instant {
    Boottime.now()
}

/// Returns at this moment of the same clock, and never before.
pub async fn at(moment: Instant) {
    Boottime.sleep_until(moment).await;
}

/// Returns after this time of the same clock.
pub async fn pause(time: Duration) {
    at(now().after(time)).await;
}

/// Tries every few milliseconds until there is a result, and fails with `what` if there never is one.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = now().after(PATIENCE);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(now() < end, "waited {PATIENCE:?} in vain for {what}");
        at(now().after(Duration::from_millis(5))).await;
    }
}

/// As [`until`], for a condition.
pub async fn until_so(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    until(what, async || is_so().await.then_some(())).await;
}

/// The future's outcome, which must come in time.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, future).await;
    outcome.expect("it comes in time")
}

/// The next notice, which must come in time.
pub async fn next_notice(notices: &dyn Notices) -> Notice {
    soon(notices.next()).await
}

/// Returns the loss of this lease, which must come.
pub async fn lost(lease: &Lease) -> LossReason {
    let lost = tokio::time::timeout(PATIENCE, lease.lost()).await;
    lost.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for the loss of {lease:?}"))
}
