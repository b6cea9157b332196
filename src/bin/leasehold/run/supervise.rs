//! Supervises a running job: sends renewals to the guardian and signals to the job, and announces the state of the
//! lease.
//!
//! The guardian ends the job; this loop only passes on what the guardian cannot know. If the guardian was killed, or is
//! silent when the job must be gone, the loop ends the job itself.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Term, Timing};
use leasehold::{Lease, LossReason};
use rustix::process::Signal;

use super::announcer::Announcer;
use super::foreground;
use super::job::Job;
use super::outcome::Outcome;
use super::plan::Plan;
use super::signals::Signals;
use crate::channel::{Event, Instruction};
use crate::exit::{Exit, Failure};
use crate::process::numbers;
use crate::progress::Reports;
use crate::say;
use crate::status_file::State;
use crate::timeline::Cause;
use crate::tree;

/// Maximum time for a process to end after KILL. One that takes longer waits in the kernel for a disk, or may not be
/// signalled.
const STUCK: Duration = Duration::from_secs(2);

/// Delay before a new job is searched for processes that may not be signalled: a job that gives up its user does so
/// when it begins. It is searched again at each renewal.
const FIRST_CHECK: Duration = Duration::from_secs(1);

/// Time for a warden to end a job whose guardian was killed. A warden that takes longer was stopped.
const WARDEN_LIMIT: Duration = Duration::from_secs(1);

/// Interval between checks of a guardian that has not ended the job in time.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

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
    rescue_at: Instant,
    /// Whether the guardian has said that it is ending the job.
    is_stopping: bool,
    /// When to search the job for processes that may not be signalled.
    check_at: Option<Instant>,
    /// When a job that was stopped is reported.
    suspended_at: Option<Instant>,
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
        job: Job,
        reports: Reports,
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
            rescue_at: plan.distances.rescue_at(term.deadline()),
            is_stopping: false,
            check_at: None,
            suspended_at: None,
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
                    Signal::CHILD => self.job.reap(),
                    signal => self.pass_on(signal),
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
                () = due(&*clock, self.check_at) => {
                    self.check_at = None;
                    self.check();
                }
                () = due(&*clock, self.suspended_at) => {
                    self.suspended_at = None;
                    self.announcer.suspended(&self.job.stopped());
                }
                () = due(&*clock, self.feed_at) => {
                    let every = self.announcer.feed();
                    self.feed_at = every.map(|every| clock.now().after(every));
                }
                () = clock.sleep_until(self.rescue_at) => if let Some(outcome) = self.rescue().await {
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

    /// Returns when a missing renewal is late: earlier than the library says that the lease is at
    /// risk, because the job is ended soon after.
    fn at_risk_at(&self) -> Option<Instant> {
        let is_well = self.announcer.state() == State::Held;
        is_well.then(|| {
            self.term
                .sent_at()
                .after(Timing::LATE_AFTER.of(self.plan.wanted.timing.ttl()))
        })
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
        self.rescue_at = self.plan.distances.rescue_at(deadline);
        self.job.tell(&Instruction::Renewed {
            deadline_ns: deadline.as_nanos(),
        });
        self.announcer.renewed(deadline);
        self.check();
    }

    /// Announces the processes of the job that may not be signalled, and so cannot be ended.
    fn check(&mut self) {
        self.announcer.denied(self.job.denied());
    }

    /// Passes a signal on to the job.
    fn pass_on(&mut self, signal: Signal) {
        self.check();
        self.job.tell(&Instruction::Signal(signal.as_raw()));
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
            Event::Started { pid, guardian } => {
                self.job.started(guardian);
                let now = self.clock.now();
                let most = self.plan.options.max_runtime.as_ref();
                self.runtime_ends_at = most.map(|most| now.after(most.time));
                self.check_at = Some(now.after(FIRST_CHECK));
                say::detail("started", format_args!("started pid={pid}"));
            }
            Event::NotStarted { error, is_late } => {
                let exit = if is_late { Exit::Lost } else { Exit::Internal };
                return Some(Err(Failure::new(exit, error)));
            }
            Event::Stopping { cause } => {
                let kill_after = self.plan.distances.kill_after();
                self.is_stopping = true;
                self.stuck_at = Some(self.clock.now().after(kill_after + STUCK));
                self.announcer.stopping(cause, kill_after);
            }
            Event::Exited { end, cause } => {
                self.outcome.end = Some((end, cause));
                self.announcer.exited(end);
            }
            // From the terminal, so the tool is stopped, too, with everything in a pipe with it. No process renews the
            // lease then: a job that is stopped for longer than its lease lasts is ended.
            Event::Suspended { has_terminal: true } => {
                if !foreground::suspend() {
                    self.job.tell(&Instruction::Signal(Signal::CONT.as_raw()));
                }
            }
            Event::Suspended {
                has_terminal: false,
            } => {
                let ttl = self.plan.wanted.timing.ttl();
                self.suspended_at = Some(self.clock.now().after(ttl));
            }
            Event::Gone { strays, left } => {
                self.announcer.left_behind(&strays);
                self.announcer.left_alive(&left);
                self.outcome.strays = strays;
                self.outcome.left = left;
                return Some(Ok(std::mem::take(&mut self.outcome)));
            }
        }
        None
    }

    /// Ends the job if it must be gone and the guardian has not ended it.
    async fn rescue(&mut self) -> Option<Result<Outcome, Failure>> {
        if let Some(event) = self.job.said() {
            return self.heard(Some(event)).await;
        }
        // A guardian that announced the end of the job is ending it at this moment, unless it was stopped since.
        if self.is_stopping && !self.job.is_guardian_stopped() {
            self.rescue_at = self.clock.now().after(LOOK_AGAIN);
            return None;
        }
        Some(self.unguarded().await)
    }

    /// Ends the job because no guardian is left to do so; a job without a guardian is not safe.
    async fn unguarded(&mut self) -> Result<Outcome, Failure> {
        let is_late = self.clock.now() >= self.rescue_at;
        if is_late {
            let why = "the guardian has not ended the job in time";
            self.announcer.killed("killed", why);
        } else if self.job.is_started() {
            self.announcer.killed("failed", "the guardian is gone");
        }
        let left = self.end_job().await;
        if !self.job.is_started() {
            let message = "lease lost: the guardian ended before the command was started";
            return Err(Failure::new(Exit::Lost, message));
        }
        self.announcer.left_alive(&left);
        Ok(Outcome {
            is_killed_by_tool: is_late,
            left,
            ..Outcome::default()
        })
    }

    /// Kills the job until nothing of it is left. Gives up only once its lease is lost, and returns what lives on.
    async fn end_job(&mut self) -> Vec<i32> {
        let began = self.clock.now();
        let mut passes = 0;
        loop {
            self.job.kill();
            if self.job.is_gone() {
                return Vec::new();
            }
            let now = self.clock.now();
            let waited = now.since(began);
            if waited >= tree::GIVE_UP && self.lease.check().is_err() {
                return numbers(&self.job.living());
            }
            if waited >= WARDEN_LIMIT {
                self.job.kill_warden();
            }
            passes += 1;
            self.clock.sleep_until(now.after(tree::pause(passes))).await;
        }
    }
}

/// Sleeps until this instant, or for ever.
pub async fn due(clock: &dyn Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
