//! The client's way into the schedule and out of it: a request under way, and the end of a lease. Each drives the
//! schedule with the clock, and wakes the loop if the schedule asks for it.

use std::sync::Arc;
use std::time::Duration;

use super::claiming::{Claiming, GiveUp, NewLease, Verdict};
use super::schedule::{LeaseId, Leaving, Limits, ReleaseOutcome};
use super::signal::Signal;
use super::{Shared, Watchdog};
use crate::error::Error;
use crate::floors::Floor;
use crate::store::{Ask, Claim, Handover, Queued, Store};
use crate::term::{Instant, Timing};
use crate::token::Token;

impl Watchdog {
    /// Begins a request, without a claim.
    pub(crate) fn request(&self, floor: Option<Token>, give_up: GiveUp) -> Pending {
        Pending {
            shared: self.shared.clone(),
            claiming: Claiming::new(floor, give_up),
        }
    }
}

/// A request that is under way. If it is dropped, the loop releases its claim, which the store may have granted or may
/// still grant.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) shared: Arc<Shared>,
    claiming: Claiming,
}

impl Pending {
    pub(crate) fn has_no_claim(&self) -> bool {
        self.claiming.claim().is_none()
    }

    /// Enrolls a claim before it is sent.
    ///
    /// # Errors
    /// `Closed` when the thread has ended or the client is shutting down.
    pub(crate) fn enroll(
        &mut self,
        claim: Claim,
        timing: Timing,
        known: &Floor,
    ) -> Result<(), Error> {
        let Shared { store, clock, .. } = &*self.shared;
        let signal = Arc::new(Signal::new(clock.now()));
        let (shard, seen) = (store.shard(&claim.name), known.get());
        let claiming = &mut self.claiming;
        let enroll =
            |schedule: &mut _| claiming.enroll(schedule, claim, shard, timing, signal, seen);
        (self.shared.change(enroll))
            .then_some(())
            .ok_or_else(|| self.shared.why_closed())
    }

    /// Sends an attempt of the claim, and takes in the answer.
    pub(crate) async fn ask(
        &mut self,
        queued: Option<Queued>,
        limit: Duration,
        known: &Floor,
    ) -> Verdict {
        let Self { shared, claiming } = self;
        let (seen, now) = (known.get(), shared.clock.now());
        let asked = shared.change(|schedule| claiming.sent(schedule, queued, seen, now));
        let ask = Ask::default().with_floor(asked.floor).with_queued(queued);
        let claim = claiming.claim().expect("it was enrolled before");
        let answer = shared.store.acquire(claim, ask, limit).await;
        let (seen, now) = (known.get(), shared.clock.now());
        shared.change(|schedule| claiming.answered(schedule, asked, answer, seen, now))
    }

    /// Takes in the notice of a grant. Returns `None` if the store has to be asked.
    pub(crate) fn handed_over(&mut self, handover: &Handover, known: &Floor) -> Option<NewLease> {
        let Self { shared, claiming } = self;
        let (seen, now) = (known.get(), shared.clock.now());
        shared.change(|schedule| claiming.handed_over(schedule, handover, seen, now))
    }

    /// Waits until the current claim is ended from outside; for ever while there is none.
    pub(crate) async fn shut_down(of: Option<&Self>) {
        match of.and_then(|pending| pending.claiming.signal()) {
            Some(signal) => signal.token().cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Releases a grant that cannot be used, so that the next claim does not find the name taken by this one.
    pub(crate) async fn give_back(&self, leaving: Option<Leaving>) {
        if let Some(leaving) = leaving {
            self.shared.release(leaving).await;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.has_no_claim() && !self.shared.home.is_forked() {
            let now = self.shared.clock.now();
            let claiming = &mut self.claiming;
            (self.shared).change(|schedule| claiming.given_up(schedule, now));
        }
    }
}

/// From the grant to the end of a lease.
impl Shared {
    /// Begins the limits of a lease, when its caller receives it.
    pub(crate) fn limit(&self, id: LeaseId, limits: Limits, now: Instant) {
        self.change(|schedule| schedule.limit(id, limits, now));
    }

    /// Ends the enrollment of a lease before the caller sends its release. Returns the release, or `None` if there is
    /// nothing to release, and whether the lease was held until then. If the caller does not report the answer in time,
    /// the loop sends the release.
    pub(crate) fn withdraw(
        &self,
        id: LeaseId,
        keep_for: Option<Duration>,
    ) -> (Option<Leaving>, bool) {
        let now = self.clock.now();
        self.change(|schedule| schedule.withdraw(id, keep_for, now))
    }

    /// Ends the enrollment of a lease, leaves the release to the loop, and asks the store to keep the name for this
    /// long. Returns whether the lease was held until then. Never blocks, never fails.
    pub(crate) fn leave(&self, id: LeaseId, keep_for: Option<Duration>) -> bool {
        let now = self.clock.now();
        self.change(|schedule| schedule.leave(id, keep_for, now))
    }

    /// Sends a release for its caller and records the answer. If the future is dropped before the answer, the loop
    /// sends the release.
    pub(crate) async fn release(&self, leaving: Leaving) -> ReleaseOutcome {
        self.release_by(&*self.store, leaving).await
    }

    /// The same, through this connection.
    pub(super) async fn release_by(&self, store: &dyn Store, leaving: Leaving) -> ReleaseOutcome {
        let (keep_for, limit) = (leaving.keep_for, leaving.limit);
        let mut sent = SentRelease(self, Some(leaving));
        let leaving = sent.1.as_ref().expect("it is answered below");
        let answer = store.release(&leaving.name, leaving.holder, keep_for, limit);
        let answer = answer.await;
        let leaving = sent.1.take().expect("it is answered once");
        let now = self.clock.now();
        self.change(|schedule| leaving.answered(schedule, answer, now))
    }
}

/// A release that the loop sends if its caller gives up before the answer.
struct SentRelease<'a>(&'a Shared, Option<Leaving>);

impl Drop for SentRelease<'_> {
    fn drop(&mut self) {
        let Self(shared, leaving) = self;
        if let Some(leaving) = leaving.take()
            && !shared.home.is_forked()
        {
            let now = shared.clock.now();
            shared.change(|schedule| leaving.given_up(schedule, now));
        }
    }
}
