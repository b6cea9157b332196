//! Announces what happens to a job and its lease: in messages, to the service manager, and in the status file.

use std::time::Duration;

use leasehold::clock::{Instant, Term};
use leasehold::{Lease, LossReason};
use rustix::process::Pid;

use super::plan::Plan;
use super::service::Service;
use crate::channel::End;
use crate::exit::Failure;
use crate::process::{Denied, numbers};
use crate::say;
use crate::span::milliseconds;
use crate::status_file::{self, State, Status, StatusFile};
use crate::timeline::Cause;

/// Returns the first status of a job.
pub fn first_status(lease: &Lease, term: &Term, plan: &Plan) -> Result<Status, Failure> {
    let boot_id = status_file::boot_id()
        .map_err(|error| Failure::internal("cannot read the boot's identity", &error))?;
    Ok(Status {
        version: 1,
        name: lease.name().to_string(),
        token: lease.token().get(),
        holder: lease.holder().to_string(),
        ttl_ms: milliseconds(plan.wanted.timing.ttl()),
        state: State::Held,
        deadline_ms: status_file::milliseconds(term.deadline()),
        clock: lease.clock().name().into(),
        boot_id,
        pid: std::process::id(),
        permit: lease.permit(),
        progress_ms: None,
        denied: Vec::new(),
        outer: plan.wanted.outer.clone(),
    })
}

/// The three ways to announce a run.
#[derive(Debug)]
pub struct Announcer<'a> {
    status: Status,
    file: &'a StatusFile,
    service: &'a Service,
}

impl<'a> Announcer<'a> {
    /// Announces that the lease is held.
    pub fn new(status: Status, file: &'a StatusFile, service: &'a Service) -> Self {
        let announcer = Self {
            status,
            file,
            service,
        };
        service.tell("READY=1");
        announcer.tell_service();
        announcer
    }

    /// Returns the state of the lease that was announced last.
    pub const fn state(&self) -> State {
        self.status.state
    }

    pub fn renewed(&mut self, deadline: Instant) {
        if self.state() == State::AtRisk {
            let name = &self.status.name;
            say::note("renewed", format_args!("renewed again name={name}"));
        }
        self.show(State::Held, deadline);
    }

    /// Announces that renewals fail and that the job is ended after `left`.
    pub fn at_risk(&mut self, left: Duration, deadline: Instant) {
        let Status { name, token, .. } = &self.status;
        let message =
            format_args!("renewals fail: the job is ended in {left:.1?} name={name} token={token}");
        say::note("at_risk", message);
        self.show(State::AtRisk, deadline);
    }

    pub fn lost(&mut self, reason: LossReason, deadline: Instant) {
        let Status { name, token, .. } = &self.status;
        let message = format_args!("lease lost reason={reason} name={name} token={token}");
        say::note("lost", message);
        self.show(State::Lost, deadline);
    }

    pub fn stopping(&self, cause: Cause, kill_after: Duration) {
        self.service.tell("STOPPING=1");
        let message = format_args!(
            "ending the job, killed in at most {kill_after:.1?}: {} name={}",
            cause.in_words(),
            self.status.name
        );
        match cause {
            Cause::CommandEnded => say::detail("stopping", message),
            _ => say::fault("stopping", message),
        }
    }

    pub fn exited(&self, end: End) {
        self.service.tell("STOPPING=1");
        say::detail("ended", format_args!("the command {end}"));
    }

    /// Announces processes that were killed and still exist. While they do, the name stays taken as long as renewals
    /// are confirmed, and this message says why.
    pub fn stuck(&self, living: &[Pid]) {
        let name = &self.status.name;
        let pids = numbers(living);
        let denied = why_not(living);
        let message = format_args!(
            "the job does not end, although it was killed{denied} pids={pids:?} name={name}"
        );
        say::note("stuck", message);
    }

    /// Announces the processes of the job that the tool may not signal, if they changed: they would outlive the lease.
    pub fn denied(&mut self, denied: Vec<Denied>) {
        if self.status.denied == denied {
            return;
        }
        if !denied.is_empty() {
            let message = format_args!(
                "this tool may not signal processes of its job, so it cannot end them in time: {}; start the tool as that user or as root, as in `sudo leasehold run ...` name={}",
                in_words(&denied),
                self.status.name
            );
            say::fault("denied", message);
        }
        self.status.denied = denied;
        self.file.update(self.status.clone());
    }

    /// Announces a job that is stopped, and so holds the name until it is resumed.
    pub fn suspended(&self, stopped: &[Pid]) {
        if !stopped.is_empty() {
            let message = format_args!(
                "the job is stopped, and holds the name until it is resumed or ended pids={:?} name={}",
                numbers(stopped),
                self.status.name
            );
            say::fault("suspended", message);
        }
    }

    pub fn left_behind(&self, strays: &[i32]) {
        if !strays.is_empty() {
            let message = format_args!(
                "{} running on without the lease, outside the session of the job pids={strays:?}",
                counted(strays.len())
            );
            say::note("left", message);
        }
    }

    /// Announces processes that were killed in vain and outlive the lease.
    pub fn left_alive(&self, left: &[i32]) {
        if !left.is_empty() {
            let pids: Vec<Pid> = left.iter().filter_map(|pid| Pid::from_raw(*pid)).collect();
            let message = format_args!(
                "{} running on without the lease: the job could not be ended{} pids={left:?} name={}",
                counted(left.len()),
                why_not(&pids),
                self.status.name
            );
            say::fault("left_alive", message);
        }
    }

    /// Announces that the tool kills the job because the guardian failed.
    pub fn killed(&self, event: &'static str, why: &str) {
        let name = &self.status.name;
        say::fault(
            event,
            format_args!("{why}, so the job is killed name={name}"),
        );
    }

    /// Notes in the status file that the job reported progress.
    pub fn progressed(&mut self, now: Instant) {
        self.status.progress_ms = Some(status_file::milliseconds(now));
        self.file.update(self.status.clone());
    }

    /// Feeds the watchdog of the service manager, but not while renewals are missing. Returns the time until the next
    /// feeding, if there is a watchdog.
    pub fn feed(&self) -> Option<Duration> {
        if self.state() == State::Held {
            self.service.tell("WATCHDOG=1");
        }
        self.service.feed_every
    }

    fn show(&mut self, state: State, deadline: Instant) {
        let is_new = self.status.state != state;
        self.status.state = state;
        if is_new {
            self.tell_service();
        }
        self.status.deadline_ms = status_file::milliseconds(deadline);
        self.file.update(self.status.clone());
    }

    /// Sends the state without the deadline, which moves too often.
    fn tell_service(&self) {
        let Status {
            name, token, state, ..
        } = &self.status;
        self.service
            .status(format_args!("name={name} token={token} state={state}"));
    }
}

/// Names the processes that may not be signalled, with their users.
fn in_words(denied: &[Denied]) -> String {
    let denied: Vec<_> = denied.iter().map(Denied::to_string).collect();
    denied.join(", ")
}

/// Returns why some of these processes cannot be ended, to be added to a sentence.
fn why_not(living: &[Pid]) -> String {
    let denied = Denied::among(living);
    match denied.is_empty() {
        true => String::new(),
        false => format!(": this tool may not signal {}", in_words(&denied)),
    }
}

/// Returns a number of processes with its verb.
fn counted(count: usize) -> String {
    match count {
        1 => "1 process is".into(),
        _ => format!("{count} processes are"),
    }
}
