//! The file with the state of the lease, for the job and every process that it starts.
//!
//! It has the deadline on the lease's own clock and the boot to which that clock belongs, so a reader needs neither the
//! store nor a running tool. It is replaced as a whole at each change, and is removed with the job. It is written on
//! threads for what blocks, so that a disk that hangs does not delay the end of a job.
//!
//! A job may change its user, so everyone who knows its name can read it: there is nothing secret in it, and its folder
//! cannot be listed. Without a folder that can be written to, the job runs without the file: only the job's questions
//! need it, and not the lease.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant, Monotonic};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::exit::{Exit, Failure};
use crate::file;
use crate::process::{self, Denied};

/// The variable that gives the job its path; empty in a job that has none.
pub const VARIABLE: &str = "LEASEHOLD_STATUS_FILE";

/// Mode of the file, whatever the mask of this process.
const MODE: u32 = 0o644;

/// Mode of the folder: other users can reach a file in it whose name they know, and see no names.
const FOLDER_MODE: u32 = 0o711;

/// Time limit for the first write and for the removal.
const LIMIT: Duration = Duration::from_secs(5);

/// The state of the lease of a job. The file is replaced as a whole at each change, and removed when the job has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of this format.
    pub version: u32,
    /// The name of the lease, which is that of its permit with `--permits` and `--shared`.
    pub name: String,
    /// Not in the file, as is the holder: together with the name they are the pass.
    #[serde(skip)]
    pub token: u64,
    #[serde(skip)]
    pub holder: String,
    /// The ttl of the lease.
    pub ttl_ms: u64,
    pub state: State,
    /// The last moment of the lease, as far as it is confirmed, as a reading of `clock`.
    pub deadline_ms: u64,
    /// The clock of the lease: `CLOCK_BOOTTIME`, or `CLOCK_MONOTONIC` with SQLite.
    pub clock: String,
    /// The boot of the readings of `clock`, as in `/proc/sys/kernel/random/boot_id`: the clock restarts with each boot.
    pub boot_id: String,
    /// The process of the tool.
    pub pid: u32,
    /// The number of its permit, with `--permits` and `--shared`; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<u16>,
    /// When the job last reported progress, as a reading of `clock`; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
    /// Processes of the job that the tool may not signal, and so cannot end; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denied>,
    /// The runs in whose jobs this run is, the innermost first; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outer: Vec<Outer>,
}

/// A run in whose job another one is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outer {
    /// The name that it has, or that of its permit.
    pub name: String,
    /// The process of the tool.
    pub pid: u32,
    /// The number of the permit; absent if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<u16>,
}

impl Outer {
    /// Returns the runs in whose jobs this process is, as far as their files say.
    pub fn of_this_process() -> Vec<Self> {
        let path = std::env::var_os(VARIABLE).map(PathBuf::from);
        let Some(status) = path.and_then(|path| Status::read(&path).ok()) else {
            return Vec::new();
        };
        let innermost = Self {
            name: status.name,
            pid: status.pid,
            permit: status.permit,
        };
        let all = std::iter::once(innermost).chain(status.outer);
        // A variable alone is no proof: a daemon keeps the environment of a job that has long ended.
        all.filter(|run| process::is_ancestor(run.pid)).collect()
    }
}

