//! Acquires a lease: asks the store once, or as often as it takes while another holder has the name.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
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
use crate::watchdog::claiming::{Patience, USELESS_GRANTS};
use crate::watchdog::schedule::Limits;
use crate::watchdog::{Answered, Pending, Withdrawal};

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
    pub(super) clock: Arc<dyn Clock>,
}

/// The outcome of one attempt.
enum Looked {
    Granted(Lease),
    Held(Box<Held>),
    /// The grant is of no use: ask again.
    Anew,
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

    fn request_limit(&self) -> Duration {
        term::request_limit(self.timing.ttl())
    }

    /// Begins a request at the watchdog, without a claim.
    async fn request(&self, patience: Patience) -> Result<Pending, Error> {
        let watchdog = self.client.watchdog().await?;
        Ok(watchdog.request(self.floor, patience))
    }

    /// The same, within the rest of the caller's limit. If the caller set none, only the limit of the watchdog's start
    /// holds: a start takes longer than a request, whose limit has to fit into a short ttl.
    async fn request_by(&self, patience: Patience, ends_at: Instant) -> Result<Pending, Error> {
        if ends_at == Instant::FAR_FUTURE {
            return self.request(patience).await;
        }
        // Even a wait of zero makes one look, with time for its answer.
        let ends_at = ends_at.max(self.clock.now().after(LEAST_LIMIT));
        tokio::select! {
            biased;
            request = self.request(patience) => request,
            () = self.clock.nap_until(ends_at) => Err(self.no_answer()),
        }
    }

    /// The highest token that this client has seen by now.
    fn seen(&self) -> Option<Token> {
        self.known.get()
    }

    pub(super) async fn try_once(&self, timer: &AcquireTimer<'_>) -> Result<Attempt, Error> {
        let patience = Patience::Grants(USELESS_GRANTS);
        let mut pending = None;
        let mut trigger = Trigger::First;
        loop {
            timer.attempted(std::mem::replace(&mut trigger, Trigger::Retry));
            let asked = self.ask(&mut pending, patience, None, Instant::FAR_FUTURE);
            match asked.await? {
                Looked::Granted(lease) => return Ok(Attempt::Acquired(lease)),
                Looked::Held(held) => return Ok(Attempt::Held(held)),
                Looked::Anew => {}
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
        self.client.check_open()?;
        let place = self.client.hub.join(&self.name, self.order, self.outage);
        let ends_at = ends_at.unwrap_or(Instant::FAR_FUTURE);
        let mut pending = None;
        let mut trigger = Some(Trigger::First);
        loop {
            let mut look = self.turn(&place, pending.as_ref(), ends_at).await?;
            timer.attempted(trigger.unwrap_or(look.trigger()));
            let now = self.clock.now();
            let queued = look.queue_position();
            let patience = Patience::Until(ends_at);
            let asked = self.ask(&mut pending, patience, queued, ends_at);
            let (found, why) = match asked.await {
                Ok(Looked::Granted(lease)) => {
                    look.granted(self.timing.ttl());
                    return Ok(lease);
                }
                Ok(Looked::Anew) => {
                    trigger = Some(Trigger::Retry);
                    continue;
                }
                Ok(Looked::Held(held)) => {
                    timer.waits(held.remaining);
                    (Found::Held(Arc::from(held)), None)
                }
                Err(error) if error.is_transient() => (Found::Failed(error.clone()), Some(error)),
                Err(error) => return Err(error),
            };
            look.found(found.clone());
            trigger = why.as_ref().map(|_| Trigger::Retry);
            match why {
                Some(error) if self.outage == OutagePolicy::Fail => return Err(error),
                _ if now >= ends_at => return Err(self.timed_out(found)),
                _ => {}
            }
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
    fn timed_out(&self, found: Found) -> Error {
        match found {
            Found::Failed(error) => error,
            Found::Held(held) => {
                let message = format!("acquire failed: the limit ran out name={}", self.name);
                Error::new(ErrorKind::TimedOut, message).with_source(Held::clone(&held))
            }
        }
    }

    fn too_late(&self) -> Error {
        let message = format!(
            "acquire failed: every grant came too late name={}",
            self.name
        );
        Error::new(ErrorKind::TimedOut, message)
    }

    /// Sends one attempt. If no claim is enrolled, enrolls one first. A grant takes the enrollment over; an attempt
    /// without an answer leaves it in doubt.
    async fn ask(
        &self,
        slot: &mut Option<Pending>,
        patience: Patience,
        queued: Option<Queued>,
        ends_at: Instant,
    ) -> Result<Looked, Error> {
        if slot.is_none() {
            *slot = Some(self.request_by(patience, ends_at).await?);
        }
        let left = ends_at.since(self.clock.now());
        let limit = self.request_limit().min(left.max(LEAST_LIMIT));
        let pending = slot.as_mut().expect("it was begun above");
        if pending.claim().is_none() {
            let holder = Holder::draw(self.client.id)?;
            let (name, ttl, info) = (self.name.clone(), self.timing.ttl(), self.info.clone());
            let claim = Claim::new(name, holder, ttl, info);
            let shard = self.client.store.shard(&self.name);
            pending.enroll((claim, shard), (self.timing, self.limits), self.seen())?;
        }
        let asked = pending.send(self.seen());
        let claim = pending.claim().expect("it was enrolled above");
        let ask = Ask::default().with_floor(asked.floor).with_queued(queued);
        let answer = self.client.store.acquire(claim, ask, limit).await;
        match pending.answered(asked, answer, self.seen())? {
            Answered::Taken(held) => Ok(Looked::Held(held)),
            Answered::AskAgain => Ok(Looked::Anew),
            Answered::AskAnew(withdrawal) => {
                self.give_back(withdrawal).await;
                Ok(Looked::Anew)
            }
            Answered::TooLate(withdrawal) => {
                self.give_back(withdrawal).await;
                Err(self.too_late())
            }
            Answered::TokenFell { token, seen } => Err(self.token_fell(token, seen)),
            Answered::Granted {
                enrollment,
                claim,
                token,
                held_since,
            } => {
                self.known.raise(token);
                telemetry::granted(self.group(), claim.name.as_str(), token.get());
                Ok(Looked::Granted(Lease {
                    enrollment,
                    holder: claim.holder,
                    timing: self.timing,
                    held_since,
                }))
            }
        }
    }

    fn no_answer(&self) -> Error {
        let message = format!(
            "acquire failed: the store gave no answer in time name={}",
            self.name
        );
        Error::new(ErrorKind::TimedOut, message)
    }

    /// Releases a grant that is of no use, so that the next claim does not find the name taken by this one.
    async fn give_back(&self, withdrawal: Option<Withdrawal>) {
        if let Some(withdrawal) = withdrawal {
            withdrawal.send().await;
        }
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
