//! The job as the tool sees it: the warden and the guardian below it, and the channels to both.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::Lease;
use leasehold::clock::Term;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::plan::Plan;
use super::service;
use crate::channel::{self, Begin, Event, Instruction, Received};
use crate::choice;
use crate::process::{self, Denied, Process};
use crate::status_file;
use crate::tree;
use crate::warden;

/// The variable with the number of the job's permit.
const PERMIT: &str = "LEASEHOLD_PERMIT";

/// A warden and a guardian, started while the tool requests the lease, which takes about as long. They wait for it, and
/// end when this is dropped.
#[derive(Debug)]
pub struct Standby {
    to_guardian: OwnedFd,
    to_warden: OwnedFd,
    warden: Pid,
    others: Vec<Pid>,
}

/// A job, its guardian, and the warden of that.
#[derive(Debug)]
pub struct Job {
    /// The channel to the guardian.
    channel: AsyncFd<OwnedFd>,
    to_warden: OwnedFd,
    /// `None` once it was reaped.
    warden: Option<Pid>,
    /// The guardian, once the job has started.
    guardian: Option<Pid>,
    /// Children from before: those of the shell that became the tool by `exec`.
    others: Vec<Pid>,
}

impl Standby {
    /// Starts the warden, which starts the guardian.
    pub fn start(command: &[OsString]) -> io::Result<Self> {
        // If the warden is killed, its descendants become children of the tool.
        set_child_subreaper(Some(getpid()))?;
        let others = tree::children(getpid());
        let (to_guardian, guardians) = channel::pair()?;
        let (to_warden, wardens) = channel::pair()?;
        channel::send(&to_warden, &Instruction::Guard, Some(guardians.as_fd()))?;
        let mut warden = Command::new(process::OWN_PROGRAM);
        warden
            .arg0(warden::NAME)
            .arg(warden::ARGUMENT)
            .args(command)
            // In its own group, so that no signal to the tool's group stops the warden.
            .process_group(0)
            .stdin(Stdio::from(wardens));
        without_own_settings(&mut warden);
        let warden = Pid::from_child(&warden.spawn()?);
        Ok(Self {
            to_guardian,
            to_warden,
            warden,
            others,
        })
    }

    /// Makes them start the job.
    pub fn begin(self, lease: &Lease, term: &Term, plan: &Plan, status: &Path) -> io::Result<Job> {
        let begin = Instruction::Begin(Begin {
            clock: lease.clock().name().into(),
            distances: plan.distances,
            deadline_ns: term.deadline().as_nanos(),
            is_nested: std::env::var_os(status_file::VARIABLE).is_some(),
            tool_group: Process::own().map_or(0, |own| own.group),
            environment: environment(lease, plan),
            status_file: status.into(),
        });
        let channel = listen(self.to_guardian)?;
        or_ended(channel::send(&self.to_warden, &begin, None))?;
        // Last: nothing fails once the job may run.
        let stdin = io::stdin();
        or_ended(channel::send(
            channel.get_ref(),
            &begin,
            Some(stdin.as_fd()),
        ))?;
        Ok(Job {
            channel,
            to_warden: self.to_warden,
            warden: Some(self.warden),
            guardian: None,
            others: self.others,
        })
    }
}

impl Job {
    /// Records that the job was started by this guardian.
    pub fn started(&mut self, guardian: i32) {
        self.guardian = Pid::from_raw(guardian);
    }

    /// Returns whether the job was started.
    pub const fn is_started(&self) -> bool {
        self.guardian.is_some()
    }

    /// Returns the guardian's next event; `None` if the guardian has ended. Dropping the future loses no event.
    pub async fn event(&self) -> Option<Event> {
        let receive = |channel: &OwnedFd| channel::receive(channel);
        event_of(self.channel.async_io(Interest::READABLE, receive).await)
    }

    /// Returns the next event that the guardian has already sent, if any.
    pub fn said(&self) -> Option<Event> {
        event_of(channel::receive(self.channel.get_ref()))
    }

