//! Acquires a lease: asks the store once, or as often as it takes while another holder has the name.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::request::Looks;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::floors::Floor;
use crate::group::Group;
use crate::holder::Holder;
use crate::lease::Lease;
use crate::name::Name;
use crate::store::{Ask, Claim, Held, Info, Queued};
use crate::telemetry::{self, AcquireTimer, Trigger};
use crate::term::{self, Instant, Timing};
use crate::token::Token;
use crate::waiting::{Found, Look, OutagePolicy, Place, WaitOrder};
use crate::watchdog::Pending;
use crate::watchdog::claiming::{Patience, USELESS_GRANTS, Verdict};
use crate::watchdog::schedule::Limits;

/// The least time for an answer, even if the limit of the wait leaves less.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

/// The outcome of one attempt to acquire a lease. The enum is complete: a `match` on it needs no `_` arm.
#[derive(Debug)]
pub enum Attempt {
    /// The name was free, or its lease had run out: this client holds it now.
    Acquired(Lease),
    /// Another holder has the name. Boxed, because what is known of it is large.
    Held(Box<Held>),
}

/// A request whose values are checked.
pub(super) struct Acquiring {
    pub(super) client: Arc<Inner>,
    pub(super) name: Name,
    pub(super) timing: Timing,
    pub(super) limits: Limits,
    pub(super) info: Arc<Info>,
    pub(super) floor: Option<Token>,
    /// The highest token of the name that the client has seen. The client remembers it while it waits for the name.
    pub(super) known: Floor,
    pub(super) outage: OutagePolicy,
    pub(super) order: WaitOrder,
    pub(super) looks: Looks,
    pub(super) clock: Arc<dyn Clock>,
}

impl Acquiring {
    /// The group in which the lease is counted.
    pub(super) fn group(&self) -> Group {
        self.client.group
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) fn request_limit(&self) -> Duration {
        term::request_limit(self.timing.ttl())
    }

    /// Begins a request at the watchdog, without a claim, within the rest of the caller's limit. If the caller set
    /// none, only the limit of the watchdog's start holds: a start takes longer than a request, whose limit has to fit
    /// into a short ttl.
    async fn request(&self, patience: Patience, ends_at: Instant) -> Result<Pending, Error> {
        let begun = async {
            let watchdog = self.client.watchdog().await?;
            Ok(watchdog.request(self.floor, patience))
        };
        if ends_at == Instant::FAR_FUTURE {
            return begun.await;
        }
        // Even a wait of zero makes one look, with time for its answer.
        let ends_at = ends_at.max(self.clock.now().after(LEAST_LIMIT));
        tokio::select! {
            biased;
            request = begun => request,
            () = self.clock.nap_until(ends_at) => Err(self.no_answer()),
        }
    }

    pub(super) async fn try_once(&self, timer: &AcquireTimer<'_>) -> Result<Attempt, Error> {
        let patience = Patience::Grants(USELESS_GRANTS);
        let asked = (timer, Trigger::First);
        self.attempt(&mut None, patience, None, Instant::FAR_FUTURE, asked)
            .await
    }

