//! `leasehold check`: tells a job whether its lease is still held, without the store and without a running tool.

use std::path::PathBuf;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::process;
use crate::row;
use crate::say::Loudness;
use crate::status_file::{self, Status, not_held, not_opened, unknown};

/// Exits 0 if the lease is held, 79 if not, 125 if that cannot be known, 64 outside of a job.
pub fn main(arguments: args::CheckOptions) -> Result<Exit, Failure> {
    let Some(name) = arguments.name else {
        held_lease()?;
        return Ok(Exit::Success);
    };
    match is_held(&name) {
        // Scripts call it whenever they begin, so the usual answer is not an error.
        Err(failure) if failure.exit == Exit::Lost => Err(Failure {
            loudness: Loudness::Verbose,
            ..failure
        }),
        answer => answer.map(|()| Exit::Success),
    }
}

/// Checks that this process belongs to a job that holds this name. The variable alone proves nothing: daemons,
/// terminals and `at` keep the environment of a job that has long ended.
fn is_held(name: &str) -> Result<(), Failure> {
    if std::env::var_os(status_file::VARIABLE).is_none() {
        return Err(not_held("this is not in a job"));
    }
    let status = held_lease()?;
    let pool = row::pool(&status.name, status.permit);
    if status.name != name && pool != Some(name) {
        return Err(not_held(format_args!("the job has {}", status.name)));
    }
    match process::is_ancestor(status.pid) {
        true => Ok(()),
        false => Err(not_held("this process is not of the job that has it")),
    }
}

/// Returns the status of the calling job's lease, if it is held.
fn held_lease() -> Result<Status, Failure> {
    let path = status_file()?;
    let status = Status::read(&path).map_err(|error| not_opened(&path, &error))?;
    match status.check() {
        Ok(()) => Ok(status),
        Err(failure) => Err(failure.about(format_args!("name={}", status.name))),
    }
}

/// Returns the status file of the calling job.
pub fn status_file() -> Result<PathBuf, Failure> {
    match std::env::var_os(status_file::VARIABLE) {
        Some(path) if path.is_empty() => Err(unknown("its run has no status file")),
        Some(path) => Ok(path.into()),
        None => Err(Failure::usage(format!(
            "not in a job: {} is not set; expected to be run by the command of `leasehold run`",
            status_file::VARIABLE
        ))),
    }
}