    /// Sends the guardian an instruction. It has no effect if the guardian does not read: then the guardian ends the
    /// job by itself, or the tool does.
    pub fn tell(&self, instruction: &Instruction) {
        let _ = channel::send(self.channel.get_ref(), instruction, None);
        if matches!(instruction, Instruction::Renewed { .. }) {
            let _ = channel::send(&self.to_warden, instruction, None);
        }
    }

    /// Returns the living processes of the job.
    pub fn living(&self) -> Vec<Pid> {
        let root = self
            .guardian
            .filter(|guardian| process::is_alive(*guardian));
        let mut living = tree::living(root.or(self.warden).unwrap_or_else(getpid));
        living.retain(|pid| !self.others.contains(pid));
        living
    }

    /// Returns the processes of the job that this one may not signal, and so cannot end.
    pub fn denied(&self) -> Vec<Denied> {
        Denied::among(&self.living())
    }

    /// Returns the processes of the job that were stopped by a signal.
    pub fn stopped(&self) -> Vec<Pid> {
        let mut living = self.living();
        living.retain(|pid| is_stopped(*pid));
        living
    }

    /// Returns whether the guardian was stopped, so that it cannot end the job.
    pub fn is_guardian_stopped(&self) -> bool {
        self.guardian.is_some_and(is_stopped)
    }

    /// Kills the job together with its guardian, once: what is forked meanwhile needs another pass. The warden, unless
    /// it was stopped, does the same, and ends with the job.
    pub fn kill(&mut self) {
        tree::kill(self.warden.unwrap_or_else(getpid), &self.others);
        self.reap();
    }

    /// Kills a warden that was stopped: what is left of the job becomes this process's own children.
    pub fn kill_warden(&self) {
        if let Some(warden) = self.warden {
            let _ = kill_process(warden, Signal::KILL);
        }
    }

    /// Returns whether nothing of the job is left, after it was killed.
    pub fn is_gone(&self) -> bool {
        let mut children = tree::children(getpid()).into_iter();
        children.all(|child| self.others.contains(&child))
    }

    /// Reaps children that ended: the warden, and every orphan if the tool is the first process of a container.
    pub fn reap(&mut self) {
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            self.warden.take_if(|warden| *warden == pid);
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe, for owners that could give back another descriptor; a channel cannot"
)]
fn listen(channel: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(channel, Interest::READABLE)
}

/// Leaves it to the channel to show that its other side has ended, together with what it said before.
fn or_ended(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        sent => sent,
    }
}

fn is_stopped(pid: Pid) -> bool {
    Process::read(pid.as_raw_pid()).is_some_and(|process| process.is_stopped)
}

fn event_of(received: io::Result<Option<Received<Event>>>) -> Option<Event> {
    received.ok().flatten().map(|(event, _)| event)
}

/// Removes variables from the environment of a process that are meant for this run and not for its job.
fn without_own_settings(command: &mut Command) {
    command
        // A run within the run would serve its metrics at the same address, and write them to the same file.
        .env_remove("LEASEHOLD_METRICS")
        .env_remove("LEASEHOLD_METRICS_FILE")
        .env_remove(PERMIT);
    if std::env::var(choice::VARIABLE).is_ok_and(|url| choice::Choice::is_secret(&url)) {
        command.env_remove(choice::VARIABLE);
    }
    for variable in service::VARIABLES {
        command.env_remove(variable);
    }
}

/// Returns the variables that describe the lease to the job. A run within a run sees the inner lease.
fn environment(lease: &Lease, plan: &Plan) -> Vec<(String, String)> {
    let number = lease.permit().map(|number| (PERMIT, number.to_string()));
    let ttl_ms = plan.wanted.timing.ttl().as_millis().to_string();
    let variables = [
        ("LEASEHOLD_NAME", lease.name().to_string()),
        ("LEASEHOLD_TOKEN", lease.token().to_string()),
        ("LEASEHOLD_HOLDER", lease.holder().to_string()),
        ("LEASEHOLD_TTL_MS", ttl_ms),
    ];
    let variables = variables.into_iter().chain(number);
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    variables.collect()
}
