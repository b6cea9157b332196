//! While the job runs: renewals to the guardian, signals to the job, the lease's state to the status file.
//!
//! The guardian ends the job; this loop only tells it what it cannot know. Should the guardian be gone, or silent when the
//! job has to be gone, the loop ends the job itself.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Instant};
use leasehold::term::Term;
use leasehold::{Lease, Reason};
use rustix::process::Signal;

use super::foreground;
use super::job::{self, Job};
use super::outcome::Outcome;
use super::plan::Plan;
use super::service::Service;
use super::signals::Signals;
use crate::channel::{Event, Instruction};
use crate::exit::{Exit, Failure};
use crate::say;
use crate::status_file::{self, State, Status, StatusFile};
use crate::timeline::Cause;

/// The pause between two attempts to kill a group that does not end.
const KILL_AGAIN: Duration = Duration::from_millis(100);

/// How long after KILL a process may take to be gone. What takes longer waits in the kernel, for a disk that hangs.
const STUCK: Duration = Duration::from_secs(2);

/// One job under its lease.
pub struct Hold<'a> {
    lease: &'a Lease,
    plan: &'a Plan,
    job: Job,
    file: &'a StatusFile,
    status: Status,
    service: &'a Service,
    feed_at: Option<Instant>,
    clock: Arc<dyn Clock>,
    /// The last confirmed one.
    term: Term,
    is_lost: bool,
    is_at_risk: bool,
    /// When to kill the group if the guardian has not.
    net_at: Instant,
    runtime_ends_at: Option<Instant>,
    /// When the job should have been gone for a while, once it is being ended.
    stuck_at: Option<Instant>,
    outcome: Outcome,
}

/// The first status of a job.
pub fn status(lease: &Lease, term: &Term, plan: &Plan) -> Result<Status, Failure> {
    let boot_id = status_file::boot_id()
        .map_err(|error| Failure::internal("cannot read the boot's identity", &error))?;
    let status = Status {
        version: 1,
        name: lease.name().to_string(),
        token: lease.token().get(),
        holder: lease.holder().to_string(),
        ttl_ms: u64::try_from(plan.timing.ttl().as_millis()).unwrap_or(u64::MAX),
        state: State::Held,
        deadline_ms: 0,
        clock: lease.clock().name().into(),
        boot_id,
        pid: std::process::id(),
    };
    Ok(status.until(term.deadline()))
}

impl<'a> Hold<'a> {
    pub fn new(
        lease: &'a Lease,
        term: Term,
        plan: &'a Plan,
        job: Job,
        (file, status): (&'a StatusFile, Status),
        service: &'a Service,
    ) -> Self {
        let clock = lease.clock().clone();
        service.ready();
        let hold = Self {
            lease,
            plan,
            job,
            file,
            status,
            service,
            feed_at: service.feed_every().map(|_| clock.now()),
            clock,
            net_at: plan.distances.kill_at(term.deadline()),
            term,
            is_lost: false,
            is_at_risk: false,
            runtime_ends_at: None,
            stuck_at: None,
            outcome: Outcome::default(),
        };
        hold.announce();
        hold
    }

    /// Until nothing is left of the job.
    pub async fn run(mut self, signals: &mut Signals) -> Result<Outcome, Failure> {
        let clock = self.clock.clone();
        let mut children = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())
            .map_err(|error| Failure::internal("cannot listen for signals", &error))?;
        loop {
            tokio::select! {
                biased;
                event = self.job.event() => if let Some(outcome) = self.heard(event).await {
                    return outcome;
                },
                term = self.lease.renewed_past(self.term.deadline()), if !self.is_lost => match term {
                    Some(term) => self.renewed(term),
                    None => self.lost(self.lease.lost().await),
                },
                signal = signals.next() => self.job.tell(&Instruction::Signal(signal.as_raw())),
                _ = children.recv() => job::reap(),
                () = clock.sleep_until(self.worry_at()), if !self.is_at_risk && !self.is_lost => self.at_risk(),
                () = clock.sleep_until(self.runtime_ends_at.unwrap_or(Instant::FAR_FUTURE)), if self.runtime_ends_at.is_some() => {
                    self.runtime_ends_at = None;
                    self.job.tell(&Instruction::Stop(Cause::MaxRuntime));
                },
                () = clock.sleep_until(self.stuck_at.unwrap_or(Instant::FAR_FUTURE)), if self.stuck_at.is_some() => self.stuck(),
                () = clock.sleep_until(self.net_at) => if let Some(outcome) = self.net().await {
                    return outcome;
                },
                // The last: however often it comes, it keeps nothing waiting.
                () = clock.sleep_until(self.feed_at.unwrap_or(Instant::FAR_FUTURE)), if self.feed_at.is_some() => self.feed(),
            }
        }
    }

    fn renewed(&mut self, term: Term) {
        self.term = term;
        self.net_at = self.plan.distances.kill_at(term.deadline());
        self.job.tell(&Instruction::Renewed {
            deadline_ns: term.deadline().as_nanos(),
        });
        if self.is_at_risk {
            self.is_at_risk = false;
            say::note(
                "renewed",
                format_args!("renewed again name={}", self.plan.name),
            );
        }
        self.show(State::Held);
    }

    /// The job would be ended soon after, so this is earlier than where the library begins to worry.
    fn worry_at(&self) -> Instant {
        self.term.sent_at().after(self.plan.timing.ttl() / 2)
    }

