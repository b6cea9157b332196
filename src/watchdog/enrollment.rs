//! The client's way into the schedule: a request that is under way, and the view of a lease. Each drives the schedule
//! with the clock, and wakes the loop where the schedule asks for it.

use std::sync::Arc;
use std::time::Duration;

use super::claiming::{Claiming, Patience, Verdict};
use super::schedule::{LeaseId, Leaving, Limits, ReleaseOutcome};
use super::signal::Signal;
use super::{Shared, Watchdog};
use crate::error::Error;
use crate::floors::Floor;
use crate::name::Name;
use crate::store::{Ask, Claim, Queued};
use crate::term::Timing;
use crate::token::Token;

impl Watchdog {
    /// Begins a request, without a claim.
    pub(crate) fn request(&self, floor: Option<Token>, patience: Patience) -> Pending {
        Pending {
            shared: self.shared.clone(),
            signal: None,
            claiming: Claiming::new(floor, patience),
        }
    }
}

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
        bounds: (Timing, Limits),
        known: &Floor,
    ) -> Result<(), Error> {
        let Shared { store, clock, .. } = &*self.shared;
        let signal = Arc::new(Signal::new(clock.now()));
        self.signal = Some(signal.clone());
        let (shard, seen) = (store.shard(&claim.name), known.get());
        let claiming = &mut self.claiming;
        let enroll =
            |schedule: &mut _| claiming.enroll(schedule, (claim, shard), bounds, signal, seen);
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
        let Self {
            shared, claiming, ..
        } = self;
        let now = shared.clock.now();
        let asked = claiming.sent(&mut shared.schedule(), known.get(), now);
        let ask = Ask::default().with_floor(asked.floor).with_queued(queued);
        let claim = claiming.claim().expect("it was enrolled before");
        let answer = shared.store.acquire(claim, ask, limit).await;
        let (seen, now) = (known.get(), shared.clock.now());
        shared.change(|schedule| claiming.answered(schedule, asked, answer, seen, now))
    }

    /// The view of the lease whose claim was granted.
    pub(crate) fn granted(&mut self, floor: Arc<Floor>) -> LeaseView {
        LeaseView {
            shared: self.shared.clone(),
            signal: self.signal.take().expect("each claim has one"),
            floor,
        }
    }

    /// Waits until the claim that is under way is ended from outside; for ever while there is none.
    pub(crate) async fn shut_down(of: Option<&Self>) {
        match of.and_then(|pending| pending.signal.as_ref()) {
            Some(signal) => signal.token().cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Releases a grant that is of no use, so that the next claim does not find the name taken by this one.
    pub(crate) async fn give_back(&self, leaving: Option<Leaving>) {
        if let Some(leaving) = leaving {
            release(&self.shared, leaving).await;
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

/// A view of a lease. It keeps no lease alive.
#[derive(Debug, Clone)]
pub(crate) struct LeaseView {
    pub(crate) shared: Arc<Shared>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) floor: Arc<Floor>,
}

impl LeaseView {
    /// Ends the enrollment of this lease before the caller sends its release. Returns the release, or `None` if there
    /// is nothing to release, and whether the lease was held until then. If the caller does not report the answer in
    /// time, the loop sends the release.
    pub(crate) fn withdraw(
        &self,
        id: LeaseId,
        keep_for: Option<Duration>,
    ) -> (Option<Leaving>, bool) {
        let now = self.shared.clock.now();
        let ended = (self.shared).change(|schedule| schedule.withdraw(id, keep_for, now));
        self.wake_handles();
        ended
    }

    /// Sends the release and takes in its answer. If the future is dropped before the answer, the loop sends the
    /// release.
    pub(crate) async fn release(&self, leaving: Leaving) -> ReleaseOutcome {
        release(&self.shared, leaving).await
    }

    /// Ends the enrollment of this lease, leaves the release to the loop, and has the name kept for this long. Returns
    /// whether the lease was held until then. Never blocks, never fails.
    pub(crate) fn leave(&self, id: LeaseId, keep_for: Option<Duration>) -> bool {
        let now = self.shared.clock.now();
        let was_held = (self.shared).change(|schedule| schedule.leave(id, keep_for, now));
        self.wake_handles();
        was_held
    }

    pub(crate) fn name(&self) -> &Name {
        &self.floor.name
    }

    /// Wakes the tasks that wait at handles of the lease, whose guard has ended.
    fn wake_handles(&self) {
        self.shared.wake_users(self.name(), || self.signal.wake());
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
            shared.change(|schedule| leaving.given_up(schedule, now));
        }
    }
}
