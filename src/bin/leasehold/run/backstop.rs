//! Kills the job if the guardian has not ended it in time.

use std::time::Duration;

use leasehold::clock::Instant;

use super::job::Job;

/// The pause between two attempts to kill a group that does not end.
pub const KILL_AGAIN: Duration = Duration::from_millis(100);

/// The moment at which the tool itself kills the job.
#[derive(Debug)]
pub struct Backstop {
    kill_at: Instant,
}

impl Backstop {
    /// Makes a backstop that kills at this instant, unless it is [moved](Self::move_to).
    pub const fn new(kill_at: Instant) -> Self {
        Self { kill_at }
    }

    /// Returns the instant of the next kill.
    pub const fn kill_at(&self) -> Instant {
        self.kill_at
    }

    /// Moves the kill after a confirmed renewal.
    pub const fn move_to(&mut self, kill_at: Instant) {
        self.kill_at = kill_at;
    }

    /// Kills the job's group, and plans the next kill in case the group does not end.
    pub fn kill(&mut self, job: &Job, now: Instant) {
        job.kill();
        self.kill_at = now.after(KILL_AGAIN);
    }
}