    fn at_risk(&mut self) {
        self.is_at_risk = true;
        let term_at = self.plan.distances.term_at(self.term.deadline());
        say::note(
            "at_risk",
            format_args!(
                "renewals fail: the job is ended in {:.1?} name={} token={}",
                term_at.since(self.clock.now()),
                self.plan.name,
                self.lease.token()
            ),
        );
        self.show(State::AtRisk);
    }

    fn lost(&mut self, reason: Reason) {
        self.is_lost = true;
        say::note(
            "lost",
            format_args!(
                "lease lost reason={reason} name={} token={}",
                self.plan.name,
                self.lease.token()
            ),
        );
        self.job.tell(&Instruction::Stop(match reason {
            Reason::Refused => Cause::Refused,
            Reason::Evicted => Cause::Evicted,
            Reason::Deadline | Reason::Late => Cause::Deadline,
            _ => Cause::LeaseEnded,
        }));
        self.show(State::Lost);
    }

    /// The watchdog goes hungry while renewals are missing.
    fn feed(&mut self) {
        if !self.is_at_risk && !self.is_lost {
            self.service.feed();
        }
        let now = self.clock.now();
        self.feed_at = self.service.feed_every().map(|every| now.after(every));
    }

    /// To the service manager, for whom the deadline moves too often to be told.
    fn announce(&self) {
        self.service.status(format!(
            "name={} token={} state={}",
            self.plan.name,
            self.lease.token(),
            self.status.state
        ));
    }

    fn show(&mut self, state: State) {
        let is_new = self.status.state != state;
        self.status.state = state;
        if is_new {
            self.announce();
        }
        self.status = self.status.clone().until(self.term.deadline());
        self.file.update(self.status.clone());
    }

    /// The guardian spoke, or is gone. An outcome ends the run.
    async fn heard(&mut self, event: Option<Event>) -> Option<Result<Outcome, Failure>> {
        let Some(event) = event else {
            return Some(self.unguarded().await);
        };
        match event {
            Event::Started { pid } => {
                self.job.started(pid);
                self.runtime_ends_at = self
                    .plan
                    .max_runtime
                    .map(|most| self.clock.now().after(most));
                say::detail("started", format_args!("started pid={pid}"));
            }
            Event::NotStarted { error } => return Some(Err(Failure::new(Exit::Internal, error))),
            Event::Stopping { cause } => self.stopping(cause),
            Event::Exited { end, cause } => {
                self.outcome.end = Some((end, cause));
                self.service.stopping();
                say::detail("ended", format_args!("the command {end}"));
            }
            Event::Suspended => self.suspend(),
            Event::Gone { strays } => return Some(Ok(self.gone(strays))),
        }
        None
    }

    /// The job was stopped from the terminal, so the tool and whatever stands in a pipe with it stop too. Nobody renews
    /// then: a job that is stopped for longer than its lease lasts is ended.
    fn suspend(&self) {
        if !foreground::suspend() {
            self.job.tell(&Instruction::Signal(Signal::CONT.as_raw()));
        }
    }

    fn stopping(&mut self, cause: Cause) {
        self.service.stopping();
        let limit = self.plan.distances.kill_after() + STUCK;
        self.stuck_at = Some(self.clock.now().after(limit));
        let message = format_args!(
            "ending the job, killed in at most {:.1?}: {} name={}",
            self.plan.distances.kill_after(),
            cause.in_words(),
            self.plan.name
        );
        match cause {
            Cause::CommandEnded => say::detail("stopping", message),
            _ => say::fault("stopping", message),
        }
    }

    /// While they are there the name stays taken, as long as renewals are confirmed; so it is said what for.
    fn stuck(&mut self) {
        self.stuck_at = None;
        say::note(
            "stuck",
            format_args!(
                "the job does not end, although it was killed pids={:?} name={}",
                self.job.living(),
                self.plan.name
            ),
        );
    }

    fn gone(&mut self, strays: Vec<i32>) -> Outcome {
        if !strays.is_empty() {
            say::note(
                "left",
                format_args!(
                    "{} processes left the job's group and run on without the lease pids={strays:?}",
                    strays.len()
                ),
            );
        }
        self.outcome.strays = strays;
        std::mem::take(&mut self.outcome)
    }

    /// The job has to be gone, and the guardian has not said that it is.
    async fn net(&mut self) -> Option<Result<Outcome, Failure>> {
        if let Some(event) = self.job.said() {
            return self.heard(Some(event)).await;
        }
        if self.outcome.end.is_none() && !self.outcome.is_netted {
            self.outcome.is_netted = true;
            self.netted();
        }
        self.job.kill();
        self.net_at = self.clock.now().after(KILL_AGAIN);
        None
    }

    /// A guardian that says it is ending the job ends it at this very moment; one that has said nothing is stopped, or
    /// hangs.
    fn netted(&self) {
        if self.stuck_at.is_none() {
            say::fault(
                "killed",
                format_args!(
                    "the guardian has not ended the job in time, so it is killed name={}",
                    self.plan.name
                ),
            );
        }
    }

    /// Without its guardian the job is not safe.
    async fn unguarded(&mut self) -> Result<Outcome, Failure> {
        if !self.job.has_started() {
            let message = "the guardian ended before the command was started";
            return Err(Failure::new(Exit::Internal, message));
        }
        say::fault(
            "failed",
            format_args!(
                "the guardian is gone, so the job is killed name={}",
                self.plan.name
            ),
        );
        while self.job.kill() {
            self.clock
                .sleep_until(self.clock.now().after(KILL_AGAIN))
                .await;
        }
        Ok(Outcome::default())
    }
}
