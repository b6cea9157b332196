//! The way from a name to a lease: one try, a wait, or a piece of work done under it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::{Client, Inner};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::lease::{Lease, Parts};
use crate::name::Name;
use crate::store::{Answer, Claim, Grant, Held, Info};
use crate::telemetry;
use crate::term::{self, Instant, Timing};
use crate::token::Token;
use crate::waiting::Pace;
use crate::watchdog::Enrollment;
use crate::watchdog::schedule::Limits;

/// The least time for an answer, also where the limit of the wait leaves less.
const LEAST_LIMIT: Duration = Duration::from_millis(50);
/// How often a waiter looks again.
const PACE: Pace = Pace {
    cap: Pace::WITHOUT_NOTICES,
};
/// How often a grant may come too late to be of use before a try gives up.
const LATE_GRANTS: u32 = 3;

/// The answer to a try.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// It is ours.
    Acquired(Lease),
    /// Somebody else has it. Boxed, since the facts are many.
    Held(Box<Held>),
}

/// What a waiting claim does when the store cannot be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Fails with the store's error.
    #[default]
    Fail,
    /// Goes on trying, within the limit of the wait.
    WaitOut,
}

/// A request for a name, with options of its own. Everything is checked when it is sent.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is sent by one of its acquiring methods"]
pub struct Request {
    client: Client,
    name: String,
    ttl: Option<Duration>,
    margin: Option<Duration>,
    label: Option<String>,
    floor: Option<Token>,
    limits: Limits,
    outage: Outage,
}

impl Request {
    pub(super) fn new(client: Client, name: &str) -> Self {
        Self {
            client,
            name: name.into(),
            ttl: None,
            margin: None,
            label: None,
            floor: None,
            limits: Limits::default(),
            outage: Outage::default(),
        }
    }

    /// How long the store keeps the lease without a renewal; the client's by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How much earlier than the store we hold the lease to be over.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// What others are told about the holder; the client's by default.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The token is to be above this one.
    pub fn floor(mut self, floor: Token) -> Self {
        self.floor = Some(floor);
        self
    }

    /// The longest hold; after it the holder is cancelled.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.limits.max_hold = Some(most);
        self
    }

    /// The longest time without a [`Lease::progress`]; after it the holder is cancelled.
    pub fn progress_within(mut self, most: Duration) -> Self {
        self.limits.progress_within = Some(most);
        self
    }

    /// What to do while the store cannot be reached.
    pub fn on_outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// Takes the name if it is free: one round trip.
    ///
    /// # Errors
    /// `Invalid` for a bad value of the request; `Unavailable`, `TimedOut`, `Denied` and `Misconfigured` from the store;
    /// `Closed` after a shutdown. Being held by somebody else is no error.
    ///
    /// # Cancel safety
    /// Dropped, the claim is released in the background should the store have granted it.
    pub async fn try_acquire(self) -> Result<Attempt, Error> {
        let call = Call::new(self)?;
        let started = call.clock().now();
        let attempt = call.try_once(call.request_limit()).await;
        let outcome = match &attempt {
            Ok(Attempt::Acquired(_)) => "acquired",
            Ok(Attempt::Held(_)) => "held",
            Err(_) => "error",
        };
        telemetry::acquire_ended(outcome, call.clock().now().since(started));
        attempt
    }

    /// Takes the name, however long somebody else has it.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire(self) -> Result<Lease, Error> {
        self.wait(None).await
    }

    /// Takes the name, waiting for it no longer than `limit`.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire); and `TimedOut` when the limit runs out while somebody else has the name,
    /// with the [`Held`] that was last seen as its source.
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire_within(self, limit: Duration) -> Result<Lease, Error> {
        self.wait(Some(limit)).await
    }

    /// Does the work while the name is held: waits for the lease, does the work, releases. When the lease is lost the
    /// work is dropped at its next await. A panic of the work is passed on after the release. What the work returns, an
    /// error of its own included, is passed through.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); and `Lost` when the lease was lost before the work ended.
    ///
    /// # Cancel safety
    /// Dropped, the work is dropped and the lease released in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T, Error> {
        let lease = self.acquire().await?;
        let ended = {
            let mut work = pin!(work(&lease));
            let work = std::future::poll_fn(|context| {
                match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            });
            tokio::select! {
                biased;
                _ = lease.lost() => None,
                ended = work => Some(ended),
            }
        };
        let held = lease.check();
        match ended {
            None => Err(held.expect_err("the loss was told")),
            Some(ended) => {
                lease.release().await;
                ended.map_err(|panic| resume_unwind(panic))
            }
        }
    }

    async fn wait(self, limit: Option<Duration>) -> Result<Lease, Error> {
        let call = Call::new(self)?;
        let started = call.clock().now();
        let lease = call.wait(limit.map(|limit| started.after(limit))).await;
        let outcome = match &lease {
            Ok(_) => "acquired",
            Err(error) if error.kind() == ErrorKind::TimedOut => "timed_out",
            Err(_) => "error",
        };
        telemetry::acquire_ended(outcome, call.clock().now().since(started));
        lease
    }
}

