//! Stopping the tool as the terminal would: the whole of its group, and only where somebody can make it go on.

use rustix::process::{Pid, Signal, getpgid, getpgrp, getppid, getsid, kill_process_group};

use crate::process::Process;

/// Stops our group, this process included, until somebody continues it. `false` if nobody would.
pub fn suspend() -> bool {
    can_be_resumed() && kill_process_group(getpgrp(), Signal::STOP).is_ok()
}

/// Whether a shell with job control stands above our group. Without one, nobody would ever make it go on.
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
