//! The job's process group: started, signalled, reaped, counted.
//!
//! The guardian is a subreaper, so every process that the job leaves behind becomes its child and is reaped by it. A
//! process that left the group (`setsid`, a shell with job control) is not signalled: it left on purpose, so it is only
//! reported.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper,
    test_kill_process_group, wait, waitpid,
};

use crate::channel::End;
use crate::process::{self, Process};
use crate::shim;

/// Says how many of the processes that left the group are named.
const MAX_STRAYS: usize = 100;

/// A running job.
#[derive(Debug)]
pub struct Group {
    leader: Pid,
    is_leader_reaped: bool,
    is_killed: Cell<bool>,
}

/// A change of the command's process.
#[derive(Debug)]
pub enum Ended {
    /// The command itself.
    Leader(End),
    /// The command was stopped, not ended, by this signal.
    Suspended(i32),
}

impl Group {
    /// Makes the command's process, the leader of a group of its own. It does not run before it receives CONT.
    pub fn start(command: Vec<OsString>, stdin: OwnedFd) -> io::Result<Self> {
        let guardian = getpid();
        set_child_subreaper(Some(guardian))?;
        let child = Command::new(process::OWN_PROGRAM)
            .arg0("leasehold")
            .arg(shim::ARGUMENT)
            .arg(guardian.as_raw_pid().to_string())
            .args(command)
            .stdin(Stdio::from(stdin))
            .process_group(0)
            .spawn()?;
        let leader = Pid::from_child(&child);
        let stopped = waitpid(Some(leader), WaitOptions::UNTRACED)?;
        if !stopped.is_some_and(|(_, status)| status.stopped()) {
            return Err(io::Error::other("the process ended at once"));
        }
        Ok(Self {
            leader,
            is_leader_reaped: false,
            is_killed: Cell::new(false),
        })
    }

    /// Returns the command's process, whose number is the group's.
    pub const fn leader(&self) -> Pid {
        self.leader
    }

    /// Sends the group a signal.
    pub fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            self.send(signal);
        }
    }

    /// Asks the group to end. CONT follows, so that stopped processes receive TERM too.
    pub fn term(&self) {
        self.send(Signal::TERM);
        self.send(Signal::CONT);
    }

    /// Kills the group.
    pub fn kill(&self) {
        self.send(Signal::KILL);
        self.is_killed.set(true);
    }

    /// Reaps children that ended, and returns the next change of the command itself.
    pub fn reap(&mut self) -> Option<Ended> {
        loop {
            let (pid, status) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED).ok()??;
            if pid != self.leader {
                continue;
            }
            if let Some(signal) = status.stopping_signal() {
                return Some(Ended::Suspended(signal));
            }
            self.is_leader_reaped = true;
            return Some(Ended::Leader(end_of(status)));
        }
    }

    /// Returns whether no process of the group is left.
    pub fn is_empty(&self) -> bool {
        if !self.is_leader_reaped {
            return false;
        }
        let is_gone = test_kill_process_group(self.leader) == Err(Errno::SRCH);
        // A dead process whose parent left the group and does not reap it would count for as long as that parent lives.
        is_gone || self.is_killed.get() && !process::has_member(self.leader)
    }

    /// Returns the living children that are left once the group is empty: those that left the group.
    pub fn strays(&self) -> Vec<i32> {
        let pid = getpid().as_raw_pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace();
        pids.filter_map(|pid| pid.parse().ok())
            .filter(|pid| Process::read(*pid).is_some_and(|process| process.is_alive))
            .take(MAX_STRAYS)
            .collect()
    }

    /// Sends a signal. Has no effect on a group that has ended, which may happen at any moment.
    fn send(&self, signal: Signal) {
        if !self.is_empty() {
            let _ = kill_process_group(self.leader, signal);
        }
    }
}

fn end_of(status: rustix::process::WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(number)) => End::Signal(number),
        (None, None) => End::Code(u8::MAX),
    }
}
