//! The end of a lease: what happens when its guard is dropped or released, and what follows from the answer to its release.
//! Pure, like the schedule.
//!
//! The enrollment ends before the release is sent, so that no renewal follows it. If its sender gives a release up, the
//! watchdog's loop sends it again.

use std::time::Duration;

use super::schedule::{Departure, LeaseId, Loss, MustWake, Schedule};
use crate::error::Error;
use crate::store::Release;
use crate::telemetry::Count;
use crate::term::Instant;

/// The outcome of a release. With each of them this client no longer holds the lease. The enum is complete: a `match`
/// on it needs no `_` arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The name is free, or kept taken for the time that was asked for.
    Released,
    /// The lease was lost before the release.
    AlreadyLost,
    /// Unknown outcome: the store did not answer. The client retries the release in the background; at the latest the
    /// lease expires by itself.
    Unknown,
}

impl ReleaseOutcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::AlreadyLost => "already_lost",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) const fn count(self) -> Count {
        match self {
            Self::Released => Count::Released,
            Self::AlreadyLost => Count::AlreadyLost,
            Self::Unknown => Count::ReleaseUnknown,
        }
    }
}

/// A release that is to be sent, or is under way.
#[derive(Debug)]
#[must_use = "a release has to be sent and reported, or given up"]
pub struct Leaving {
    departure: Departure,
    was_held: bool,
    /// Whether the loop sends it and counts it among its releases in flight.
    is_of_the_loop: bool,
}

/// How an enrollment ended.
#[derive(Debug)]
#[must_use = "a loss in it is still to be told"]
pub struct Exit {
    /// Whether the lease was held until now.
    pub was_held: bool,
    /// A loss of which the holder was not told so far. It has to be told now, before the guard is gone.
    pub loss: Option<Loss>,
    /// Whether the loop has to be woken.
    pub must_wake: MustWake,
}

/// Ends the enrollment of a guard that was dropped, and leaves its release to the loop.
pub fn leave_to_the_loop(schedule: &mut Schedule, id: LeaseId, now: Instant) -> Exit {
    let (was_held, loss) = schedule.last_check(id, now);
    Exit {
        was_held,
        loss,
        must_wake: schedule.leave(id, now, None),
    }
}

impl Leaving {
    /// Ends the enrollment before the caller sends the release. Returns no release if there is nothing to release.
    pub fn begin(
        schedule: &mut Schedule,
        id: LeaseId,
        keep_for: Option<Duration>,
        now: Instant,
    ) -> (Option<Self>, Exit) {
        let (was_held, loss) = schedule.last_check(id, now);
        let (departure, must_wake) = match schedule.depart_too_early(id) {
            None => schedule.withdraw(id, now, keep_for),
            wrong => (wrong, MustWake(false)),
        };
        let exit = Exit {
            was_held,
            loss,
            must_wake,
        };
        let leaving = departure.map(|departure| Self {
            departure,
            was_held,
            is_of_the_loop: false,
        });
        (leaving, exit)
    }

    /// A release that the loop sends.
    pub const fn of_the_loop(departure: Departure) -> Self {
        Self {
            departure,
            was_held: true,
            is_of_the_loop: true,
        }
    }

    /// The request to send.
    pub const fn departure(&self) -> &Departure {
        &self.departure
    }

    /// Takes in the answer. Also returns whether the loop has to be woken.
    pub fn answered(
        mut self,
        schedule: &mut Schedule,
        answer: Result<Release, Error>,
        now: Instant,
    ) -> (ReleaseOutcome, MustWake) {
        schedule.withdraw_too_late(&mut self.departure, now);
        if self.is_of_the_loop {
            schedule.release_landed(self.departure.ticket.id);
        }
        let is_clear = answer.is_ok();
        let must_wake = schedule.settle_release(self.departure.ticket, is_clear, now);
        let ending = match answer {
            Err(_) => ReleaseOutcome::Unknown,
            Ok(Release::Released) if self.was_held => ReleaseOutcome::Released,
            Ok(_) => ReleaseOutcome::AlreadyLost,
        };
        (ending, must_wake)
    }

    /// Leaves the release to the loop, because it may never have been sent.
    pub fn given_up(self, schedule: &mut Schedule, now: Instant) -> MustWake {
        schedule.take_over(self.departure.ticket, now)
    }
}
