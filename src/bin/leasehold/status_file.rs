//! The file in which a job, and every process that it starts, can read the state of its lease.
//!
//! It has the deadline on the lease's own clock and the boot to which that clock belongs, so a reader needs neither the
//! store nor a running tool. It is replaced as a whole at each change, is readable by its owner only, and is removed
//! with the job. It is written on threads for what blocks, so that a disk that hangs does not delay the end of a job.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant, Monotonic};
use serde::{Deserialize, Serialize};
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::file;
use crate::process::Denied;

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
    /// Processes of the job that the tool may not signal, and so cannot end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denied>,
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
        self.serialize(f)
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
        Ok(milliseconds(clock.now()))
    }
}

/// Returns an instant as the file has it, rounded down: a lease must not seem to last longer than it does.
pub fn milliseconds(at: Instant) -> u64 {
    at.as_nanos() / 1_000_000
}

/// The writing side of the file.
#[derive(Debug)]
pub struct StatusFile {
    pub path: PathBuf,
    /// The newest status. The file is removed when this is dropped.
    newest: Sender<Status>,
    writer: JoinHandle<()>,
}

impl StatusFile {
    /// Writes the file for the first time.
    pub async fn create(status: Status) -> io::Result<Self> {
        let path = own_folder(folders())?.join(name(status.pid, &status.holder));
        let first = timeout(LIMIT, write(path.clone(), status.clone())).await;
        first.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let (newest, changes) = watch::channel(status);
        let writer = tokio::spawn(write_on(path.clone(), changes));
        Ok(Self {
            path,
            newest,
            writer,
        })
    }

    /// Writes a new status soon, unless a newer one replaces it first.
    pub fn update(&self, status: Status) {
        self.newest.send_replace(status);
    }

    /// Removes the file.
    pub async fn remove(self) {
        drop(self.newest);
        let _ = timeout(LIMIT, self.writer).await;
    }
}

/// Writes each change, and removes the file at the end.
async fn write_on(path: PathBuf, mut changes: Receiver<Status>) {
    while changes.changed().await.is_ok() {
        let status = changes.borrow_and_update().clone();
        // The error is ignored: the job's own check fails once the deadline in the file has passed.
        let _ = write(path.clone(), status).await;
    }
    let _ = spawn_blocking(|| fs::remove_file(path)).await;
}

/// Returns the path of the file of this run, if this user has a folder for it.
pub fn path(pid: u32, holder: &str) -> Option<PathBuf> {
    let folder = folders().into_iter().find(|folder| is_own(folder))?;
    Some(folder.join(name(pid, holder)))
}

fn name(pid: u32, holder: &str) -> String {
    format!("{pid}-{holder}.json")
}

/// Returns the folders for the files of this user, those in memory first.
fn folders() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let shared = user.is_root().then(|| "/run".into());
    let in_memory = [runtime, shared].into_iter().flatten();
    let mut folders: Vec<_> = in_memory.map(|parent| parent.join("leasehold")).collect();
    folders.push(std::env::temp_dir().join(format!("leasehold-{}", user.as_raw())));
    folders
}

/// Returns the first of these folders that this user has or can make; where other users have taken even the last name,
/// a new folder next to it.
fn own_folder(mut folders: Vec<PathBuf>) -> io::Result<PathBuf> {
    if let Some(last) = folders.last() {
        let mut other = last.as_os_str().to_owned();
        other.push(format!("-{:016x}", fastrand::u64(..)));
        folders.push(other.into());
    }
    let mut result = Err(io::ErrorKind::NotFound.into());
    for folder in folders {
        result = match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if !is_own(&folder) => Err(error),
            _ => return Ok(folder),
        };
    }
    result
}

/// Returns whether this is a folder of this user alone: another user could otherwise replace the file in it.
fn is_own(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|metadata| {
        metadata.is_dir()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o022 == 0
    })
}

async fn write(path: PathBuf, status: Status) -> io::Result<()> {
    let text = serde_json::to_string(&status)? + "\n";
    spawn_blocking(move || file::replace(&path, text.as_bytes(), Some(0o600))).await?
}

/// Returns the identity of this boot.
pub fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_another_user_has_taken_the_folder_a_new_one_is_made() {
        let parent = tempfile::tempdir().expect("a folder");
        let taken = parent.path().join("leasehold-7");
        // Of another user, or a link of theirs, or no folder: neither is ours alone.
        fs::write(&taken, "").expect("written");
        let own = own_folder(vec![parent.path().join("no/parent"), taken.clone()]);
        let own = own.expect("made");
        assert!(own != taken && is_own(&own), "{own:?}");
        assert_eq!(own_folder(vec![own.clone()]).expect("there"), own);
    }
}
