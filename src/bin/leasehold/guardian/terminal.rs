//! Decides which group may read the terminal: the tool's own group, or the job's.
//!
//! A job has a group of its own, and a group in the background is stopped when it reads the terminal or changes its
//! settings. If both input and output are the terminal the job is put in the foreground from the start. If only the
//! input is the terminal, as in `leasehold run x -- list | less`, another process in the pipe may be reading the keys,
//! so the job gets the terminal when it first asks for it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal of this session, if it is the job's input.
#[derive(Debug)]
pub struct Terminal {
    fd: OwnedFd,
    /// The tool's group.
    owner: Pid,
    is_output_too: bool,
}

impl Terminal {
    /// Returns the terminal behind this input. `owner` is the tool's group.
    pub fn of(stdin: &impl AsFd, owner: i32) -> Option<Self> {
        if !isatty(stdin) || tcgetpgrp(stdin).is_err() {
            return None;
        }
        Some(Self {
            fd: rustix::io::fcntl_dupfd_cloexec(stdin, 3).ok()?,
            owner: Pid::from_raw(owner)?,
            is_output_too: isatty(std::io::stdout()),
        })
    }

    /// Puts a new job in the foreground, if input and output are both the terminal.
    pub fn begin(&self, job: Pid) {
        if self.is_output_too {
            self.give(job);
        }
    }

    /// Puts the job in the foreground, if the tool is there. Returns `false` if it is not, as after `bg`.
    pub fn give(&self, job: Pid) -> bool {
        // SIGTTOU is blocked in the guardian, so it may do this from the background.
        self.is_in_front(self.owner) && tcsetpgrp(&self.fd, job).is_ok()
    }

    /// Puts the tool back in the foreground, if the job is there.
    pub fn take_back(&self, job: Pid) {
        if self.is_in_front(job) {
            let _ = tcsetpgrp(&self.fd, self.owner);
        }
    }

    fn is_in_front(&self, group: Pid) -> bool {
        tcgetpgrp(&self.fd) == Ok(group)
    }
}