/// The state of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// it is renewed in time, unless its deadline has passed
    Held,
    /// renewals are missing, but the lease is still held
    AtRisk,
    /// it was lost, and the job is being ended
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
        Ok(serde_json::from_str(&file::read(path)?)?)
    }

    /// Checks that the lease is held now. The failure says why it is not, or cannot be known.
    pub fn check(&self) -> Result<(), Failure> {
        if self.state == State::Lost {
            return Err(not_held("it was lost"));
        }
        let boot = boot_id().map_err(|error| unknown(format_args!("no boot: {error}")))?;
        if boot != self.boot_id {
            return Err(not_held("it belongs to another boot of this machine"));
        }
        let now_ms = self.now_ms().map_err(unknown)?;
        match now_ms.checked_sub(self.deadline_ms) {
            Some(ago) => Err(not_held(format_args!("its deadline passed {ago} ms ago"))),
            None => Ok(()),
        }
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

/// Makes the failure of a question about a lease that is not held.
pub fn not_held(why: impl fmt::Display) -> Failure {
    Failure::new(Exit::Lost, format!("the lease is not held: {why}"))
}

/// Makes the failure of a question that cannot be answered.
pub fn unknown(why: impl fmt::Display) -> Failure {
    Failure::new(Exit::Internal, format!("cannot know of the lease: {why}"))
}

/// Makes the failure of a question about a run whose file could not be opened. A file that is missing from its folder
/// was removed with its run; without the folder, as after a `chroot`, nothing is known.
pub fn not_opened(path: &Path, error: &io::Error) -> Failure {
    let is_folder_there = path.parent().is_some_and(Path::is_dir);
    match error.kind() {
        ErrorKind::NotFound if is_folder_there => not_held("its run has ended"),
        _ => unknown(format_args!("cannot open {}: {error}", path.display())),
    }
}

/// The writing side of the file.
#[derive(Debug)]
pub struct StatusFile {
    /// Empty if there is no file.
    pub path: PathBuf,
    /// The newest status. The file is removed when this is dropped.
    newest: Sender<Status>,
    writer: JoinHandle<()>,
}

impl StatusFile {
    /// Writes the file for the first time, and removes what dead runs left in its folder. Also returns why there is no
    /// file, if there is none.
    pub async fn create(status: Status) -> (Self, Option<io::Error>) {
        let writing = spawn_blocking({
            let status = status.clone();
            move || {
                let folder = own_folder(folders())?;
                sweep(&folder);
                let path = folder.join(name(status.pid, &status.holder));
                write(&path, &status)?;
                Ok::<_, io::Error>(path)
            }
        });
        let first = match timeout(LIMIT, writing).await {
            Ok(Ok(written)) => written,
            Ok(Err(died)) => Err(died.into()),
            Err(_) => Err(ErrorKind::TimedOut.into()),
        };
        let (path, why_not) = match first {
            Ok(path) => (path, None),
            Err(error) => (PathBuf::new(), Some(error)),
        };
        let (newest, changes) = watch::channel(status);
        let writer = tokio::spawn(write_on(path.clone(), changes));
        let file = Self {
            path,
            newest,
            writer,
        };
        (file, why_not)
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
    if path.as_os_str().is_empty() {
        return;
    }
    while changes.changed().await.is_ok() {
        let (path, status) = (path.clone(), changes.borrow_and_update().clone());
        // The error is ignored: the job's own check fails once the deadline in the file has passed.
        let _ = spawn_blocking(move || write(&path, &status)).await;
    }
    let _ = spawn_blocking(|| fs::remove_file(path)).await;
}

fn write(path: &Path, status: &Status) -> io::Result<()> {
    let text = serde_json::to_string(status)? + "\n";
    file::replace(path, text.as_bytes(), Some(MODE))
}

/// Returns the path of the file of this run, if it is one of this user.
pub fn path(pid: u32, holder: &str) -> Option<PathBuf> {
    let folders = folders().into_iter().filter(|folder| is_own(folder));
    let mut paths = folders.map(|folder| folder.join(name(pid, holder)));
    paths.find(|path| path.exists())
}

/// Returns why no run of this user could have a file, if so.
pub fn no_folder() -> Option<io::Error> {
    own_folder(folders()).err()
}

fn name(pid: u32, holder: &str) -> String {
    format!("{pid}-{holder}.json")
}

/// Returns the folders for the files of this user, those in memory first. Root's jobs change their user, so of root's
/// folders those come first that other users can reach.
fn folders() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let shared = user.is_root().then(|| "/run".into());
    let in_memory = [runtime, shared].into_iter().flatten();
    let mut folders: Vec<_> = in_memory.map(|parent| parent.join("leasehold")).collect();
    folders.push(std::env::temp_dir().join(format!("leasehold-{}", user.as_raw())));
    // The guardian learns the path as text.
    folders.retain(|folder| folder.is_absolute() && folder.to_str().is_some());
    if user.is_root() {
        folders.sort_by_key(|folder| !is_reached_by_all(folder));
    }
    folders
}

/// Returns whether every user can search the folders above this one.
fn is_reached_by_all(folder: &Path) -> bool {
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|it| it.mode() & 0o001 != 0);
    folder.ancestors().skip(1).all(is_open)
}

/// Returns the first of these folders that this user has or can make, and can write to; where other users have taken
/// even the last name, a new folder next to it.
fn own_folder(mut folders: Vec<PathBuf>) -> io::Result<PathBuf> {
    if let Some(last) = folders.last() {
        let mut other = last.as_os_str().to_owned();
        other.push(format!("-{:016x}", fastrand::u64(..)));
        folders.push(other.into());
    }
    let mut result = Err(ErrorKind::NotFound.into());
    for folder in folders {
        let made = fs::DirBuilder::new().mode(FOLDER_MODE).create(&folder);
        result = match made {
            Err(error) if !is_own(&folder) => Err(error),
            // Whatever the mask of this process, and where an earlier version made it for its owner only.
            _ => fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE)).map(|()| folder),
        };
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Removes the files of runs that are gone, which were killed together with their guardian and the warden: their lease
/// has ended, and their process is not there.
fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let pid = path.file_name().and_then(|name| {
            let (pid, _) = name.to_str()?.split_once('-')?;
            Pid::from_raw(pid.parse().ok()?)
        });
        // A process of another container may use the folder, too, and is not seen here.
        let is_over = |status: Status| {
            matches!(
                status.check(),
                Err(Failure {
                    exit: Exit::Lost,
                    ..
                })
            )
        };
        if pid.is_some_and(|pid| !process::is_alive(pid)) && Status::read(&path).is_ok_and(is_over)
        {
            let _ = fs::remove_file(pipe(&path));
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns whether this is a folder of this user alone: another user could otherwise replace the file in it.
fn is_own(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|metadata| {
        metadata.is_dir()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o022 == 0
    })
}

/// Returns the identity of this boot.
pub fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().into())
}

/// Returns the pipe next to a status file into which the job writes its progress.
pub fn pipe(status_file: &Path) -> PathBuf {
    status_file.with_extension("progress")
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
