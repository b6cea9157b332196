//! Decides when a job is ended: the pure core of the guardian.
//!
//! ```text
//! S                     S + ttl/2        T                 K      D
//! |--------------------------|-----------|-----------------|------|
//! last confirmed renewal left          TERM             KILL    deadline
//! ```
//!
//! `K = D - min(250 ms, ttl/20)` leaves the kernel time to end what was killed, and `T = K - kill_after` leaves the job
//! time to end itself. Each renewal moves D, and K with it; TERM, once sent, is not taken back. This module reads no
//! clock: `now` is always an argument.

use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::clock::Timing;
use serde::{Deserialize, Serialize};

use crate::tree;

/// Maximum time that a job gets after a refused renewal: the next holder may already be at work.
const REFUSED_GRACE: Duration = Duration::from_secs(2);

/// The durations of the timeline, fixed for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distances {
    ttl: Duration,
    kill_after: Duration,
}

/// Why a job is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No renewal was confirmed in time.
    Deadline,
    /// The store refused the renewal: another holder has the lease, or there is none.
    Refused,
    /// An operator evicted this holder; the name stays taken for the rest of its ttl.
    Evicted,
    /// The client ended the lease, as with `--max-hold`, with time left.
    LeaseEnded,
    /// The job has not reported progress in time; the name stays taken for a while.
    NoProgress,
    /// The tool has ended, so the lease is no longer renewed.
    ToolGone,
    /// The tool of a run within a run has ended: perhaps the outer job was killed, which leaves no time.
    NestedToolGone,
    /// The command ended by itself and left processes behind.
    CommandEnded,
    /// The job ran for longer than it was allowed to.
    MaxRuntime,
    /// The guardian has ended, and with it the guarantee that the job ends in time.
    GuardianGone,
}

impl Cause {
    /// Returns which processes are ended for this cause: at the command's own end those that left its session stay, and
    /// when the lease has ended none does.
    const fn scope(self) -> Scope {
        match self {
            Self::CommandEnded | Self::MaxRuntime => Scope::Session,
            Self::Deadline
            | Self::Refused
            | Self::Evicted
            | Self::LeaseEnded
            | Self::NoProgress
            | Self::ToolGone
            | Self::NestedToolGone
            | Self::GuardianGone => Scope::All,
        }
    }

    /// Returns the cause as it is worded in messages and reports.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Deadline => "no renewal was confirmed in time",
            Self::Refused => "the store refused to renew the lease",
            Self::Evicted => "an operator evicted this holder",
            Self::LeaseEnded => "the lease was held for as long as --max-hold allows",
            Self::NoProgress => "it reported no progress within --progress-within",
            Self::ToolGone | Self::NestedToolGone => "the tool was gone",
            Self::CommandEnded => "the command ended and left processes behind",
            Self::MaxRuntime => "it ran for as long as --max-runtime allows",
            Self::GuardianGone => "the guardian was gone",
        }
    }
}

/// The processes of a job that are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those in the job's original session: processes that left it (`setsid`) while the lease was held stay.
    Session,
    /// All: the lease has ended.
    All,
}

/// The next action of the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Do nothing before this moment.
    Wait(Instant),
    /// Ask the job to end, for this cause.
    Term(Cause),
    /// Kill the job, and again at this moment: a process may have been forked in between.
    Kill { again_at: Instant },
}

/// The position of one job on the timeline.
#[derive(Debug)]
pub struct Timeline {
    distances: Distances,
    deadline: Instant,
    stop: Option<Stop>,
    kills: u32,
    /// When the job was killed for the first time.
    killed_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Stop {
    cause: Cause,
    /// KILL is due at this moment, or at K if that is sooner.
    kill_by: Instant,
    is_sent: bool,
    scope: Scope,
}

impl Distances {
    /// Checks that the job is not ended before at least half of the ttl has passed without a renewal, so that a renewal
    /// that is merely late does not end it.
    pub fn new(timing: &Timing, kill_after: Option<Duration>) -> Result<Self, String> {
        let ttl = timing.ttl();
        let kill_after = kill_after.unwrap_or((ttl / 3).min(Duration::from_secs(10)));
        let distances = Self { ttl, kill_after };
        let room = Timing::LATE_AFTER
            .rest_of(ttl)
            .saturating_sub(timing.margin())
            .saturating_sub(distances.slack());
        if kill_after > room {
            return Err(format!(
                "kill-after {kill_after:?} refused: with ttl {ttl:?} and margin {:?} expected at most {room:?}, so that \
                 the job is not stopped before half of the ttl has passed without a renewal",
                timing.margin()
            ));
        }
        Ok(distances)
    }

