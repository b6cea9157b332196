//! The turns that processes take at a few names, and what they say of them for the [journal](super::journal).

use std::time::Duration;

use leasehold::{Client, OutagePolicy};

use crate::harness::subprocess::say;
use crate::harness::wait::{at, now};

const NAMES: u64 = 3;

/// Takes one of the names for a while. Says `granted NAME TOKEN`, then `held NAME TOKEN MOMENT` for each moment at which
/// the lease was certainly held, and `lost NAME TOKEN` if it was told of a loss.
pub(super) async fn take_turn(client: &Client, dice: &mut fastrand::Rng) {
    let request = client.request(format!("n{}", dice.u64(..NAMES)));
    let request = request.on_outage(OutagePolicy::WaitOut);
    let Ok(lease) = request.acquire().await else {
        return;
    };
    let what = format!("{} {}", lease.name(), lease.token());
    say(format_args!("granted {what}"));
    // Every sixth outlives a renewal.
    let longest = if dice.u32(..6) == 0 { 3_000 } else { 60 };
    let end = now().after(Duration::from_millis(dice.u64(..longest)));
    while now() < end {
        // Read before the check: if the check succeeds, the lease was held at this moment.
        let moment = now();
        if lease.check().is_err() {
            return say(format_args!("lost {what}"));
        }
        say(format_args!("held {what} {}", moment.as_nanos()));
        at(now().after(Duration::from_millis(5))).await;
    }
    if dice.u32(..4) > 0 {
        lease.release().await;
    }
}
