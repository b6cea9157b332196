//! What the client has in the schedule: a request that is under way, a lease, a release. Each drives its machine with the
//! clock, and wakes the loop where that is asked for; dropping any of them leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::claiming::{Asked, Claiming, Patience, Verdict};
use super::leaving::{Leaving, ReleaseOutcome, leave_to_the_loop};
use super::schedule::{Departure, Key, Limits};
use super::signal::Signal;
use crate::clock::Clock;
use crate::error::Error;
use crate::store::{Answer, Claim, Failed, Held, Store, limit};
use crate::telemetry::Reporter;
use crate::term::{Instant, Timing};
use crate::token::Token;

/// A request that is under way. Dropped, its claim is released should the store have granted it, or grant it yet.
#[derive(Debug)]
pub(crate) struct Pending {
    shared: Arc<Shared>,
    /// Of the claim that is enrolled.
    signal: Option<Arc<Signal>>,
    claiming: Claiming,
}

/// What one attempt brought, with what is to be done about it.
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
    /// Send this, then ask anew.
    AskAnew(Option<Withdrawal>),
    /// Send this; every grant came too late.
    TooLate(Option<Withdrawal>),
    /// What was granted, and what was seen before.
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

    /// Takes a claim in before it is sent.
    ///
    /// # Errors
    /// `Closed` when the thread has ended or the client is shutting down.
    pub(crate) fn enroll(
        &mut self,
        claim: Claim,
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

    /// Notes that an attempt is leaving now.
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
        let mut schedule = self.shared.schedule();
        let (verdict, must_wake) = self
            .claiming
            .answered(&mut schedule, asked, answer, seen, now);
        drop(schedule);
        self.shared.wake_if(must_wake);
        let withdrawal = |leaving: Option<Leaving>| {
            leaving.map(|leaving| Withdrawal::new(self.shared.clone(), leaving))
        };
        let answered = match verdict {
            Verdict::Granted {
                key,
                claim,
                token,
                held_since,
            } => {
                let signal = self.signal.take().expect("each claim has one");
                return Ok(Answered::Granted {
                    enrollment: Enrollment {
                        shared: self.shared.clone(),
                        signal,
                        key: Some(key),
                    },
                    claim,
                    token,
                    held_since,
                });
            }
            Verdict::Taken(held) => return Ok(Answered::Taken(held)),
            Verdict::Failed(error) => return Err(error),
            Verdict::AskAgain => return Ok(Answered::AskAgain),
            Verdict::AskAnew(leaving) => Ok(Answered::AskAnew(withdrawal(leaving))),
            Verdict::TooLate(leaving) => Ok(Answered::TooLate(withdrawal(leaving))),
            Verdict::TokenFell { token, seen } => Ok(Answered::TokenFell { token, seen }),
            Verdict::Closed => Err(Error::shut_down()),
        };
        // The claim is over: it may have been the last that a shutdown waits for.
        self.shared.tell_if_emptied();
        answered
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
            let must_wake = self.claiming.given_up(&mut self.shared.schedule(), now);
            self.shared.wake_if(must_wake);
            self.shared.tell_if_emptied();
        }
    }
}

/// One lease's place in the schedule. Dropping it releases.
#[derive(Debug)]
pub(crate) struct Enrollment {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    /// Gone once the enrollment has ended.
    key: Option<Key>,
}

impl Enrollment {
    /// Ends the enrollment before its release is sent by the caller, and answers whether the lease was held until then.
    /// `None`: there is nothing to release. The loop sends it should the report not come in time.
    pub(crate) fn withdraw(&mut self, keep_for: Option<Duration>) -> (Option<Withdrawal>, bool) {
        let Some(key) = self.key.take() else {
            return (None, false);
        };
        let now = self.shared.clock.now();
        let (leaving, exit) = Leaving::begin(&mut self.shared.schedule(), key, keep_for, now);
        let was_held = self.shared.take_exit(exit);
        let withdrawal = leaving.map(|leaving| Withdrawal::new(self.shared.clone(), leaving));
        (withdrawal, was_held)
    }

    /// Leaves the release to the loop, and answers whether the lease was held until then. Never blocks, never fails.
    pub(crate) fn leave(&mut self) -> bool {
        self.key.take().is_some_and(|key| {
            let now = self.shared.clock.now();
            let exit = leave_to_the_loop(&mut self.shared.schedule(), key, now);
            self.shared.take_exit(exit)
        })
    }

    /// Whether its lease is gone.
    pub(crate) const fn has_ended(&self) -> bool {
        self.key.is_none()
    }

    /// Whether this is the child of a fork, where the loop does not run.
    pub(crate) fn is_forked(&self) -> bool {
        self.shared.home.is_forked()
    }

    /// Where the lease is counted.
    pub(crate) fn reporter(&self) -> &Reporter {
        &self.shared.reporter
    }

    /// What tells the holder.
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
    }
}

/// A release that the caller sends. Dropped before its answer, it is left to the loop.
#[derive(Debug)]
#[must_use = "without an answer the loop sends the release once more"]
pub(crate) struct Withdrawal {
    shared: Arc<Shared>,
    /// Gone once it is answered.
    leaving: Option<Leaving>,
}

impl Withdrawal {
    const fn new(shared: Arc<Shared>, leaving: Leaving) -> Self {
        let leaving = Some(leaving);
        Self { shared, leaving }
    }

    /// Sends the release and takes its answer in.
    pub(crate) async fn send(mut self, store: &dyn Store) -> ReleaseOutcome {
        let leaving = self.leaving.as_ref().expect("it is answered once");
        let answer = {
            let Departure {
                name,
                holder,
                keep_for,
                limit,
                ..
            } = leaving.departure();
            let clock = &self.shared.clock;
            let given_up = clock.nap_until(clock.now().after(limit::at_most(*limit)));
            let releasing = store.release(name, *holder, *keep_for, *limit);
            limit::within(given_up, releasing).await
        };
        let leaving = self.leaving.take().expect("it is answered once");
        let now = self.shared.clock.now();
        let (ending, must_wake) = leaving.answered(&mut self.shared.schedule(), answer, now);
        self.shared.wake_if(must_wake);
        self.shared.tell_if_emptied();
        ending
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some(leaving) = self.leaving.take()
            && !self.shared.home.is_forked()
        {
            let now = self.shared.clock.now();
            let must_wake = leaving.given_up(&mut self.shared.schedule(), now);
            self.shared.wake_if(must_wake);
        }
    }
}
