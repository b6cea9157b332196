//! The job, as the guardian manages it: everything below this process, started, signalled, reaped and ended.
//!
//! The guardian is a subreaper and starts the command as its only child. So every process below it belongs to the job,
//! whatever its group or session. A process whose parent has ended becomes its child, and once it has no child, nothing
//! is left of the job.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
    waitpid,
};

use crate::channel::{Begin, End};
use crate::process::{self, Process};
use crate::shim;
use crate::status_file;
use crate::timeline::Scope;
use crate::tree;

/// A running job.
#[derive(Debug)]
pub struct Job {
    leader: Pid,
    /// The session of the job at its start, which is the guardian's.
    session: i32,
    is_leader_reaped: bool,
    has_children: bool,
    /// The living processes that were sent TERM.
    asked: HashSet<Pid>,
}

/// A change of the command's process.
#[derive(Debug)]
pub enum Ended {
    /// The command itself.
    Leader(End),
    /// The command was stopped, not ended, by this signal.
    Suspended(i32),
}

impl Job {
    /// Makes the command's process, the leader of a group of its own. It does not run before it receives CONT.
    pub fn start(command: Vec<OsString>, begin: &Begin, stdin: OwnedFd) -> io::Result<Self> {
        let guardian = getpid();
        set_child_subreaper(Some(guardian))?;
        let child = Command::new(process::OWN_PROGRAM)
            .arg0("leasehold")
            .arg(shim::ARGUMENT)
            .arg(guardian.as_raw_pid().to_string())
            .args(command)
            .envs(begin.environment.iter().map(|(name, value)| (name, value)))
            .env(status_file::VARIABLE, &begin.status_file)
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
            session: Process::own().map_or(0, |own| own.session),
            is_leader_reaped: false,
            has_children: true,
            asked: HashSet::new(),
        })
    }

    /// Returns the command's process, whose number is that of its group.
    pub const fn leader(&self) -> Pid {
        self.leader
    }

    /// Passes a signal on to the command's group.
    pub fn signal(&mut self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            if signal == Signal::TERM {
                self.asked.extend(self.group());
            }
            self.send(signal);
        }
    }

    /// Asks the job to end: the command's group, and each orphan outside of it. A process whose parent lives is left to
    /// that parent, which was asked: `timeout`, `sudo` and a run within the job pass TERM on. A process that was sent
    /// TERM before, by a signal that was passed on, is not sent another one. CONT follows, so that stopped processes
    /// receive TERM too.
    pub fn term(&mut self, scope: Scope) {
        if self.asked.is_empty() {
            self.asked.extend(self.group());
            self.send(Signal::TERM);
        } else {
            for pid in self.group() {
                self.ask(pid);
            }
        }
        self.send(Signal::CONT);
        self.term_orphans(scope);
    }

    /// Asks each orphan to end that was not asked before. No signal tells of a process that became one, so this is to
    /// be repeated.
    pub fn term_orphans(&mut self, scope: Scope) {
        for pid in tree::children(getpid()) {
            if !self.is_in_group(pid) && self.is_within(scope, pid) {
                self.ask(pid);
            }
        }
    }

    /// Kills what is in this scope, once: what is forked meanwhile needs another pass.
    pub fn kill(&self, scope: Scope) {
        // In one step for most jobs: the kernel repeats a fork that was under way.
        self.send(Signal::KILL);
        match scope {
            Scope::All => tree::kill(getpid(), &[]),
            Scope::Session => tree::walk(getpid(), |pid| {
                if self.is_within(scope, pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
                true
            }),
        }
    }

    /// Reaps children that ended, and returns the next change of the command itself.
    pub fn reap(&mut self) -> Option<Ended> {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some(changed)) => changed,
                Ok(None) => return None,
                Err(error) => {
                    self.has_children = error != Errno::CHILD;
                    return None;
                }
            };
            let stopping = status.stopping_signal();
            if stopping.is_none() {
                self.asked.remove(&pid);
            }
            if pid != self.leader {
                continue;
            }
            if let Some(signal) = stopping {
                return Some(Ended::Suspended(signal));
            }
            self.is_leader_reaped = true;
            return Some(Ended::Leader(end_of(status)));
        }
    }

    /// Returns whether nothing of the job is left in this scope. To be asked after [`reap`](Self::reap): a child that
    /// has ended since then counts, because it may have started another one before.
    pub fn is_over(&self, scope: Scope) -> bool {
        let is_left = |pid: &Pid| self.is_within(scope, *pid);
        self.is_leader_reaped
            && (!self.has_children
                || scope == Scope::Session
                    && !tree::children(getpid()).iter().any(is_left)
                    && self.living(scope).is_empty())
    }

    /// Returns the living processes of the job in this scope.
    pub fn living(&self, scope: Scope) -> Vec<Pid> {
        let mut living = tree::living(getpid());
        living.retain(|pid| self.is_within(scope, *pid));
        living
    }

    /// Returns whether a process below this one is in this scope. One whose session is hidden is.
    fn is_within(&self, scope: Scope, pid: Pid) -> bool {
        let is_elsewhere = |process: Process| process.session != self.session;
        scope == Scope::All || !Process::read(pid.as_raw_pid()).is_some_and(is_elsewhere)
    }

    /// Returns the processes of the command's group.
    fn group(&self) -> Vec<Pid> {
        let mut group = tree::living(getpid());
        group.retain(|pid| self.is_in_group(*pid));
        group
    }

    fn is_in_group(&self, pid: Pid) -> bool {
        let process = Process::read(pid.as_raw_pid());
        process.is_some_and(|process| process.group == self.leader.as_raw_pid())
    }

    /// Sends a process TERM, unless it was sent one before.
    fn ask(&mut self, pid: Pid) {
        if self.asked.insert(pid) {
            let _ = kill_process(pid, Signal::TERM);
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Sends the command's group a signal. Once the command was reaped the number may be used again, if no process of
    /// the group is left.
    fn send(&self, signal: Signal) {
        if !self.is_leader_reaped || !self.group().is_empty() {
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
