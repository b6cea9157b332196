//! `leasehold progress`: a job reports that its work goes on.
//!
//! It writes a byte into a pipe next to the status file of its lease. The run reads it, restarts the limit of
//! `--progress-within`, and notes the time in the status file, where `status` and `top` of this machine find it. Other
//! machines cannot: a renewal carries nothing but time.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::store::Held;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tokio::net::unix::pipe;

use crate::check;
use crate::exit::{Exit, Failure};
use crate::process;
use crate::status_file::{self, Status};

/// Reports progress. It has no effect if the run has not read the earlier reports yet: then it counts the next one.
pub fn main() -> Result<Exit, Failure> {
    let path = of_run(&check::status_file()?);
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = File::options()
        .write(true)
        .custom_flags(nonblocking)
        .open(path);
    match opened.and_then(|mut pipe| pipe.write_all(b".")) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(Failure::new(
            Exit::Lost,
            format!("progress not reported: the run is gone: {error}"),
        )),
        _ => Ok(Exit::Success),
    }
}

/// Returns how long ago the job of this lease reported progress, if it is a job of this user on this machine.
pub fn of(held: &Held) -> Option<Duration> {
    if !process::is_this_host(&held.info.host) {
        return None;
    }
    let path = status_file::path(held.info.pid, &held.by?.to_string())?;
    Status::read(&path).ok()?.progress_age()
}

/// The reports of a job, as its run reads them.
#[derive(Debug)]
pub struct Reports {
    path: PathBuf,
    pipe: pipe::Receiver,
}

impl Reports {
    /// Makes the pipe.
    pub fn listen(status_file: &Path) -> io::Result<Self> {
        let path = of_run(status_file);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // For writing too: otherwise the pipe would be at its end whenever no job has it open.
        let pipe = pipe::OpenOptions::new()
            .read_write(true)
            .open_receiver(&path)?;
        Ok(Self { path, pipe })
    }

    /// Waits for the next report, or several. Dropping the future loses none.
    pub async fn next(&self) {
        loop {
            // Here the runtime looks for signals and timers, although a job may report without end.
            tokio::task::yield_now().await;
            let readable = self.pipe.readable().await;
            match self.pipe.try_read(&mut [0; 256]) {
                Ok(1..) => return,
                Err(error) if readable.is_ok() && error.kind() == io::ErrorKind::WouldBlock => {}
                _ => std::future::pending().await,
            }
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the pipe that belongs to this status file.
pub fn of_run(status_file: &Path) -> PathBuf {
    status_file.with_extension("progress")
}
