//! Who may read the terminal: the job while it runs, the tool's own group before and after.
//!
//! A job has a group of its own, and a group in the background is stopped at its first read of the terminal. So if the tool
//! was in the foreground, the job is put there in its place.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, getpgid, getppid};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal that the job reads.
#[derive(Debug)]
pub struct Terminal {
    fd: OwnedFd,
    /// The tool's group.
    owner: Pid,
}

impl Terminal {
    /// The terminal behind this input, if it is our session's and the tool is in its foreground.
    pub fn of(stdin: &impl AsFd) -> Option<Self> {
        if !isatty(stdin) {
            return None;
        }
        let owner = getpgid(getppid()).ok()?;
        let fd = rustix::io::fcntl_dupfd_cloexec(stdin, 3).ok()?;
        let is_foreground = tcgetpgrp(&fd) == Ok(owner);
        is_foreground.then_some(Self { fd, owner })
    }

    /// Puts the job in the foreground. SIGTTOU is blocked in the guardian, so that it may do so from the background.
    pub fn give(&self, leader: Pid) {
        let _ = tcsetpgrp(&self.fd, leader);
    }

    /// Puts the tool back there. `false` if somebody else has taken the place meanwhile.
    pub fn take_back(&self) -> bool {
        tcsetpgrp(&self.fd, self.owner).is_ok()
    }

    /// Whether the tool is in the foreground, as after `fg`.
    pub fn is_tools(&self) -> bool {
        tcgetpgrp(&self.fd) == Ok(self.owner)
    }
}