    /// Returns the durations with the usual time between TERM and KILL.
    pub fn usual(timing: &Timing) -> Self {
        Self::new(timing, None).expect("the default fits every ttl")
    }

    /// Returns when the job must be killed so that it has ended at the deadline.
    pub fn kill_at(&self, deadline: Instant) -> Instant {
        deadline.before(self.slack())
    }

    /// Returns when the job is asked to end.
    pub fn term_at(&self, deadline: Instant) -> Instant {
        self.kill_at(deadline).before(self.kill_after)
    }

    /// Returns when another process ends the job, if the guardian has not done so at [`kill_at`](Self::kill_at).
    pub fn rescue_at(&self, deadline: Instant) -> Instant {
        deadline.before(self.slack() / 2)
    }

    /// Returns the time between TERM and KILL.
    pub const fn kill_after(&self) -> Duration {
        self.kill_after
    }

    /// Returns the longest outage of the store that the job survives, if it begins at the worst moment.
    pub fn outage(&self, timing: &Timing) -> Duration {
        Timing::RENEWED_AFTER
            .rest_of(self.ttl)
            .saturating_sub(self.kill_after)
            .saturating_sub(timing.margin())
            .saturating_sub(self.slack())
    }

    /// Returns the time that the kernel gets to end a killed group.
    fn slack(&self) -> Duration {
        (self.ttl / 20).min(Duration::from_millis(250))
    }
}

impl Timeline {
    /// Makes the timeline of a job whose lease is confirmed until `deadline`.
    pub const fn new(distances: Distances, deadline: Instant) -> Self {
        Self {
            distances,
            deadline,
            stop: None,
            kills: 0,
            killed_at: None,
        }
    }

    /// Moves the deadline after a confirmed renewal.
    pub fn renewed(&mut self, deadline: Instant) {
        self.deadline = self.deadline.max(deadline);
    }

    /// Begins to end the job. The first cause is kept; a later one can only bring KILL forward and widen the scope.
    pub fn stop(&mut self, cause: Cause, now: Instant) {
        let kill_by = now.after(self.grace(cause));
        match &mut self.stop {
            Some(stop) => {
                stop.kill_by = stop.kill_by.min(kill_by);
                if cause.scope() == Scope::All {
                    stop.scope = Scope::All;
                }
            }
            None => {
                self.stop = Some(Stop {
                    cause,
                    kill_by,
                    is_sent: false,
                    scope: cause.scope(),
                });
            }
        }
    }

    /// Returns whether the end of the job has begun or is due.
    pub fn is_over(&self, now: Instant) -> bool {
        self.stop.is_some() || now >= self.distances.term_at(self.deadline)
    }

    /// Returns why the job is being ended, if it is.
    pub fn cause(&self) -> Option<Cause> {
        self.stop.map(|stop| stop.cause)
    }

    /// Returns which processes are ended now.
    pub fn scope(&self, now: Instant) -> Scope {
        match self.stop {
            Some(stop) if now < self.distances.kill_at(self.deadline) => stop.scope,
            Some(_) => Scope::All,
            None => Scope::Session,
        }
    }

    /// Returns whether a job whose lease has ended was killed for that long in vain that it cannot be ended. While the
    /// lease is held, its name stays taken instead.
    pub fn has_given_up(&self, now: Instant) -> bool {
        let is_late = |at: Instant| now >= at.after(tree::GIVE_UP);
        self.scope(now) == Scope::All && self.killed_at.is_some_and(is_late)
    }

    /// Decides what to do now. The caller does it and asks again, until the answer is to wait.
    pub fn step(&mut self, now: Instant) -> Step {
        let term_at = self.distances.term_at(self.deadline);
        if self.stop.is_none() {
            if now < term_at {
                return Step::Wait(term_at);
            }
            self.stop(Cause::Deadline, now);
        }
        let kill_at = self.distances.kill_at(self.deadline);
        let stop = self.stop.as_mut().expect("set above");
        let kill_at = stop.kill_by.min(kill_at);
        if now >= kill_at {
            stop.is_sent = true;
            self.killed_at.get_or_insert(now);
            self.kills = self.kills.saturating_add(1);
            let again_at = now.after(tree::pause(self.kills));
            return Step::Kill { again_at };
        }
        if !stop.is_sent {
            stop.is_sent = true;
            return Step::Term(stop.cause);
        }
        Step::Wait(kill_at)
    }

