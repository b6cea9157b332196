//! The faults, what each does, and which promise it suspends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::Promise;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Fault {
    // -- to a worker or a tool
    /// SIGSTOP, wherever it stands.
    WorkerStopped,
    /// SIGSTOP between the last check of the lease and the write.
    WorkerStoppedBeforeWrite,
    /// SIGKILL; another one is started.
    WorkerKilled,
    /// It runs for 3 of 60 ms only.
    WorkerStarved,
    /// It forks with a lease in hand, and leaves its work to the child.
    WorkerForked,
    /// The threads of its runtime are blocked; the watchdog has its own.
    RuntimeBlocked,
    /// SIGSTOP of the tool, not of its guardian and its job.
    ToolStopped,
    /// SIGKILL of the tool.
    ToolKilled,
    /// A process that the job forked leaves its session, and writes after the job has ended.
    JobForkedAway,
    // -- by an operator
    /// The holder is marked as evicted.
    Evicted,
    /// The name is freed at once.
    EvictedNow,
    // -- to the storage behind the fence
    StorageRestarted,
    // -- to the server of the store
    /// SIGSTOP.
    ServerStopped,
    /// SIGKILL, and back with all that it acknowledged.
    ServerKilled,
    /// Shut down in order, and back.
    ServerRestarted,
    /// SIGKILL, and back without data.
    RestartedEmpty,
    /// SIGKILL, and back with the data of a while ago.
    RestartedOld,
    /// Everything is deleted.
    Flushed,
    /// No more memory or disk.
    Full,
    /// The wall clock goes forward by some seconds, and back again afterwards; on ZooKeeper only with a fault of its own.
    ClockAhead,
    /// The wall clock goes back by some seconds, and forward again afterwards; likewise.
    ClockBehind,
    /// Everything is deleted while the wall clock is behind: the assumption of the promise that tokens rise is broken.
    FlushedBehind,
    ScriptsFlushed,
    /// Something long keeps the server, the table or the file busy.
    Busy,
    // -- to the network between them
    /// All connections end.
    Cut,
    /// Nothing passes, and neither side is told.
    BlackHole,
    /// Each request is late by a time of its own, so that connections overtake one another.
    Delayed,
    /// Requests do not arrive; replies to earlier ones do.
    HalfOpen,
    /// Requests arrive; replies do not.
    OneWay,
    // -- to a group of servers
    FailoverOrdered,
    FailoverByDeath,
    /// The primary stands still until another one is made, and wakes.
    OldPrimaryWakes,
    SlotMoved,
    /// A primary is added, serves the slot of a name for a while, and is removed.
    NodeAdded,
    /// One of three servers is stopped.
    MinorityStopped,
    /// Two of three servers are stopped.
    MajorityStopped,
    /// Nothing passes to or from one of three servers.
    MinorityCutOff,
    /// Nothing passes to or from two of three servers.
    MajorityCutOff,
}

impl Fault {
    /// How far a clock is stepped: further than any ttl of a campaign.
    pub(crate) const STEP: Duration = Duration::from_secs(5);

    /// All of them.
    pub(crate) const ALL: [Self; 38] = [
        Self::WorkerStopped,
        Self::WorkerStoppedBeforeWrite,
        Self::WorkerKilled,
        Self::WorkerStarved,
        Self::WorkerForked,
        Self::RuntimeBlocked,
        Self::ToolStopped,
        Self::ToolKilled,
        Self::JobForkedAway,
        Self::Evicted,
        Self::EvictedNow,
        Self::StorageRestarted,
        Self::ServerStopped,
        Self::ServerKilled,
        Self::ServerRestarted,
        Self::RestartedEmpty,
        Self::RestartedOld,
        Self::Flushed,
        Self::Full,
        Self::ClockAhead,
        Self::ClockBehind,
        Self::FlushedBehind,
        Self::ScriptsFlushed,
        Self::Busy,
        Self::Cut,
        Self::BlackHole,
        Self::Delayed,
        Self::HalfOpen,
        Self::OneWay,
        Self::FailoverOrdered,
        Self::FailoverByDeath,
        Self::OldPrimaryWakes,
        Self::SlotMoved,
        Self::NodeAdded,
        Self::MinorityStopped,
        Self::MajorityStopped,
        Self::MinorityCutOff,
        Self::MajorityCutOff,
    ];

    /// Whether every ground can have it, because it is not one of the store.
    pub(crate) const fn is_everywhere(self) -> bool {
        (self as u8) <= (Self::StorageRestarted as u8)
    }

    /// The promises that the README does not make in it.
    pub(crate) fn suspends(self) -> Vec<Promise> {
        match self {
            // The store forgets or frees a lease that its holder has: the holder hears at its next renewal.
            Self::EvictedNow
            | Self::RestartedEmpty
            | Self::RestartedOld
            | Self::Flushed
            | Self::FailoverOrdered
            | Self::FailoverByDeath
            | Self::OldPrimaryWakes => vec![Promise::Exclusion],
            // If the store has lost its mark, then or just before, its clock is behind the one that minted the last tokens.
            Self::FlushedBehind | Self::ClockAhead | Self::ClockBehind => {
                vec![Promise::Exclusion, Promise::Tokens]
            }
            _ => Vec::new(),
        }
    }

    /// How much longer than itself its effect on the promises lasts: a clock that was ahead has minted tokens from the future.
    pub(crate) fn echo(self) -> Duration {
        match self {
            Self::ClockAhead => 2 * Self::STEP,
            _ => Duration::ZERO,
        }
    }

    /// By how much it moves a wall clock.
    pub(crate) const fn step_ms(self) -> i64 {
        let step = Self::STEP.as_millis() as i64;
        match self {
            Self::ClockAhead => step,
            _ => -step,
        }
    }

    /// Its name in the table of results.
    pub(crate) fn title(self) -> String {
        let mut title = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !title.is_empty() {
                title.push(' ');
            }
            title.extend(letter.to_lowercase());
        }
        title
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_in_the_list_once() {
        let mut all = Fault::ALL.to_vec();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), Fault::ALL.len());
        assert_eq!(all.last().map(|last| *last as usize), Some(all.len() - 1));
        assert_eq!(
            Fault::WorkerStoppedBeforeWrite.title(),
            "worker stopped before write"
        );
    }
}
