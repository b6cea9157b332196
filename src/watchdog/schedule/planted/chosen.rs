//! The bug that was given to a schedule.

use super::Bug;
use crate::watchdog::schedule::Schedule;

/// What is wrong in a schedule; by default, nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted(Option<Bug>);

impl Planted {
    pub(super) fn has(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::DeadlineFromTheReply,
        Self::NoMargin,
        Self::LateReplyRevives,
        Self::UnknownAsRenewed,
        Self::UnknownAsLost,
        Self::NotHeldIsFinal,
        Self::FailedIsAnswered,
        Self::LateGrantHeld,
        Self::FallenTokenHeld,
        Self::FloorOfTheFirstAttempt,
        Self::WithdrawAfterRelease,
        Self::ReleaseAtLoss,
        Self::JitterPastTheDeadline,
        Self::OneErrorFailsItsBatch,
        Self::TurnSkipsALease,
        Self::LimitsForgotten,
        Self::HolderReusedAfterFork,
        Self::OneQueueForAllShards,
    ];
}

impl Schedule {
    /// An empty schedule in which something is wrong.
    pub fn with_planted(seed: u64, bug: Option<Bug>) -> Self {
        let mut schedule = Self::new(seed);
        schedule.planted = Planted(bug);
        schedule
    }
}
