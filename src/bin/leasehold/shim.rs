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

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

use crate::exit::Exit;

/// The hidden first argument.
pub const ARGUMENT: &str = "__shim";

/// Becomes the command, or prints why it cannot. The arguments are the guardian's pid and the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Exit {
    let guardian = arguments
        .next()
        .and_then(|pid| pid.to_str()?.parse().ok())
        .and_then(Pid::from_raw);
    let Some(program) = arguments.next() else {
        return Exit::Internal;
    };
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() || getppid() != guardian {
        return Exit::Internal;
    }
    // Until the guardian has announced this process to the tool and put it in the foreground.
    if kill_process(getpid(), Signal::STOP).is_err() {
        return Exit::Internal;
    }
    let error = Command::new(&program).args(arguments).exec();
    // Standard error belongs to the command, so its reader sees why there is no output. The message may be lost; the
    // exit code is not.
    let program = program.display();
    let _ = writeln!(io::stderr(), "leasehold: cannot run {program}: {error}");
    match error.kind() {
        ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    }
}
