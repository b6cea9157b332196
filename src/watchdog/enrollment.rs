//! What the client has in the schedule: a request that is under way, a lease, or a release. Each drives its state machine
//! with the clock, and wakes the loop where the machine asks for it. Dropping one of them leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::claiming::{Asked, Claiming, Patience, Verdict};
use super::leaving::{Leaving, ReleaseOutcome, leave_to_the_loop};
use super::schedule::{Departure, LeaseId, Limits, Schedule};
use super::signal::Signal;
use crate::clock::Clock;
use crate::error::Error;
use crate::name::Name;
use crate::store::{Answer, Claim, Failed, Held};
use crate::telemetry::Reporter;
use crate::term::{Instant, Timing};
use crate::token::Token;

/// A request that is under way. If it is dropped, the loop releases its claim, which the store may have granted or may
/// still grant.
#[derive(Debug)]
pub(crate) struct Pending {
    shared: Arc<Shared>,
    /// Of the claim that is enrolled.
    signal: Option<Arc<Signal>>,
    claiming: Claiming,
}

/// The outcome of one attempt, and what the caller does next.
#[derive(Debug)]
pub(crate) enum Answered {
    /// It is held by this enrollment.
    Granted {
        enrollment: Enrollment,
        claim: Claim,
        token: Token,
        held_since: Instant,
    },
    /// Another holder has the name.
    Taken(Box<Held>),
    /// Granted too late: ask again, with the same claim.
    AskAgain,
    /// Send this release, then ask with another claim.
    AskAnew(Option<Withdrawal>),
    /// Send this release; every grant came too late.
    TooLate(Option<Withdrawal>),
    /// The store granted `token`, which is not above `seen`.
    TokenFell { token: Token, seen: Token },
}

impl Pending {
    pub(super) const fn new(shared: Arc<Shared>, floor: Option<Token>, patience: Patience) -> Self {
        Self {
            shared,
            signal: None,
            claiming: Claiming::new(floor, patience),
        }
    }

    /// The claim that is under way, as it is to be sent.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claiming.claim()
    }

    /// Enrolls a claim, with the shard of its name, before it is sent.
    ///
    /// # Errors
    /// `Closed` when the thread has ended or the client is shutting down.
    pub(crate) fn enroll(
        &mut self,
        claim: (Claim, u32),
        bounds: (Timing, Limits),
        seen: Option<Token>,
    ) -> Result<(), Error> {
        let signal = Arc::new(Signal::new(self.shared.clock.now()));
        self.signal = Some(signal.clone());
        let mut schedule = self.shared.schedule();
        let is_enrolled = self
            .claiming
            .enroll(&mut schedule, claim, bounds, signal, seen);
        drop(schedule);
        is_enrolled
            .then_some(())
            .ok_or_else(|| self.shared.why_closed())
    }

    /// Notes that an attempt is sent now.
    pub(crate) fn send(&mut self, seen: Option<Token>) -> Asked {
        let now = self.shared.clock.now();
        self.claiming.sent(&mut self.shared.schedule(), seen, now)
    }

    /// Takes the answer to an attempt in.
    ///
    /// # Errors
    /// That of the attempt; `Closed` when the client was shut down meanwhile.
    pub(crate) fn answered(
        &mut self,
        asked: Asked,
        answer: Result<Answer, Failed>,
        seen: Option<Token>,
    ) -> Result<Answered, Error> {
        let now = self.shared.clock.now();
        let claiming = &mut self.claiming;
        let change =
            |schedule: &mut Schedule| claiming.answered(schedule, asked, answer, seen, now);
        let verdict = self.shared.change(change);
        let withdrawal = |leaving: Option<Leaving>| {
            leaving.map(|leaving| Withdrawal::new(self.shared.clone(), leaving))
        };
        match verdict {
            Verdict::Granted {
                id,
                claim,
                token,
                held_since,
            } => {
                let signal = self.signal.take().expect("each claim has one");
                self.shared.floors.add_keeper(&claim.name);
                Ok(Answered::Granted {
                    enrollment: Enrollment {
                        shared: self.shared.clone(),
                        signal,
                        id: Some(id),
                        name: claim.name.clone(),
                    },
                    claim,
                    token,
                    held_since,
                })
            }
            Verdict::Taken(held) => Ok(Answered::Taken(held)),
            Verdict::Failed(error) => Err(error),
            Verdict::AskAgain => Ok(Answered::AskAgain),
            Verdict::AskAnew(leaving) => Ok(Answered::AskAnew(withdrawal(leaving))),
            Verdict::TooLate(leaving) => Ok(Answered::TooLate(withdrawal(leaving))),
            Verdict::TokenFell { token, seen } => Ok(Answered::TokenFell { token, seen }),
            Verdict::Closed => Err(Error::shut_down()),
        }
    }

    /// Waits until the claim that is under way is ended from outside; for ever while there is none.
    pub(crate) async fn shut_down(&self) {
        match &self.signal {
            Some(signal) => signal.token().cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.claim().is_some() && !self.shared.home.is_forked() {
            let now = self.shared.clock.now();
            let claiming = &mut self.claiming;
            self.shared
                .change(|schedule| ((), claiming.given_up(schedule, now)));
        }
    }
}

