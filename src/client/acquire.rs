//! Acquires a lease: asks the store once, or repeatedly while another holder has the name.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Inner;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::floors::Floor;
use crate::holder::Holder;
use crate::lease::{Lease, LeaseHandle};
use crate::name::Name;
use crate::store::{Claim, Held, HeldState, Info, Queued};
use crate::telemetry::{self, Trigger};
use crate::term::{self, Instant, Timing};
use crate::token::Token;
use crate::waiting::{OutagePolicy, Reports, WaitFor, no_grant};
use crate::watchdog::claiming::{GiveUp, NewLease, USELESS_GRANTS, Verdict};
use crate::watchdog::{Pending, Shared};

/// Minimum time for an answer, even if the limit of the wait leaves less.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

/// The outcome of one attempt to acquire a lease. The enum is complete: a `match` on it needs no `_` arm.
#[derive(Debug)]
pub enum Attempt {
    /// The name was free, or its lease had run out: this client holds it now.
    Acquired(Lease),
    /// Another holder has the name. Boxed, because the facts about it are large.
    Held(Box<Held>),
}

/// The options of a request that need no check, or none without the others.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) floor: Option<Token>,
    pub(super) outage: OutagePolicy,
    pub(super) is_confirmed: bool,
    pub(super) reports: Reports,
    /// Whether the wait is over once a poll finds the name kept by its last holder.
    pub(super) ends_when_kept: bool,
}

impl Options {
    /// Returns what a poll found, once it ends the wait.
    async fn end(&self) -> Box<Held> {
        let reports = self.reports.as_ref().filter(|_| self.ends_when_kept);
        let mut seen = reports.map(watch::Sender::subscribe);
        while let Some(seen) = &mut seen
            && seen.changed().await.is_ok()
        {
            if let Some(Ok(held)) = &*seen.borrow_and_update()
                && held.state == HeldState::Kept
            {
                return Box::new(held.clone());
            }
        }
        std::future::pending().await
    }
}

