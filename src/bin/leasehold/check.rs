//! `leasehold check`: tells a job whether its lease is still held, without the store and without a running tool.

use std::path::Path;

use crate::exit::{Exit, Failure};
use crate::status_file::{self, Status};

/// Exits 0 if the lease is held, 79 if not, 64 outside of a job.
pub fn main() -> Result<Exit, Failure> {
    let Some(path) = std::env::var_os(status_file::VARIABLE) else {
        return Err(Failure::usage(format!(
            "not in a job: {} is not set; expected to be run by the command of `leasehold run`",
            status_file::VARIABLE
        )));
    };
    let status = Status::read(Path::new(&path)).map_err(|error| {
        Failure::new(
            Exit::Lost,
            format!("the lease is not held: cannot read its status file: {error}"),
        )
    })?;
    status.check().map_err(|why| {
        Failure::new(
            Exit::Lost,
            format!(
                "the lease is not held: {why} name={} token={}",
                status.name, status.token
            ),
        )
    })?;
    Ok(Exit::Success)
}
