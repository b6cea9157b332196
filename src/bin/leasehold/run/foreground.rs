//! Stops the tool as the terminal would: its whole group, and only if a shell can resume it.

use rustix::process::{Pid, Signal, kill_process_group};

use crate::process::Process;

/// Stops our group, this process included, until the shell resumes it. Returns `false` if there is no such shell.
pub fn suspend() -> bool {
    let group = Process::own().filter(can_be_resumed);
    let group = group.and_then(|own| Pid::from_raw(own.group));
    group.is_some_and(|group| kill_process_group(group, Signal::STOP).is_ok())
}

/// Returns whether a shell with job control is above our group. Without one the group would stay stopped for ever.
fn can_be_resumed(own: &Process) -> bool {
    let mut above = own.parent;
    while let Some(process) = Process::read(above) {
        if process.session != own.session {
            return false;
        }
        if process.group != own.group {
            return true;
        }
        above = process.parent;
    }
    false
}
