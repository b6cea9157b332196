//! Kills the job where the guardian should have ended it by now and has not.

use std::time::Duration;

use leasehold::clock::Instant;

use super::job::Job;

/// The pause between two attempts to kill a group that does not end.
pub const KILL_AGAIN: Duration = Duration::from_millis(100);

/// When the tool itself kills the job.
#[derive(Debug)]
pub struct Backstop {
    kill_at: Instant,
}

impl Backstop {
    /// Kills at this instant, unless it is [moved](Self::move_to).
    pub const fn new(kill_at: Instant) -> Self {
        Self { kill_at }
    }

    /// The instant of the next kill.
    pub const fn kill_at(&self) -> Instant {
        self.kill_at
    }

    /// A renewal was confirmed, so the job has to be gone later.
    pub const fn move_to(&mut self, kill_at: Instant) {
        self.kill_at = kill_at;
    }

    /// Kills the job's group, and again after a pause for as long as the supervisor runs.
    pub fn kill(&mut self, job: &Job, now: Instant) {
        job.kill();
        self.kill_at = now.after(KILL_AGAIN);
    }
}
