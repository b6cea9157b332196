//! Supervises a running job: sends renewals to the guardian and signals to the job, and announces the state of the
//! lease.
//!
//! The guardian ends the job; this loop only tells it what it cannot know. If the guardian has ended, or is silent when
//! the job must be gone, the loop ends the job itself.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Term};
use leasehold::{Lease, LossReason};
use rustix::process::{Pid, Signal};

use super::announcer::Announcer;
use super::foreground;
use super::job::{self, Job};
use super::outcome::Outcome;
use super::plan::Plan;
use super::signals::Signals;
use crate::channel::{Event, Instruction};
use crate::exit::{Exit, Failure};
use crate::progress::Reports;
use crate::say;
use crate::status_file::State;
use crate::timeline::Cause;

/// The longest time that a process may take to end after KILL. A process that takes longer waits in the kernel for
/// a disk.
const STUCK: Duration = Duration::from_secs(2);

/// The pause between two attempts to kill a group that does not end.
const KILL_AGAIN: Duration = Duration::from_millis(100);

/// One job under its lease.
pub struct Supervisor<'a> {
    lease: &'a Lease,
    plan: &'a Plan,
    job: Job,
    announcer: Announcer<'a>,
    reports: Reports,
    clock: Arc<dyn Clock>,
    /// The term of the last confirmed renewal.
    term: Term,
    /// When the tool itself kills the job, if the guardian has not ended it until then.
    kill_at: Instant,
    feed_at: Option<Instant>,
    runtime_ends_at: Option<Instant>,
    /// When the job should have been gone for a while, if it is being ended.
    stuck_at: Option<Instant>,
    outcome: Outcome,
}

impl<'a> Supervisor<'a> {
    pub fn new(
        lease: &'a Lease,
        term: Term,
        plan: &'a Plan,
        (job, reports): (Job, Reports),
        announcer: Announcer<'a>,
    ) -> Self {
        let clock = lease.clock().clone();
        Self {
            lease,
            plan,
            job,
            feed_at: Some(clock.now()),
            announcer,
            reports,
            clock,
            kill_at: plan.distances.kill_at(term.deadline()),
            term,
            runtime_ends_at: None,
            stuck_at: None,
            outcome: Outcome::default(),
        }
    }

    /// Supervises the job until no process of it is left.
    pub async fn run(mut self, signals: &mut Signals) -> Result<Outcome, Failure> {
        let clock = self.clock.clone();
        loop {
            let is_held = self.announcer.state() != State::Lost;
            tokio::select! {
                biased;
                event = self.job.event() => if let Some(outcome) = self.heard(event).await {
                    return outcome;
                },
                term = self.lease.renewed_past(self.term.deadline()), if is_held => match term {
                    Some(term) => self.renewed(term),
                    None => self.lost(self.lease.lost().await),
                },
                signal = signals.next() => match signal {
                    Signal::CHILD => job::reap(),
                    signal => self.job.tell(&Instruction::Signal(signal.as_raw())),
                },
                () = due(&*clock, self.at_risk_at()) => self.at_risk(),
                () = due(&*clock, self.runtime_ends_at) => {
                    self.runtime_ends_at = None;
                    self.job.tell(&Instruction::Stop(Cause::MaxRuntime));
                }
                () = due(&*clock, self.stuck_at) => {
                    self.stuck_at = None;
                    self.announcer.stuck(&self.job.living());
                }
                () = due(&*clock, self.feed_at) => {
                    let every = self.announcer.feed();
                    self.feed_at = every.map(|every| clock.now().after(every));
                }
                () = clock.sleep_until(self.kill_at) => if let Some(outcome) = self.kill().await {
                    return outcome;
                },
                // Last, because a job may report without end.
                () = self.reports.next() => {
                    self.lease.progress();
                    self.announcer.progressed(self.clock.now());
                },
            }
        }
    }

    /// Returns when half of the ttl has passed without a renewal: earlier than the library says that the lease is at
    /// risk, because the job is ended soon after.
    fn at_risk_at(&self) -> Option<Instant> {
        let is_well = self.announcer.state() == State::Held;
        is_well.then(|| self.term.sent_at().after(self.plan.timing.ttl() / 2))
    }

