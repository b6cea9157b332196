//! The client's entry in the schedule: a request that is under way, or a lease. Each drives the schedule with the
//! clock, and wakes the loop where the schedule asks for it. Dropping one of them leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::claiming::{Asked, Claiming, Patience, Verdict};
use super::schedule::{LeaseId, Leaving, Limits, ReleaseOutcome, Schedule};
use super::signal::Signal;
use crate::clock::Clock;
use crate::error::Error;
use crate::name::Name;
use crate::store::{Answer, Claim, Failed};
use crate::telemetry::Reporter;
use crate::term::Timing;
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

    /// Takes in the answer to an attempt.
    pub(crate) fn answered(
        &mut self,
        asked: Asked,
        answer: Result<Answer, Failed>,
        seen: Option<Token>,
    ) -> Verdict {
        let now = self.shared.clock.now();
        let claiming = &mut self.claiming;
        let change =
            |schedule: &mut Schedule| claiming.answered(schedule, asked, answer, seen, now);
        self.shared.change(change)
    }

    /// The enrollment of a claim that was granted.
    pub(crate) fn granted(&mut self, id: LeaseId, name: Name) -> Enrollment {
        self.shared.floors.add_keeper(&name);
        let view = LeaseView {
            shared: self.shared.clone(),
            signal: self.signal.take().expect("each claim has one"),
            name,
        };
        Enrollment { view, id: Some(id) }
    }

    /// Releases a grant that is of no use, so that the next claim does not find the name taken by this one.
    pub(crate) async fn give_back(&self, leaving: Option<Leaving>) {
        if let Some(leaving) = leaving {
            release(&self.shared, leaving).await;
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
    /// The client remembers the floor of its name as long as this lives.
    view: LeaseView,
    /// `None` once the enrollment has ended.
    id: Option<LeaseId>,
}

/// A view of a lease. It keeps no lease alive.
#[derive(Debug, Clone)]
pub(crate) struct LeaseView {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    name: Name,
}

impl Enrollment {
    /// Ends the enrollment before the caller sends its release. Returns the release, or `None` if there is nothing to
    /// release, and whether the lease was held until then. If the caller does not report the answer in time, the loop
    /// sends the release.
    pub(crate) fn withdraw(&mut self, keep_for: Option<Duration>) -> (Option<Leaving>, bool) {
        let Some(id) = self.id.take() else {
            return (None, false);
        };
        let now = self.view.clock().now();
        let begin = |schedule: &mut Schedule| Leaving::begin(schedule, id, keep_for, now);
        let ended = self.view.shared.end(begin);
        self.view.wake_handles();
        ended
    }

    /// Sends the release and takes in its answer. If the future is dropped before the answer, the loop sends the
    /// release.
    pub(crate) async fn release(&self, leaving: Leaving) -> ReleaseOutcome {
        release(&self.view.shared, leaving).await
    }

    /// Leaves the release to the loop, and has the name kept for this long. Returns whether the lease was held until
    /// then. Never blocks, never fails.
    pub(crate) fn leave(&mut self, keep_for: Option<Duration>) -> bool {
        let Some(id) = self.id.take() else {
            return false;
        };
        let now = self.view.clock().now();
        let end = |schedule: &mut Schedule| ((), Leaving::by_the_loop(schedule, id, keep_for, now));
        let ((), was_held) = self.view.shared.end(end);
        self.view.wake_handles();
        was_held
    }

    /// Returns whether the enrollment has ended.
    pub(crate) const fn has_ended(&self) -> bool {
        self.id.is_none()
    }

    pub(crate) const fn view(&self) -> &LeaseView {
        &self.view
    }
}

impl LeaseView {
    /// Returns whether this is the child of a fork, where the loop does not run.
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

    /// Raises the client's floor of a name.
    pub(crate) fn raise_floor(&self, name: &Name, token: Token) {
        self.shared.floors.raise(name, token);
    }

    /// Tells the holder of a loss.
    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Wakes the tasks that wait at handles of the lease, whose guard has ended.
    fn wake_handles(&self) {
        self.shared.wake_users(&self.name, || self.signal.wake());
    }

    /// The clock of the lease.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }
}

impl Drop for Enrollment {
    fn drop(&mut self) {
        if !self.has_ended() && !self.view.is_forked() {
            self.leave(None);
        }
        self.view.shared.floors.remove_keeper(&self.view.name);
    }
}

/// Sends a release for its caller.
async fn release(shared: &Shared, leaving: Leaving) -> ReleaseOutcome {
    let (keep_for, limit) = (leaving.keep_for, leaving.limit);
    let mut sent = SentRelease(shared, Some(leaving));
    let leaving = sent.1.as_ref().expect("it is answered below");
    let answer = shared
        .store
        .release(&leaving.name, leaving.holder, keep_for, limit)
        .await;
    let leaving = sent.1.take().expect("it is answered once");
    let now = shared.clock.now();
    shared.change(|schedule| leaving.answered(schedule, answer, now))
}

/// A release whose caller may give it up before the answer: then the loop sends it.
struct SentRelease<'a>(&'a Shared, Option<Leaving>);

impl Drop for SentRelease<'_> {
    fn drop(&mut self) {
        let Self(shared, leaving) = self;
        if let Some(leaving) = leaving.take()
            && !shared.home.is_forked()
        {
            let now = shared.clock.now();
            shared.change(|schedule| ((), leaving.given_up(schedule, now)));
        }
    }
}
