//! The file in which a job, and every process that it starts, can read the state of its lease.
//!
//! It has the deadline on the lease's own clock and the boot to which that clock belongs, so a reader needs neither the
//! store nor a running tool. It is replaced as a whole at each change, is readable by its owner only, and is removed
//! with the job. A thread of its own writes it, so that a disk that hangs does not delay the end of a job.

use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant, Monotonic};
use serde::{Deserialize, Serialize};

use crate::file;
use crate::mailbox::Slot;

/// The variable that gives the job its path.
pub const VARIABLE: &str = "LEASEHOLD_STATUS_FILE";

/// The longest time that the first write and the removal may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The content of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The version of this format. A later version may add fields.
    pub version: u32,
    pub name: String,
    pub token: u64,
    pub holder: String,
    pub ttl_ms: u64,
    pub state: State,
    /// The last moment of the lease, as far as it is confirmed, on `clock`.
    pub deadline_ms: u64,
    pub clock: String,
    /// The clock starts again with each boot.
    pub boot_id: String,
    /// The process of the tool.
    pub pid: u32,
    /// When the job last reported progress, on `clock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
}

/// The state of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Held,
    /// Renewals are missing, but the lease is still held.
    AtRisk,
    Lost,
}

impl fmt::Display for State {
    /// Formats the state as the file spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::AtRisk => "at_risk",
            Self::Lost => "lost",
        })
    }
}

impl Status {
    /// Reads a status file.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Checks that the lease is held now. The error says why it is not.
    pub fn check(&self) -> Result<(), String> {
        if self.state == State::Lost {
            return Err("it was lost".into());
        }
        if boot_id().unwrap_or_default() != self.boot_id {
            return Err("it belongs to another boot of this machine".into());
        }
        let now_ms = self.now_ms()?;
        if now_ms >= self.deadline_ms {
            return Err(format!(
                "its deadline passed {} ms ago",
                now_ms - self.deadline_ms
            ));
        }
        Ok(())
    }

    /// Returns how long ago the job reported progress, if it did in this boot.
    pub fn progress_age(&self) -> Option<Duration> {
        let age = self.now_ms().ok()?.checked_sub(self.progress_ms?)?;
        Some(Duration::from_millis(age))
    }

    /// Returns the time on the clock of the lease.
    fn now_ms(&self) -> Result<u64, String> {
        let clock: &dyn Clock = match &*self.clock {
            "CLOCK_BOOTTIME" => &Boottime,
            "CLOCK_MONOTONIC" => &Monotonic,
            other => return Err(format!("its clock is unknown: {other:?}")),
        };
        Ok(clock.now().as_nanos() / 1_000_000)
    }

    /// Returns the status with another deadline, rounded down: a lease must not seem to last longer than it does.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline_ms = deadline.as_nanos() / 1_000_000;
        self
    }
}

/// The writing side of the file.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    changes: Slot<Change>,
}

#[derive(Debug)]
enum Change {
    Create(Status, SyncSender<io::Result<()>>),
    Update(Status),
    /// The sender is dropped afterwards.
    Remove(SyncSender<Infallible>),
}

impl StatusFile {
    /// Writes the file for the first time.
    pub fn create(status: Status) -> io::Result<Self> {
        let path = path(status.pid, &status.holder)?;
        let changes = Slot::start("status file", {
            let path = path.clone();
            move |change| make(&path, change)
        })?;
        let (first, written) = sync_channel(1);
        changes.put(Change::Create(status, first));
        let first = written.recv_timeout(LIMIT);
        first.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(Self { path, changes })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new status soon, unless a newer one replaces it first.
    pub fn update(&self, status: Status) {
        self.changes.put(Change::Update(status));
    }

    /// Removes the file.
    pub fn remove(self) {
        let (removing, removed) = sync_channel(0);
        self.changes.put(Change::Remove(removing));
        let _ = removed.recv_timeout(LIMIT);
    }
}

/// Carries out a change of the file.
fn make(path: &Path, change: Change) {
    match change {
        Change::Create(status, written) => {
            let _ = written.send(write(path, &status));
        }
        // The error is ignored: the job's own check fails once the deadline in the file has passed.
        Change::Update(status) => drop(write(path, &status)),
        Change::Remove(removing) => drop((fs::remove_file(path), removing)),
    }
}

/// Returns the path of the file of this run.
pub fn path(pid: u32, holder: &str) -> io::Result<PathBuf> {
    Ok(folder()?.join(format!("{pid}-{holder}.json")))
}

/// Returns a folder of this user's own, in memory if there is one.
fn folder() -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let shared = rustix::process::geteuid().is_root().then(|| "/run".into());
    let parents = [runtime, shared, Some(std::env::temp_dir())];
    let mut result = Err(io::ErrorKind::NotFound.into());
    for parent in parents.into_iter().flatten() {
        let folder = if parent == std::env::temp_dir() {
            parent.join(format!("leasehold-{}", rustix::process::geteuid().as_raw()))
        } else {
            parent.join("leasehold")
        };
        result = own_folder(&folder).map(|()| folder);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Makes the folder, or checks that it belongs to this user alone: another user could otherwise replace the file in it.
fn own_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let metadata = fs::symlink_metadata(folder)?;
    let is_ours = metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & 0o022 == 0;
    if is_ours {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

fn write(path: &Path, status: &Status) -> io::Result<()> {
    let text = serde_json::to_string(status)? + "\n";
    file::replace(path, text.as_bytes(), 0o600)
}

/// Returns the identity of this boot.
pub fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().into())
}