    /// Returns how long the job has after TERM, if K does not come first.
    fn grace(&self, cause: Cause) -> Duration {
        let kill_after = self.distances.kill_after;
        match cause {
            // Only K decides. It moves if the store answers again; the added ttl limits a job that ignores TERM.
            Cause::Deadline => kill_after + self.distances.ttl,
            Cause::Refused => kill_after.min(REFUSED_GRACE),
            Cause::NestedToolGone => Duration::ZERO,
            Cause::Evicted
            | Cause::LeaseEnded
            | Cause::NoProgress
            | Cause::ToolGone
            | Cause::CommandEnded
            | Cause::MaxRuntime
            | Cause::GuardianGone => kill_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// ttl 6 s, margin 100 ms, kill_after 1 s, sent at 0: T = 4.65 s, K = 5.65 s, D = 5.9 s.
    fn timeline() -> Timeline {
        let timing = Timing::new(ms(6_000), Some(ms(100))).expect("valid");
        let distances = Distances::new(&timing, Some(ms(1_000))).expect("valid");
        Timeline::new(distances, timing.term(Instant::ZERO).deadline())
    }

    #[test]
    fn an_unrenewed_job_is_asked_then_killed_before_the_deadline() {
        let mut timeline = timeline();
        assert_eq!(timeline.step(at(0)), Step::Wait(at(4_650)));
        assert_eq!(timeline.step(at(4_649)), Step::Wait(at(4_650)));
        assert_eq!(timeline.step(at(4_650)), Step::Term(Cause::Deadline));
        assert_eq!(timeline.step(at(4_650)), Step::Wait(at(5_650)));
        let again_at = at(5_650);
        assert_eq!(timeline.step(at(5_650)), Step::Kill { again_at });
        assert!(!timeline.has_given_up(at(10_649)));
        assert!(timeline.has_given_up(at(10_650)));
    }

    #[test]
    fn kills_are_repeated_with_pauses_that_grow() {
        let mut timeline = timeline();
        let mut now = at(5_650);
        let mut kills = 0;
        while now < at(6_650) {
            let Step::Kill { again_at } = timeline.step(now) else {
                panic!("no kill");
            };
            (now, kills) = (again_at, kills + 1);
        }
        assert!((150..250).contains(&kills), "{kills}");
    }

    #[test]
    fn what_left_the_session_stays_at_the_commands_end_until_the_lease_is_over() {
        let mut timeline = timeline();
        timeline.stop(Cause::CommandEnded, at(1_000));
        assert_eq!(timeline.scope(at(1_000)), Scope::Session);
        timeline.stop(Cause::MaxRuntime, at(1_000));
        assert_eq!(timeline.scope(at(5_649)), Scope::Session);
        assert_eq!(timeline.scope(at(5_650)), Scope::All);
        timeline.stop(Cause::Evicted, at(1_000));
        assert_eq!(timeline.scope(at(1_000)), Scope::All);
    }

    #[test]
    fn a_held_name_stays_taken_while_the_job_does_not_end() {
        let mut timeline = timeline();
        timeline.stop(Cause::MaxRuntime, at(0));
        timeline.step(at(1_000));
        timeline.renewed(at(100_000));
        assert!(!timeline.has_given_up(at(60_000)));
        timeline.stop(Cause::Refused, at(60_000));
        assert!(timeline.has_given_up(at(60_000)));
    }

    #[test]
    fn it_is_over_from_term_on_or_once_it_was_stopped() {
        let mut timeline = timeline();
        assert!(!timeline.is_over(at(4_649)));
        assert!(timeline.is_over(at(4_650)));
        timeline.stop(Cause::ToolGone, at(0));
        assert!(timeline.is_over(at(0)));
    }

    #[test]
    fn a_renewal_moves_the_whole_timeline() {
        let mut timeline = timeline();
        timeline.renewed(at(7_900));
        assert_eq!(timeline.step(at(4_650)), Step::Wait(at(6_650)));
        timeline.renewed(at(6_900));
        assert_eq!(timeline.step(at(4_650)), Step::Wait(at(6_650)));
    }

    #[test]
    fn a_renewal_after_term_moves_kill_but_does_not_take_term_back() {
        let mut timeline = timeline();
        assert_eq!(timeline.step(at(4_650)), Step::Term(Cause::Deadline));
        timeline.renewed(at(8_900));
        assert_eq!(timeline.step(at(4_700)), Step::Wait(at(8_650)));
        assert_eq!(timeline.cause(), Some(Cause::Deadline));
    }

    #[test]
    fn a_job_that_ignores_term_is_killed_though_the_store_came_back() {
        let mut timeline = timeline();
        assert_eq!(timeline.step(at(4_650)), Step::Term(Cause::Deadline));
        timeline.renewed(at(100_000));
        assert_eq!(timeline.step(at(11_649)), Step::Wait(at(11_650)));
        assert!(matches!(timeline.step(at(11_650)), Step::Kill { .. }));
    }

    #[test]
    fn woken_between_term_and_kill_it_still_asks_first() {
        let mut timeline = timeline();
        assert_eq!(timeline.step(at(5_600)), Step::Term(Cause::Deadline));
        assert_eq!(timeline.step(at(5_600)), Step::Wait(at(5_650)));
    }

    #[test]
    fn woken_past_kill_it_kills_at_once() {
        for now in [at(5_651), Instant::FAR_FUTURE] {
            assert!(matches!(timeline().step(now), Step::Kill { .. }));
        }
    }

    #[test]
    fn a_refused_lease_gives_two_seconds_at_most_and_never_past_kill() {
        let timing = Timing::new(ms(30_000), None).expect("valid");
        let distances = Distances::new(&timing, None).expect("valid");
        let mut timeline = Timeline::new(distances, timing.term(Instant::ZERO).deadline());
        timeline.stop(Cause::Refused, at(10_000));
        assert_eq!(timeline.step(at(10_000)), Step::Term(Cause::Refused));
        assert_eq!(timeline.step(at(10_000)), Step::Wait(at(12_000)));

        let mut late = super::tests::timeline();
        late.stop(Cause::Refused, at(5_000));
        assert_eq!(late.step(at(5_000)), Step::Term(Cause::Refused));
        assert_eq!(late.step(at(5_000)), Step::Wait(at(5_650)));
    }

    #[test]
    fn without_its_tool_a_run_within_a_run_is_killed_at_once() {
        let mut timeline = timeline();
        timeline.stop(Cause::NestedToolGone, at(1_000));
        assert!(matches!(timeline.step(at(1_000)), Step::Kill { .. }));
    }

    #[test]
    fn the_first_cause_is_kept_and_a_later_one_only_brings_kill_forward() {
        let mut timeline = timeline();
        timeline.stop(Cause::CommandEnded, at(1_000));
        assert_eq!(timeline.step(at(1_000)), Step::Term(Cause::CommandEnded));
        timeline.stop(Cause::ToolGone, at(1_500));
        assert_eq!(timeline.step(at(1_500)), Step::Wait(at(2_000)));
        assert_eq!(timeline.cause(), Some(Cause::CommandEnded));
    }

    #[test]
    fn a_kill_after_that_would_stop_a_healthy_job_is_refused_with_the_limit() {
        let timing = Timing::new(ms(30_000), None).expect("valid");
        assert!(Distances::new(&timing, Some(ms(14_130))).is_ok());
        let message = Distances::new(&timing, Some(ms(14_131))).expect_err("refused");
        assert!(
            message.contains("14.131s") && message.contains("14.13s"),
            "{message}"
        );
        assert!(Distances::new(&timing, Some(Duration::MAX)).is_err());
    }

    #[test]
    fn every_ttl_has_a_default_kill_after() {
        for ttl in [1_000, 1_001, 2_000, 5_000, 30_000, 60_000, 86_400_000] {
            let timing = Timing::new(ms(ttl), None).expect("valid");
            assert!(Distances::new(&timing, None).is_ok(), "{ttl}");
        }
    }

    #[test]
    fn the_default_survives_an_outage_of_nine_seconds() {
        let timing = Timing::default();
        let distances = Distances::new(&timing, None).expect("valid");
        assert_eq!(distances.outage(&timing), ms(9_130));
    }
}
