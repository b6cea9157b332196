//! The release at the end, and how long the tool waits for it.

use std::time::Duration;

use leasehold::clock::{Boottime, Clock, wall_clock};
use leasehold::store::HeldState;
use leasehold::{Lease, Name, ReleaseOutcome};

use super::plan::Wanted;
use super::signals::Signals;
use crate::choice::Contact;
use crate::say;

/// Time limit for the release. After that the lease expires by itself: whatever follows the job should not wait for a
/// store that does not answer. Together with the limit for an unknown claim this makes two seconds.
pub const RELEASE_LIMIT: Duration = Duration::from_millis(1_700);

/// Interval between attempts to confirm a name that is to be kept, while the store does not answer.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Releases the lease, which was held for this long. The name stays taken for the rest of `--hold-at-least`, without a
/// holder. Only a release that was carried out achieves this, so with this option the tool waits for a silent store
/// until the lease would be over or a signal arrives. Returns whether it was released.
pub async fn release(
    lease: Lease,
    wanted: &Wanted,
    held_for: Duration,
    contact: &Contact,
    signals: &mut Signals,
) -> bool {
    let ttl = wanted.timing.ttl();
    let (name, now) = (&wanted.name, Boottime.now());
    let over_at = lease
        .term()
        .map_or(now.after(ttl), |term| term.sent_at().after(ttl));
    let least = wanted.options.hold_at_least.as_ref();
    let rest = least.map_or(Duration::ZERO, |least| least.time.saturating_sub(held_for));
    let kept = (!rest.is_zero()).then(|| lease.name().clone());
    match tokio::time::timeout(RELEASE_LIMIT, lease.release()).await {
        Ok(ReleaseOutcome::Released) => {
            say::detail("released", format_args!("released name={name}"));
            return true;
        }
        Ok(ReleaseOutcome::AlreadyLost) => return false,
        Ok(ReleaseOutcome::Unknown) | Err(_) => {}
    }
    let left = over_at.since(Boottime.now());
    let Some(kept) = kept else {
        let message = format_args!(
            "the store did not answer the release: unless it still carries it out, the name stays taken until {} name={name}",
            in_wall_time(left)
        );
        say::note("release_unanswered", message);
        return false;
    };
    say::note(
        "release_unanswered",
        format_args!(
            "the store did not answer the release, without which the name is not kept: it is repeated until {} name={name}",
            in_wall_time(left)
        ),
    );
    let is_kept = tokio::select! {
        is_kept = tokio::time::timeout(left, seen_kept(contact, &kept)) => is_kept.unwrap_or(false),
        _ = signals.ending() => false,
    };
    let left = over_at.since(Boottime.now());
    match is_kept {
        true => say::note("released", format_args!("released, and kept name={name}")),
        false => say::fault(
            "not_kept",
            format_args!(
                "the name is not known to be kept: without a release that the store carries out it is free at {} name={name}",
                in_wall_time(left)
            ),
        ),
    }
    is_kept
}

/// Waits until the store says that the name is kept, or is no longer taken by a lease. Returns whether it is kept.
async fn seen_kept(contact: &Contact, name: &Name) -> bool {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        // The client repeats the release in the background.
        match contact.client.store().inspect(name, RELEASE_LIMIT).await {
            Ok(Some(held)) if held.state == HeldState::Kept => return true,
            Ok(Some(held)) if held.info.pid == std::process::id() => {}
            Ok(_) => return false,
            Err(_) => {}
        }
    }
}

fn in_wall_time(left: Duration) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(wall_clock() + left)
}
