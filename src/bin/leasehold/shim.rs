//! The last step before the command: the job's process sets what only it can set for itself, and becomes the command.
//!
//! It then stops itself, so that the command begins only when the tool knows which group it would have to kill.
//!
//! If the guardian is killed, the kernel kills the command too. That holds for this one process only, and only if its
//! parent was alive when it was set, so it is set here, in the process itself, and the parent is checked afterwards.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::SigSet;
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

use crate::exit::Exit;

/// The hidden first argument.
pub const ARGUMENT: &str = "__shim";

/// Returns the argument that tells the shim which signals the command has to find blocked: those that were blocked for
/// the tool, because the guardian itself blocks all.
pub fn mask_argument(blocked: &SigSet) -> String {
    let numbers = blocked.iter().map(|signal| (signal as i32).to_string());
    numbers.collect::<Vec<_>>().join(",")
}

/// Becomes the command, or prints why it cannot. The arguments are the guardian's pid, the mask and the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Exit {
    let guardian = arguments
        .next()
        .and_then(|pid| pid.to_str()?.parse().ok())
        .and_then(Pid::from_raw);
    let (Some(mask), Some(program)) = (arguments.next(), arguments.next()) else {
        return Exit::Internal;
    };
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() || getppid() != guardian {
        return Exit::Internal;
    }
    if mask_of(&mask.to_string_lossy()).thread_set_mask().is_err() {
        return Exit::Internal;
    }
    // Until the guardian has told the tool of this process and put it in the foreground.
    if kill_process(getpid(), Signal::STOP).is_err() {
        return Exit::Internal;
    }
    let error = Command::new(&program).args(arguments).exec();
    // Standard error is the command's, so its reader sees why there is no output. It may be lost, and the code not.
    let program = program.display();
    let _ = writeln!(io::stderr(), "leasehold: cannot run {program}: {error}");
    match error.kind() {
        ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    }
}

fn mask_of(argument: &str) -> SigSet {
    let numbers = argument
        .split(',')
        .filter_map(|number| number.parse::<i32>().ok());
    numbers
        .filter_map(|number| nix::sys::signal::Signal::try_from(number).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal::{SIGHUP, SIGTERM};

    use super::*;

    #[test]
    fn a_mask_is_read_back() {
        assert_eq!(mask_of(&mask_argument(&SigSet::empty())), SigSet::empty());
        let some: SigSet = [SIGHUP, SIGTERM].into_iter().collect();
        assert_eq!(mask_of(&mask_argument(&some)), some);
    }
}
