//! The facts that the probes collect for the judges. No decision is made here.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{Hazard, Member};

/// A step of a probe that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of the store's error; `None` if the store gave an answer that it must not give.
    pub kind: Option<ErrorKind>,
    pub message: String,
    /// Says whether the store only grants nothing for a while.
    pub is_kept_out: bool,
}

/// The facts that an opened store has shown.
#[derive(Debug)]
pub struct Reached {
    pub members: Result<Vec<Member>, Trouble>,
    pub hazards: Result<Vec<Hazard>, Trouble>,
    /// The longest ttl that the store grants, if it has one.
    pub max_ttl: Option<Duration>,
    /// The round trips of acquire, renew and release.
    pub trial: Result<Vec<Duration>, Trouble>,
    /// `None` if the trial failed, and there was nothing to wait for.
    pub notice: Option<NoticeOutcome>,
    /// The same for the turns.
    pub turns: Option<TurnOutcome>,
    /// `None` for a store without a clock of its own.
    pub clock: Option<ServerClock>,
}

/// The outcome of waiting for the notice of a freed name.
#[derive(Debug)]
pub enum NoticeOutcome {
    /// The store gives no notices.
    Absent,
    /// It came this long after the release was sent.
    Heard(Duration),
    /// It did not come within this time.
    Silent(Duration),
    Failed(Trouble),
}

/// The outcome of two clients that waited for a name in turn.
#[derive(Debug)]
pub enum TurnOutcome {
    /// The store keeps no queue.
    Absent,
    /// The name went to the first, then to the second.
    InOrder,
    /// The second was granted the name before the first.
    OutOfOrder,
    Failed(Trouble),
}

/// The server's clock compared with ours, as read twice.
#[derive(Debug, Clone, Copy)]
pub struct ServerClock {
    pub first: ClockReading,
    pub second: ClockReading,
}

/// One reading of the server's clock.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The time of the server's clock, since 1970.
    pub server: Duration,
    /// The time of our wall clock in the middle of the round trip, since 1970.
    pub ours: Duration,
    /// The same moment on a clock that is never stepped, from some start.
    pub steady: Duration,
    /// The duration of the round trip: the reading is wrong by half of it at most.
    pub round_trip: Duration,
}

/// The file of an embedded store.
#[derive(Debug)]
pub struct Place {
    pub path: PathBuf,
    /// The nearest existing folder; the facts are about its file system.
    pub folder: PathBuf,
    pub has_folder: bool,
    pub file_system: FileSystem,
    pub is_folder_writable: bool,
    pub is_file_writable: bool,
    pub is_open_to_others: bool,
    pub free_bytes: u64,
    pub has_boot_id: bool,
}

/// A kind of file system, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// It is in memory: tmpfs or ramfs.
    Memory,
    /// It is mounted read-only.
    ReadOnly,
    Other,
}

/// The machine as this process sees it.
#[derive(Debug, Default)]
pub struct Machine {
    /// `None` if the CPU time of this control group has no limit.
    pub throttling: Option<Throttling>,
    /// Says how late each of some short sleeps ended.
    pub lateness: Vec<Duration>,
    pub clock_source: Option<String>,
}

/// Says how often this control group used up its CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttling {
    pub periods: u64,
    pub throttled: u64,
    pub throttled_for: Duration,
}
