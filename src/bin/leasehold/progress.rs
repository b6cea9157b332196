//! `leasehold progress`: a job reports that its work goes on.
//!
//! It writes a byte into a pipe next to the status file of its lease. The run reads it, restarts the limit of
//! `--progress-within`, and notes the time in the status file, where `status` and `top` of this machine find it. Other
//! machines cannot: a renewal carries nothing but time.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::store::Held;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use tokio::net::unix::pipe;

use crate::check;
use crate::exit::{Exit, Failure};
use crate::process;
use crate::status_file::{self, Status, not_held, not_opened};

/// Reports progress. It has no effect if the run has not read the earlier reports yet: then it counts the next one.
pub fn main() -> Result<Exit, Failure> {
    let path = status_file::pipe(&check::status_file()?);
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = File::options()
        .write(true)
        .custom_flags(nonblocking)
        .open(&path);
    match opened.and_then(|mut pipe| pipe.write_all(b".")) {
        Ok(()) => Ok(Exit::Success),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Exit::Success),
        Err(error) => Err(Failure {
            message: format!("progress not reported: {error}"),
            ..match is_without_reader(&error) {
                true => not_held("its run has ended"),
                false => not_opened(&path, &error),
            }
        }),
    }
}

/// Returns whether nothing has the other end of the pipe.
fn is_without_reader(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
}

/// Returns how long ago the job of this lease reported progress, if it is a job of this user on this machine.
pub fn of(held: &Held) -> Option<Duration> {
    if !process::is_this_host(&held.info.host) {
        return None;
    }
    let path = status_file::path(held.info.pid, &held.by?.to_string())?;
    Status::read(&path).ok()?.progress_age()
}

/// The reports of a job, as its run reads them; none without a status file.
#[derive(Debug)]
pub struct Reports(Option<Pipe>);

/// The pipe of a run.
#[derive(Debug)]
struct Pipe {
    path: PathBuf,
    receiver: pipe::Receiver,
}

impl Reports {
    /// Makes the pipe. A job that changed its user can write to it, too: a report says no more than that it is one.
    pub fn listen(status_file: &Path) -> io::Result<Self> {
        if status_file.as_os_str().is_empty() {
            return Ok(Self(None));
        }
        let path = status_file::pipe(status_file);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let pipe = Pipe {
            // For writing too: otherwise the pipe would be at its end whenever no job has it open.
            receiver: pipe::OpenOptions::new()
                .read_write(true)
                .open_receiver(&path)?,
            path,
        };
        std::fs::set_permissions(&pipe.path, Permissions::from_mode(0o622))?;
        Ok(Self(Some(pipe)))
    }

    /// Waits for the next report, or several. Dropping the future loses none.
    pub async fn next(&self) {
        let Some(Pipe { receiver, .. }) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            // Lets the runtime handle signals and timers, although a job may report without end.
            tokio::task::yield_now().await;
            let readable = receiver.readable().await;
            match receiver.try_read(&mut [0; 256]) {
                Ok(1..) => return,
                Err(error) if readable.is_ok() && error.kind() == ErrorKind::WouldBlock => {}
                _ => std::future::pending().await,
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