/// One lease's place in the schedule. Dropping it releases.
#[derive(Debug)]
pub(crate) struct Enrollment {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    /// `None` once the enrollment has ended.
    id: Option<LeaseId>,
    /// The client remembers its floor as long as this lives.
    name: Name,
}

impl Enrollment {
    /// Ends the enrollment before the caller sends its release. Returns the release, or `None` if there is nothing to
    /// release, and whether the lease was held until then. If the caller does not report the answer in time, the loop sends
    /// the release.
    pub(crate) fn withdraw(&mut self, keep_for: Option<Duration>) -> (Option<Withdrawal>, bool) {
        let Some(id) = self.id.take() else {
            return (None, false);
        };
        let now = self.shared.clock.now();
        let end = |schedule: &mut Schedule| Leaving::begin(schedule, id, keep_for, now);
        let (leaving, was_held) = self.shared.end(end);
        let withdrawal = leaving.map(|leaving| Withdrawal::new(self.shared.clone(), leaving));
        (withdrawal, was_held)
    }

    /// Leaves the release to the loop. Returns whether the lease was held until then. Never blocks, never fails.
    pub(crate) fn leave(&mut self) -> bool {
        self.id.take().is_some_and(|id| {
            let now = self.shared.clock.now();
            let end = |schedule: &mut Schedule| ((), leave_to_the_loop(schedule, id, now));
            self.shared.end(end).1
        })
    }

    /// Whether the enrollment has ended.
    pub(crate) const fn has_ended(&self) -> bool {
        self.id.is_none()
    }

    /// Whether this is the child of a fork, where the loop does not run.
    pub(crate) fn is_forked(&self) -> bool {
        self.shared.home.is_forked()
    }

    /// Counts and logs the events of the lease.
    pub(crate) fn reporter(&self) -> &Reporter {
        &self.shared.reporter
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.name
    }

    /// Raises the client's floor of this name.
    pub(crate) fn raise_floor(&self, token: Token) {
        self.shared.floors.raise(&self.name, token);
    }

    /// Tells the holder of a loss.
    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The clock of the lease.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }
}

impl Drop for Enrollment {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.leave();
        }
        self.shared.floors.remove_keeper(&self.name);
    }
}

/// A release that the caller sends. If it is dropped before the answer, the loop sends the release.
#[derive(Debug)]
#[must_use = "without an answer the loop sends the release once more"]
pub(crate) struct Withdrawal {
    shared: Arc<Shared>,
    /// `None` once it is answered.
    leaving: Option<Leaving>,
}

impl Withdrawal {
    const fn new(shared: Arc<Shared>, leaving: Leaving) -> Self {
        let leaving = Some(leaving);
        Self { shared, leaving }
    }

    /// Sends the release and takes its answer in.
    pub(crate) async fn send(mut self) -> ReleaseOutcome {
        let leaving = self.leaving.as_ref().expect("it is answered once");
        let answer = {
            let Departure {
                name,
                holder,
                keep_for,
                limit,
                ..
            } = leaving.departure();
            let released = self.shared.store.release(name, *holder, *keep_for, *limit);
            released.await
        };
        let leaving = self.leaving.take().expect("it is answered once");
        let now = self.shared.clock.now();
        let change = |schedule: &mut Schedule| leaving.answered(schedule, answer, now);
        self.shared.change(change)
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some(leaving) = self.leaving.take()
            && !self.shared.home.is_forked()
        {
            let now = self.shared.clock.now();
            self.shared
                .change(|schedule| ((), leaving.given_up(schedule, now)));
        }
    }
}
