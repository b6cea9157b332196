//! Stopping the tool as the terminal would: the whole of its group, and only where somebody can make it go on.

use rustix::process::{Pid, Signal, getpgid, getpgrp, getppid, getsid, kill_process_group};

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
        above = parent(pid);
    }
    false
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name stands in brackets and may have any character in it.
    let rest = stat.rsplit_once(')')?.1;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}