/// A request whose values are checked.
#[derive(Clone)]
pub(super) struct Acquiring {
    pub(super) client: Arc<Inner>,
    pub(super) name: Name,
    pub(super) timing: Timing,
    pub(super) info: Arc<Info>,
    pub(super) options: Options,
    /// The highest token of the name that the client has seen. The client remembers it while it waits for the name.
    pub(super) known: Arc<Floor>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Acquiring {
    /// Returns the time limit of a request: that of its ttl, or what is left of the caller's. Even a wait of zero makes
    /// its polls, with time for their answers.
    pub(super) fn limit(&self, ends_at: Option<Instant>) -> Duration {
        let left = ends_at
            .unwrap_or(Instant::FAR_FUTURE)
            .since(self.clock.now());
        term::answer_limit(self.timing.ttl()).min(left.max(LEAST_LIMIT))
    }

    /// Begins a request at the watchdog, without a claim, within the rest of the caller's limit. Without such a limit
    /// only that of the watchdog's start applies: a start takes longer than a request, whose limit has to fit into a
    /// short ttl.
    async fn request(&self, ends_at: Option<Instant>) -> Result<Pending, Error> {
        let begun = async {
            let give_up = ends_at.map_or(GiveUp::AfterGrants(USELESS_GRANTS), GiveUp::At);
            let watchdog = self.client.watchdog().await?;
            Ok(watchdog.request(self.options.floor, give_up))
        };
        let Some(ends_at) = ends_at.filter(|at| *at < Instant::FAR_FUTURE) else {
            return begun.await;
        };
        let ends_at = ends_at.max(self.clock.now().after(LEAST_LIMIT));
        tokio::select! {
            biased;
            request = begun => request,
            () = self.clock.nap_until(ends_at) => Err(self.no_answer()),
        }
    }

    /// Asks once: until `ends_at`, or without a limit.
    pub(super) async fn try_once(&self, ends_at: Option<Instant>) -> Result<Attempt, Error> {
        self.attempt(&mut None, Trigger::First, None, ends_at).await
    }

    /// Asks until the answer is useful or the request gives up: at `ends_at`, or after a few grants if the caller does
    /// not wait. A grant takes over the enrollment.
    async fn attempt(
        &self,
        slot: &mut Option<Pending>,
        mut trigger: Trigger,
        queued: Option<Queued>,
        ends_at: Option<Instant>,
    ) -> Result<Attempt, Error> {
        loop {
            self.client.sink.attempted(trigger);
            trigger = Trigger::Retry;
            if slot.is_none() {
                *slot = Some(self.request(ends_at).await?);
            }
            let pending = slot.as_mut().expect("it was begun above");
            match self.ask(pending, queued, ends_at).await? {
                Verdict::Granted(granted) => {
                    let lease = self.hold(pending.shared.clone(), granted);
                    return Ok(Attempt::Acquired(lease));
                }
                Verdict::Taken(held) => return Ok(Attempt::Held(held)),
                Verdict::Failed(error) => return Err(error),
                Verdict::Again(leaving) => pending.give_back(leaving).await,
                Verdict::TooLate(leaving) => {
                    pending.give_back(leaving).await;
                    return Err(self.too_late());
                }
                Verdict::TokenFell { token, seen } => return Err(self.token_fell(token, seen)),
            }
        }
    }

    /// Makes the guard, which takes over the enrollment.
    fn hold(&self, watchdog: Arc<Shared>, granted: NewLease) -> Lease {
        let token = granted.token;
        let handle = LeaseHandle {
            watchdog,
            signal: granted.signal,
            floor: self.known.clone(),
            holder: granted.claim.holder,
            shown: None,
        };
        let mut lease = Lease::granted(handle, granted.id, self.timing, granted.held_since);
        lease.permit = self.info.permit;
        // After the guard exists: this runs user code, which may panic.
        self.known.raise(token);
        self.client.sink.granted(&self.name, token);
        lease
    }

    /// Sends one attempt. If no claim is enrolled, enrolls one first. An attempt without an answer leaves its claim in
    /// doubt.
    async fn ask(
        &self,
        pending: &mut Pending,
        queued: Option<Queued>,
        ends_at: Option<Instant>,
    ) -> Result<Verdict, Error> {
        let limit = self.limit(ends_at);
        if pending.has_no_claim() {
            let holder = Holder::draw(self.client.id)?;
            let (name, ttl, info) = (self.name.clone(), self.timing.ttl(), self.info.clone());
            let claim = Claim::new(name, holder, ttl, info);
            pending.enroll(claim, self.timing, &self.known)?;
        }
        Ok(pending.ask(queued, limit, &self.known).await)
    }

    /// Asks whenever it is this waiter's turn, until the lease is granted, `ends_at` has come, or a poll ends the wait.
    /// The last poll is at that moment.
    pub(super) async fn wait(&self, ends_at: Instant) -> Result<Attempt, Error> {
        let waited = self.wait_or(ends_at, pin!(self.options.end())).await?;
        Ok(waited.map_or_else(Attempt::Held, Attempt::Acquired))
    }

    /// Waits as [`wait`](Self::wait) does, until `other` is ready. If a claim is under way then, waits for its answer
    /// first, so that no claim is left in doubt.
    pub(super) async fn wait_or<T>(
        &self,
        ends_at: Instant,
        mut other: Pin<&mut impl Future<Output = T>>,
    ) -> Result<Result<Lease, T>, Error> {
        self.client.check_open()?;
        let (reports, outage) = (self.options.reports.clone(), self.options.outage);
        let place = (self.client.hub).join(&self.name, WaitFor::Grant, outage, reports);
        let trusts_notices = self.client.store.facts().trusts_notices && !self.options.is_confirmed;
        let (mut pending, mut first) = (None::<Pending>, Some(Trigger::First));
        loop {
            let mut turn = tokio::select! {
                biased;
                other = &mut other => return Ok(Err(other)),
                () = Pending::shut_down(pending.as_ref()) => return Err(Error::shut_down()),
                turn = place.turn(ends_at) => turn?,
            };
            if let Some(handover) = turn.take_handover().filter(|_| trusts_notices)
                && let Some(pending) = &mut pending
                && let Some(granted) = pending.handed_over(&handover, &self.known)
            {
                let lease = self.hold(pending.shared.clone(), granted);
                turn.granted(self.timing.ttl());
                return Ok(Ok(lease));
            }
            let now = self.clock.now();
            let trigger = first.take().unwrap_or(turn.trigger());
            let queued = turn.queued(self.timing.ttl());
            let asked = self.attempt(&mut pending, trigger, queued, Some(ends_at));
            let found = match asked.await {
                Ok(Attempt::Acquired(lease)) => {
                    turn.granted(self.timing.ttl());
                    return Ok(Ok(lease));
                }
                Ok(Attempt::Held(held)) => {
                    self.client.sink.waits(&self.name, held.remaining);
                    Ok(Arc::from(held))
                }
                Err(error) if error.is_transient() => Err(error),
                Err(error) => return Err(error),
            };
            turn.found(found.clone());
            first = found.is_err().then_some(Trigger::Retry);
            if now >= ends_at || (first.is_some() && outage == OutagePolicy::Fail) {
                return Err(no_grant(&self.name, found));
            }
        }
    }

    pub(super) fn too_late(&self) -> Error {
        self.failed_in_time("every grant came too late")
    }

    pub(super) fn no_answer(&self) -> Error {
        self.failed_in_time("the store gave no answer in time")
    }

    fn failed_in_time(&self, why: &str) -> Error {
        let message = format!("acquire failed: {why} name={}", self.name);
        Error::new(ErrorKind::TimedOut, message)
    }

    fn token_fell(&self, token: Token, seen: Token) -> Error {
        telemetry::token_fell(self.name.as_str(), token.get(), seen.get());
        Error::new(
            ErrorKind::Misconfigured,
            format!(
                "acquire refused: the token fell, so the store forgot a grant name={} token={token} seen={seen}",
                self.name
            ),
        )
    }
}