    fn at_risk(&mut self) {
        let deadline = self.term.deadline();
        let term_at = self.plan.distances.term_at(deadline);
        let left = term_at.since(self.clock.now());
        self.announcer.at_risk(left, deadline);
    }

    fn renewed(&mut self, term: Term) {
        let deadline = term.deadline();
        self.term = term;
        self.kill_at = self.plan.distances.kill_at(deadline);
        self.job.tell(&Instruction::Renewed {
            deadline_ns: deadline.as_nanos(),
        });
        self.announcer.renewed(deadline);
    }

    fn lost(&mut self, reason: LossReason) {
        self.job.tell(&Instruction::Stop(match reason {
            LossReason::Refused => Cause::Refused,
            LossReason::Evicted => Cause::Evicted,
            LossReason::Deadline => Cause::Deadline,
            LossReason::NoProgress => Cause::NoProgress,
            _ => Cause::LeaseEnded,
        }));
        self.announcer.lost(reason, self.term.deadline());
    }

    /// Handles an event of the guardian, or its end. If it returns an outcome, the run ends.
    async fn heard(&mut self, event: Option<Event>) -> Option<Result<Outcome, Failure>> {
        let Some(event) = event else {
            return Some(self.unguarded().await);
        };
        match event {
            Event::Started { pid } => {
                self.job.group = Pid::from_raw(pid);
                let now = self.clock.now();
                let most = self.plan.options.max_runtime.as_ref();
                self.runtime_ends_at = most.map(|most| now.after(most.time));
                say::detail("started", format_args!("started pid={pid}"));
            }
            Event::NotStarted { error, is_late } => {
                let exit = if is_late { Exit::Lost } else { Exit::Internal };
                return Some(Err(Failure::new(exit, error)));
            }
            Event::Stopping { cause } => {
                let kill_after = self.plan.distances.kill_after();
                self.stuck_at = Some(self.clock.now().after(kill_after + STUCK));
                self.announcer.stopping(cause, kill_after);
            }
            Event::Exited { end, cause } => {
                self.outcome.end = Some((end, cause));
                self.announcer.exited(end);
            }
            // From the terminal, so the tool is stopped, too, with everything in a pipe with it. No process renews the
            // lease then: a job that is stopped for longer than its lease lasts is ended.
            Event::Suspended => {
                if !foreground::suspend() {
                    self.job.tell(&Instruction::Signal(Signal::CONT.as_raw()));
                }
            }
            Event::Gone { strays } => {
                self.announcer.left_behind(&strays);
                self.outcome.strays = strays;
                return Some(Ok(std::mem::take(&mut self.outcome)));
            }
        }
        None
    }

    /// Kills the job if it must be gone and the guardian has not reported that it is.
    async fn kill(&mut self) -> Option<Result<Outcome, Failure>> {
        if let Some(event) = self.job.said() {
            return self.heard(Some(event)).await;
        }
        if self.outcome.end.is_none() && !self.outcome.is_killed_by_tool {
            self.outcome.is_killed_by_tool = true;
            // A guardian that reported that it is ending the job ends it at this very moment. One that did not is
            // stopped, or hangs.
            if self.stuck_at.is_none() {
                let why = "the guardian has not ended the job in time";
                self.announcer.killed("killed", why);
            }
        }
        if !self.job.kill() && self.announcer.state() == State::Lost {
            // The guardian may be stopped for ever.
            return Some(Ok(std::mem::take(&mut self.outcome)));
        }
        self.kill_at = self.clock.now().after(KILL_AGAIN);
        None
    }

    /// Ends the job because it lost its guardian, without which it is not safe.
    async fn unguarded(&mut self) -> Result<Outcome, Failure> {
        if self.job.group.is_none() {
            let message = "the guardian ended before the command was started";
            return Err(Failure::new(Exit::Internal, message));
        }
        self.announcer.killed("failed", "the guardian is gone");
        while self.job.kill() {
            let now = self.clock.now();
            self.clock.sleep_until(now.after(KILL_AGAIN)).await;
        }
        Ok(Outcome::default())
    }
}

/// Sleeps until this instant, or for ever.
async fn due(clock: &dyn Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
