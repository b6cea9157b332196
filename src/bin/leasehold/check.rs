//! `leasehold check`: tells a job whether its lease is still held, without the store and without a running tool.

use std::path::PathBuf;

use crate::exit::{Exit, Failure};
use crate::status_file::{self, Status};

/// Exits 0 if the lease is held, 79 if not, 64 outside of a job.
pub fn main() -> Result<Exit, Failure> {
    let lost = |why: String| Failure::new(Exit::Lost, format!("the lease is not held: {why}"));
    let status = Status::read(&status_file()?)
        .map_err(|error| lost(format!("cannot read its status file: {error}")))?;
    let Status { name, token, .. } = &status;
    status
        .check()
        .map_err(|why| lost(format!("{why} name={name} token={token}")))?;
    Ok(Exit::Success)
}

/// Returns the status file of the job that calls this.
pub fn status_file() -> Result<PathBuf, Failure> {
    let path = std::env::var_os(status_file::VARIABLE).map(PathBuf::from);
    path.ok_or_else(|| {
        Failure::usage(format!(
            "not in a job: {} is not set; expected to be run by the command of `leasehold run`",
            status_file::VARIABLE
        ))
    })
}
