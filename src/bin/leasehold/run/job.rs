//! The job as the tool sees it: the guardian's process, and the channel to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::Lease;
use leasehold::clock::Term;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper,
    test_kill_process_group, wait,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::plan::Plan;
use super::service;
use crate::channel::{self, Begin, Event, Instruction, Received};
use crate::guardian;
use crate::process;
use crate::status_file;
use crate::store;

/// The variable with the number of the job's permit.
const PERMIT: &str = "LEASEHOLD_PERMIT";

/// A job and its guardian.
#[derive(Debug)]
pub struct Job {
    channel: AsyncFd<OwnedFd>,
    /// The job's process group, once it has started.
    pub group: Option<Pid>,
}

impl Job {
    /// Starts the guardian, and sends it what it needs to start the job.
    pub fn start(lease: &Lease, term: &Term, plan: &Plan, status_file: &Path) -> io::Result<Self> {
        // If the guardian is killed, the processes left of the job become children of the tool.
        set_child_subreaper(Some(getpid()))?;
        let (ours, theirs) = channel::pair()?;
        let mut command = Command::new(process::OWN_PROGRAM);
        command
            .arg0("leasehold")
            .arg(guardian::ARGUMENT)
            .args(&plan.options.command)
            // In a group of its own, so that no signal to the tool's group stops the guardian.
            .process_group(0)
            .stdin(Stdio::from(theirs));
        set_environment(&mut command, lease, plan, status_file);
        drop(command.spawn()?);
        drop(command);
        let begin = Instruction::Begin(Begin {
            clock: lease.clock().name().into(),
            distances: plan.distances,
            deadline_ns: term.deadline().as_nanos(),
            is_nested: std::env::var_os(status_file::VARIABLE).is_some(),
            status_file: status_file.into(),
        });
        let channel = listen(ours)?;
        // Last: nothing fails once the job may run.
        channel::send(channel.get_ref(), &begin, Some(io::stdin().as_fd()))?;
        Ok(Self {
            channel,
            group: None,
        })
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
    }

    /// Returns the living processes of the group.
    pub fn living(&self) -> Vec<i32> {
        self.group.map(process::living).unwrap_or_default()
    }

    /// Kills the group without the guardian. Returns `false` if no process of it was left.
    pub fn kill(&self) -> bool {
        self.group.is_some_and(|group| {
            let _ = kill_process_group(group, Signal::KILL);
            reap();
            test_kill_process_group(group).is_ok() && process::has_member(group)
        })
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe, for owners that could give back another descriptor; a channel cannot"
)]
fn listen(channel: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(channel, Interest::READABLE)
}

/// Reaps children that ended: the guardian, and every orphan if the tool is the first process of a container.
pub fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn event_of(received: io::Result<Option<Received<Event>>>) -> Option<Event> {
    received.ok().flatten().map(|(event, _)| event)
}

/// Sets the variables that describe the lease to the job. They are set last, so that a run within a run sees the inner
/// lease.
fn set_environment(command: &mut Command, lease: &Lease, plan: &Plan, status_file: &Path) {
    command
        .env("LEASEHOLD_NAME", lease.name().as_str())
        .env("LEASEHOLD_TOKEN", lease.token().to_string())
        .env("LEASEHOLD_HOLDER", lease.holder().to_string())
        .env(
            "LEASEHOLD_TTL_MS",
            plan.timing.ttl().as_millis().to_string(),
        )
        .env(status_file::VARIABLE, status_file)
        // A run within the run would serve its metrics at the same address, and write them to the same file.
        .env_remove("LEASEHOLD_METRICS")
        .env_remove("LEASEHOLD_METRICS_FILE")
        .env_remove(PERMIT);
    if let Some(number) = plan.options.pool.number(lease) {
        command.env(PERMIT, number.to_string());
    }
    if std::env::var(store::VARIABLE).is_ok_and(|url| store::Choice::is_secret(&url)) {
        command.env_remove(store::VARIABLE);
    }
    for variable in service::VARIABLES {
        command.env_remove(variable);
    }
}