    /// Asks until the answer is of use, or the patience is at its end.
    async fn attempt(
        &self,
        pending: &mut Option<Pending>,
        patience: Patience,
        queued: Option<Queued>,
        ends_at: Instant,
        (timer, mut trigger): (&AcquireTimer<'_>, Trigger),
    ) -> Result<Attempt, Error> {
        loop {
            timer.attempted(std::mem::replace(&mut trigger, Trigger::Retry));
            let asked = self.ask(pending, patience, queued, ends_at);
            if let Some(attempt) = asked.await? {
                return Ok(attempt);
            }
        }
    }

    /// Asks whenever it is this waiter's turn, until the lease is granted or `ends_at` has come. The last look is at
    /// that moment.
    pub(super) async fn wait(
        &self,
        ends_at: Option<Instant>,
        timer: &AcquireTimer<'_>,
    ) -> Result<Lease, Error> {
        let never = std::future::pending::<Infallible>();
        let ends_at = ends_at.unwrap_or(Instant::FAR_FUTURE);
        let Ok(lease) = self.wait_or(ends_at, timer, never).await?;
        Ok(lease)
    }

    /// Waits as [`wait`](Self::wait) does, until `other` is ready. A claim that is under way then is answered first, so
    /// that none is left in doubt.
    pub(super) async fn wait_or<T>(
        &self,
        ends_at: Instant,
        timer: &AcquireTimer<'_>,
        other: impl Future<Output = T>,
    ) -> Result<Result<Lease, T>, Error> {
        self.client.check_open()?;
        let mut other = pin!(other);
        let place = self.client.hub.join(&self.name, self.order, self.outage);
        let (mut pending, mut trigger) = (None, Some(Trigger::First));
        loop {
            let mut look = tokio::select! {
                biased;
                other = &mut other => return Ok(Err(other)),
                look = self.turn(&place, pending.as_ref(), ends_at) => look?,
            };
            let now = self.clock.now();
            let asked = (timer, trigger.unwrap_or(look.trigger()));
            let (patience, queued) = (Patience::Until(ends_at), look.queue_position());
            let asked = self.attempt(&mut pending, patience, queued, ends_at, asked);
            let found = match asked.await {
                Ok(Attempt::Acquired(lease)) => {
                    look.granted(self.timing.ttl());
                    return Ok(Ok(lease));
                }
                Ok(Attempt::Held(held)) => {
                    timer.waits(held.remaining);
                    Found::Held(Arc::from(held))
                }
                Err(error) if error.is_transient() => Found::Failed(error),
                Err(error) => return Err(error),
            };
            self.report(&found);
            look.found(found.clone());
            trigger = matches!(found, Found::Failed(_)).then_some(Trigger::Retry);
            if now >= ends_at || (trigger.is_some() && self.outage == OutagePolicy::Fail) {
                return Err(self.timed_out(found));
            }
        }
    }

    pub(super) fn report(&self, found: &Found) {
        if let Some(looks) = &self.looks {
            looks.send_replace(Some(match found {
                Found::Held(held) => Ok(Held::clone(held)),
                Found::Failed(error) => Err(error.clone()),
            }));
        }
    }

    /// Waits for the turn to look, at most until the limit has run out: then a last look is made.
    async fn turn<'a>(
        &self,
        place: &'a Place,
        pending: Option<&Pending>,
        ends_at: Instant,
    ) -> Result<Look<'a>, Error> {
        let shut_down_meanwhile = async {
            match pending {
                Some(pending) => pending.shut_down().await,
                None => std::future::pending().await,
            }
        };
        let limit = async {
            match ends_at {
                Instant::FAR_FUTURE => std::future::pending().await,
                ends_at => self.clock.nap_until(ends_at).await,
            }
        };
        tokio::select! {
            biased;
            () = shut_down_meanwhile => Err(Error::shut_down()),
            look = place.turn() => look,
            () = limit => Look::last(place).map_err(|found| self.timed_out(found)),
        }
    }

    /// The error of a wait whose limit ran out, from what its last look found.
    pub(super) fn timed_out(&self, found: Found) -> Error {
        match found {
            Found::Failed(error) => error,
            Found::Held(held) => {
                let error = self.failed_in_time("the limit ran out");
                error.with_source(Held::clone(&held))
            }
        }
    }

    pub(super) fn too_late(&self) -> Error {
        self.failed_in_time("every grant came too late")
    }

    /// Sends one attempt. If no claim is enrolled, enrolls one first. An attempt without an answer leaves its claim in
    /// doubt. Returns `None` if the grant is of no use, so that the caller asks again.
    async fn ask(
        &self,
        slot: &mut Option<Pending>,
        patience: Patience,
        queued: Option<Queued>,
        ends_at: Instant,
    ) -> Result<Option<Attempt>, Error> {
        if slot.is_none() {
            *slot = Some(self.request(patience, ends_at).await?);
        }
        let left = ends_at.since(self.clock.now());
        let limit = self.request_limit().min(left.max(LEAST_LIMIT));
        let pending = slot.as_mut().expect("it was begun above");
        if pending.claim().is_none() {
            let holder = Holder::draw(self.client.id)?;
            let (name, ttl, info) = (self.name.clone(), self.timing.ttl(), self.info.clone());
            let claim = Claim::new(name, holder, ttl, info);
            let shard = self.client.store.shard(&self.name);
            pending.enroll((claim, shard), (self.timing, self.limits), self.known.get())?;
        }
        let asked = pending.send(self.known.get());
        let claim = pending.claim().expect("it was enrolled above");
        let ask = Ask::default().with_floor(asked.floor).with_queued(queued);
        let answer = self.client.store.acquire(claim, ask, limit).await;
        let verdict = pending.answered(asked, answer, self.known.get());
        self.follow(verdict, pending).await
    }

    /// Does what the verdict on an attempt asks for. A grant takes the enrollment over.
    async fn follow(
        &self,
        verdict: Verdict,
        pending: &mut Pending,
    ) -> Result<Option<Attempt>, Error> {
        match verdict {
            Verdict::Granted {
                id,
                claim,
                token,
                held_since,
            } => {
                let enrollment = pending.granted(id, claim.name);
                self.known.raise(token);
                telemetry::granted(self.group(), self.name(), token.get());
                Ok(Some(Attempt::Acquired(Lease {
                    enrollment,
                    holder: claim.holder,
                    timing: self.timing,
                    held_since,
                    keep_until: Instant::ZERO,
                    shown: None,
                })))
            }
            Verdict::Taken(held) => Ok(Some(Attempt::Held(held))),
            Verdict::Failed(error) => Err(error),
            Verdict::Again(leaving) => {
                pending.give_back(leaving).await;
                Ok(None)
            }
            Verdict::TooLate(leaving) => {
                pending.give_back(leaving).await;
                Err(self.too_late())
            }
            Verdict::TokenFell { token, seen } => Err(self.token_fell(token, seen)),
            Verdict::Closed => Err(Error::shut_down()),
        }
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
