//! Stops the tool as the terminal would: its whole group, and only if a shell can resume it.

use rustix::process::{Pid, Signal, getpgid, getpgrp, getppid, getsid, kill_process_group};

use crate::process::Process;

/// Stops our group, this process included, until the shell resumes it. Returns `false` if there is no such shell.
pub fn suspend() -> bool {
    can_be_resumed() && kill_process_group(getpgrp(), Signal::STOP).is_ok()
}

/// Returns whether a shell with job control is above our group. Without one the group would stay stopped for ever.
fn can_be_resumed() -> bool {
    let (group, session) = (getpgrp(), getsid(None));
    let mut above = getppid();
    while let Some(pid) = above {
        if getsid(Some(pid)) != session {
            return false;
        }
        if getpgid(Some(pid)) != Ok(group) {
            return true;
        }
        above = Process::read(pid.as_raw_pid()).and_then(|process| Pid::from_raw(process.parent));
    }
    false
}