/// A request whose values are checked.
struct Call {
    client: Arc<Inner>,
    name: Name,
    timing: Timing,
    limits: Limits,
    info: Arc<Info>,
    floor: Option<Token>,
    outage: Outage,
    clock: Arc<dyn Clock>,
}

/// A claim and its place in the schedule. Dropped, it is released if it may have been granted.
struct Pending {
    enrollment: Enrollment,
    claim: Claim,
}

/// What one attempt brought.
enum Asked {
    Granted(Lease),
    Held(Box<Held>),
    /// Granted, but too late to be of use: to be asked anew, by another holder.
    Late,
}

impl Call {
    fn new(request: Request) -> Result<Self, Error> {
        let client = request.client.inner;
        let timing = match (request.ttl, request.margin) {
            (None, None) => client.timing,
            (ttl, margin) => Timing::new(ttl.unwrap_or(client.timing.ttl()), margin)?,
        };
        let info = match &request.label {
            None => client.info.clone(),
            Some(label) => Arc::new(Info::here(Some(label))?),
        };
        for limit in [request.limits.max_hold, request.limits.progress_within] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(Error::invalid(
                    "acquire refused: a limit of 0s would end the lease at once; expected more",
                ));
            }
        }
        Ok(Self {
            name: Name::new(&request.name)?,
            timing,
            limits: request.limits,
            info,
            floor: request.floor,
            outage: request.outage,
            clock: client.store.clock(),
            client,
        })
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn request_limit(&self) -> Duration {
        term::request_limit(self.timing.ttl())
    }

    async fn enroll(&self) -> Result<Pending, Error> {
        let watchdog = self.client.watchdog().await?;
        let holder = Holder::draw(self.client.id)?;
        let enrollment = watchdog.enroll(self.name.clone(), holder, self.timing, self.limits)?;
        let floor = self.floor.max(self.client.floor(&self.name));
        let (name, ttl, info) = (self.name.clone(), self.timing.ttl(), self.info.clone());
        Ok(Pending {
            enrollment,
            claim: Claim::new(name, holder, ttl, info).with_floor(floor),
        })
    }

    async fn try_once(&self, limit: Duration) -> Result<Attempt, Error> {
        let mut pending = None;
        for _ in 0..LATE_GRANTS {
            match self.ask(&mut pending, limit).await? {
                Asked::Granted(lease) => return Ok(Attempt::Acquired(lease)),
                Asked::Held(held) => return Ok(Attempt::Held(held)),
                Asked::Late => {}
            }
        }
        let message = format!(
            "acquire failed: every grant came too late lease={}",
            self.name
        );
        Err(Error::new(ErrorKind::TimedOut, message))
    }

    /// Asks until it is granted or `ends_at` has come; the last look is at that moment.
    async fn wait(&self, ends_at: Option<Instant>) -> Result<Lease, Error> {
        let ends_at = ends_at.unwrap_or(Instant::FAR_FUTURE);
        let mut pending = None;
        loop {
            let now = self.clock.now();
            // A wait of no time at all still looks once, with time for the answer.
            let limit = self
                .request_limit()
                .min(ends_at.since(now).max(LEAST_LIMIT));
            let (pause, why) = match self.ask(&mut pending, limit).await {
                Ok(Asked::Granted(lease)) => return Ok(lease),
                Ok(Asked::Late) => continue,
                Ok(Asked::Held(held)) => {
                    let pause = PACE.pause(held.remaining, fastrand::u16(..));
                    (pause, self.timed_out().with_source(*held))
                }
                Err(error) if self.outage == Outage::WaitOut && is_open(error.kind()) => {
                    (PACE.pause(None, fastrand::u16(..)), error)
                }
                Err(error) => return Err(error),
            };
            if now >= ends_at {
                return Err(why);
            }
            self.sleep(now.after(pause).min(ends_at), pending.as_ref())
                .await?;
        }
    }

    /// Sleeps, unless the client is shut down.
    async fn sleep(&self, until: Instant, pending: Option<&Pending>) -> Result<(), Error> {
        let Some(Pending { enrollment, .. }) = pending else {
            self.clock.sleep_until(until).await;
            return Ok(());
        };
        tokio::select! {
            biased;
            () = enrollment.signal().token().cancelled() => Err(shut_down()),
            () = self.clock.sleep_until(until) => Ok(()),
        }
    }

    fn timed_out(&self) -> Error {
        let message = format!("acquire failed: the limit ran out lease={}", self.name);
        Error::new(ErrorKind::TimedOut, message)
    }

    /// One attempt of a claim, enrolled first if it is not yet. A grant takes the enrollment along; an attempt without an
    /// answer leaves it in doubt.
    async fn ask(&self, slot: &mut Option<Pending>, limit: Duration) -> Result<Asked, Error> {
        if slot.is_none() {
            *slot = Some(self.enroll().await?);
        }
        let pending = slot.as_ref().expect("it was enrolled above");
        let sending = pending.enrollment.send();
        let sent_at = sending.sent_at;
        let answer = self.client.store.acquire(&pending.claim, limit).await;
        let error = answer.as_ref().err();
        if error.is_none_or(|error| !is_open(error.kind())) {
            pending.enrollment.answered(sending);
        }
        match answer? {
            Answer::Held(held) => Ok(Asked::Held(held)),
            Answer::Granted(grant) => {
                let pending = slot.take().expect("it was asked for");
                self.granted(pending, grant, sent_at)
            }
        }
    }

    /// Makes a lease of a grant, if it came in time and its token did not fall.
    fn granted(&self, pending: Pending, grant: Grant, sent_at: Instant) -> Result<Asked, Error> {
        let Pending { enrollment, claim } = pending;
        let held = enrollment.hold(self.timing.term(sent_at));
        if let Some(floor) = claim.floor.filter(|floor| grant.token <= *floor) {
            telemetry::token_fell(self.name.as_str(), grant.token.get(), floor.get());
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "acquire refused: the token fell, so the store forgot a grant lease={} token={} seen={floor}",
                    self.name, grant.token
                ),
            ));
        }
        let term = held.map_err(|_| shut_down())?;
        self.client.raise_floor(&self.name, grant.token);
        if !term.is_fresh(self.clock.now()) {
            return Ok(Asked::Late);
        }
        Ok(Asked::Granted(Lease::new(Parts {
            enrollment,
            store: self.client.store.clone(),
            name: self.name.clone(),
            holder: claim.holder,
            token: grant.token,
            timing: self.timing,
            held_since: sent_at,
            pid: self.client.pid,
            floors: self.client.floors.clone(),
        })))
    }
}

/// Whether after such an error the claim may yet be carried out.
fn is_open(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
}

fn shut_down() -> Error {
    Error::new(
        ErrorKind::Closed,
        "acquire refused: the client was shut down",
    )
}
