//! The guard that a holder keeps while it works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::fence::{Bearer, Pass, Refusal};
use crate::floors::Floor;
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::telemetry::LeaseLabel;
use crate::term::{Instant, Term, Timing};
use crate::token::Token;
use crate::watchdog::Shared;
pub use crate::watchdog::schedule::ReleaseOutcome;
use crate::watchdog::schedule::{LeaseId, Limits};
use crate::watchdog::signal::Signal;

/// The guard of a held lease, which is renewed until the guard is released or dropped.
///
/// # Guarantees
/// - [`check`](Self::check) never succeeds at or past the deadline: `ttl - margin` after the last confirmed request
///   left.
/// - The [`cancellation_token`](Self::cancellation_token) is cancelled at that deadline, or, if the process does not
///   run then, as soon as it runs again. This needs no reply from the store, and no blocked executor can delay it.
/// - A lost lease stays lost: a late reply does not revive it.
/// - Dropping the guard releases the lease. It never blocks, never fails, and works without a runtime. The release is
///   sent in the background: a process that ends right afterwards may leave the name taken for the rest of its ttl.
///   Before `main` returns, await [`release`](Self::release) or [`Client::shutdown`](crate::Client::shutdown).
///
/// A lease is not `Clone`, because its end has to be one moment. The holder's other tasks get a
/// [`handle`](Self::handle), which does not keep it alive, or share the lease in an `Arc`.
///
/// Chapters of the manual: [the promises](crate::manual::promises), [faults and errors](crate::manual::failure).
///
/// # Assumptions
/// The store's clock gains no more than the margin on the lease's clock within one ttl. The name can be granted
/// earlier after a failover or a flush, or when an operator frees the name at once; then the holder is told at its next
/// renewal, and only storage behind a [`fence`](crate::fence) is safe (see the promises of [this crate](crate)).
///
/// # Errors
/// [`check`](Self::check) fails with `Lost` and nothing else.
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    pub(crate) handle: LeaseHandle,
    /// Its slot in the schedule; `None` once its enrollment has ended.
    pub(crate) id: Option<LeaseId>,
    pub(crate) timing: Timing,
    /// When its caller received it; until then, when it was granted.
    held_since: Instant,
    /// Until when the name stays taken after the guard ends; no effect once it has passed.
    pub(crate) keep_until: Instant,
    /// The number of the permit, if it is one.
    pub(crate) permit: Option<u16>,
}

/// A handle of a lease, for the tasks that work under it. It checks the lease, waits for its loss and shows its pass,
/// and does not keep the lease alive: once the guard is released or dropped, the handle answers `Lost`. Cloning is
/// cheap.
#[derive(Clone)]
pub struct LeaseHandle {
    pub(crate) watchdog: Arc<Shared>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) floor: Arc<Floor>,
    pub(crate) holder: Holder,
    /// The pass that storage is shown instead of this lease's own. Few leases have any.
    pub(crate) shown: Option<Box<Pass>>,
}

/// The limits of a hold. Both begin when the caller receives the lease.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hold {
    /// The limits that end the lease.
    pub(crate) limits: Limits,
    /// Minimum time that the name stays taken.
    pub(crate) least: Duration,
}

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and renewals are answered. It becomes `AtRisk` after two thirds of the ttl without a renewal, or `Lost`.
    Held,
    /// Held, but the renewal is overdue. Exits: Held (renewed), Lost (at the deadline).
    AtRisk,
    /// Not held any more. No exits.
    Lost(LossReason),
}

impl Lease {
    /// Makes the guard of a lease that was just granted, without limits: they [begin](Self::begin) when its caller gets
    /// it.
    pub(crate) fn granted(handle: LeaseHandle, id: LeaseId, timing: Timing, at: Instant) -> Self {
        Self {
            handle,
            id: Some(id),
            timing,
            held_since: at,
            keep_until: Instant::ZERO,
            permit: None,
        }
    }

    /// Begins each limit of the lease, when it is handed to its caller.
    pub(crate) fn begin(&mut self, hold: Hold) {
        let now = self.clock().now();
        self.held_since = now;
        self.keep_until = now.after(hold.least);
        if let Some(id) = self.id
            && hold.limits != Limits::default()
        {
            self.handle.watchdog.limit(id, hold.limits, now);
        }
    }

    /// Returns the name of this lease.
    pub fn name(&self) -> &Name {
        self.handle.name()
    }

    /// Returns the number of the permit, from 1 on, if this is one of a [pool](crate::Client::permits) or a
    /// [share](crate::Client::shared). No two holders have the same number of one pool at once: a device, a port or a
    /// folder of each can be numbered by it. Any of the free numbers may come first. Returns `None` for a lease of the
    /// name itself.
    pub const fn permit(&self) -> Option<u16> {
        self.permit
    }

    /// Returns the fencing token, for logs and display. Give storage the [`pass`](Self::pass): the number alone shows
    /// neither the name nor the holder.
    pub fn token(&self) -> Token {
        self.handle.token()
    }

    /// Returns the identity of the claim that was granted.
    pub const fn holder(&self) -> Holder {
        self.handle.holder
    }

    /// Returns how long the store keeps the lease without a renewal.
    pub const fn ttl(&self) -> Duration {
        self.timing.ttl()
    }

    /// Returns the clock by which the lease is measured.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.handle.watchdog.clock
    }

    /// Returns a handle of this lease, for tasks that work under it.
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }

    /// Checks that the lease is held now. The check is exact and does no I/O, so it is cheap enough for each step of
    /// the work.
    ///
    /// The answer may be outdated when the caller acts on it: only a fence closes that gap.
    ///
    /// # Errors
    /// `Lost`, with the reason.
    pub fn check(&self) -> Result<(), Error> {
        self.handle.check()
    }

    /// Returns the pass to give to storage with each write: token, holder and name. Fails unless the lease is held.
    /// The guards in [`fence`](crate::fence) take the lease itself and call this; call it for a service that takes the
    /// pass in a message.
    ///
    /// # Errors
    /// `Lost`, with the reason. `Closed` in a forked child: the lease is the parent's, who may have released it.
    pub fn pass(&self) -> Result<Pass, Error> {
        self.handle.pass()
    }

    /// Returns the state of the lease now.
    pub fn state(&self) -> LeaseState {
        let now = self.clock().now();
        match self.handle.signal.check(now) {
            Err(reason) => LeaseState::Lost(reason),
            Ok(deadline) if now >= self.timing.term_until(deadline).at_risk_at() => {
                LeaseState::AtRisk
            }
            Ok(_) => LeaseState::Held,
        }
    }

    /// Returns the time left until the deadline if no further renewal succeeds; zero once the lease is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.clock().now();
        let deadline = self.handle.signal.check(now);
        deadline.map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Returns the term that the last confirmed request began, on the lease's [`clock`](Self::clock). Returns `None`
    /// once the lease is lost.
    pub fn term(&self) -> Option<Term> {
        let deadline = self.handle.signal.deadline().ok()?;
        Some(self.timing.term_until(deadline))
    }

    /// Waits for a term that ends later than `deadline`. Returns `None` once the lease is lost. It is for a supervisor
    /// that passes each new deadline on, to another process for example; work under a lease needs [`lost`](Self::lost)
    /// only. A term here is the time between two renewals, not an epoch as in Raft: that is the token.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn renewed_past(&self, deadline: Instant) -> Option<Term> {
        let deadline = self.handle.signal.moved_past(deadline).await.ok()?;
        Some(self.timing.term_until(deadline))
    }

    /// Returns a token that is cancelled when the lease is lost. Cancelling this token yourself has no effect on the
    /// lease or on other tokens.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.handle.signal.new_token()
    }

    /// Waits until the lease is lost.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> LossReason {
        self.handle.signal.token().cancelled().await;
        let reason = self.handle.signal.deadline();
        reason.expect_err("a loss is written before it is told")
    }

    /// Reports progress: restarts the [`progress_within`](crate::LeaseRequest::progress_within) limit of this lease.
    /// Has no effect on a lease without that limit.
    pub fn progress(&self) {
        let now = self.clock().now();
        self.handle.signal.note_progress(now);
    }

    /// Releases the lease and waits for the store's answer, for at most a third of the ttl, and 5 s.
    ///
    /// # Cancel safety
    /// If the future is dropped, the watchdog sends the release at once. From the first poll on the lease no longer
    /// counts as held.
    pub async fn release(self) -> ReleaseOutcome {
        self.end().await.0
    }

    /// Releases the lease. Returns whether the store answered that this very grant was held until then.
    pub(crate) async fn release_held(self) -> bool {
        self.end().await == (ReleaseOutcome::Released, true)
    }

    /// Also returns whether the lease had a single grant.
    async fn end(mut self) -> (ReleaseOutcome, bool) {
        let Some(id) = self.take_id() else {
            return (ReleaseOutcome::Unknown, false);
        };
        // Withdrawn first, because no renewal may follow the release.
        let (leaving, was_held) = self.handle.watchdog.withdraw(id, self.keep_for());
        let held_for = self.clock().now().since(self.held_since);
        let end = if was_held { "released" } else { "lost" };
        let (sink, label) = (self.handle.watchdog.sink, self.label());
        sink.left(&label, end, held_for);
        let is_of_one_grant = (leaving.as_ref()).is_some_and(|leaving| leaving.is_of_one_grant);
        let outcome = match leaving {
            None => ReleaseOutcome::AlreadyLost,
            Some(leaving) => self.handle.watchdog.release(leaving).await,
        };
        sink.released(&label, outcome.as_str());
        (outcome, is_of_one_grant)
    }

    /// Takes its slot in the schedule, to end the enrollment. A forked child has none: the lease is the parent's.
    fn take_id(&mut self) -> Option<LeaseId> {
        let id = self.id.take();
        id.filter(|_| !self.handle.watchdog.home.is_forked())
    }

    /// Returns how long the name stays taken if the lease ends now.
    fn keep_for(&self) -> Option<Duration> {
        let rest = self.keep_until.since(self.clock().now());
        (!rest.is_zero()).then_some(rest)
    }

    /// The name and the token under which logs report this lease.
    fn label(&self) -> LeaseLabel {
        LeaseLabel {
            name: self.name().clone(),
            token: self.token(),
        }
    }
}

impl LeaseHandle {
    /// Returns the name of the lease.
    pub fn name(&self) -> &Name {
        &self.floor.name
    }

    /// Returns the fencing token of the lease, for logs and display, as [`Lease::token`] does.
    pub fn token(&self) -> Token {
        self.signal.token_of_grant()
    }

    /// Checks that the lease is held now, as [`Lease::check`] does.
    ///
    /// # Errors
    /// `Lost`, with the reason; with [`LossReason::Released`] once the guard is released or dropped.
    pub fn check(&self) -> Result<(), Error> {
        let (signal, now) = (&self.signal, self.watchdog.clock.now());
        signal.check(now).map(drop).map_err(|reason| {
            let (name, token) = (self.name(), self.token());
            let what = format!("lease lost: {reason} name={name} token={token}");
            Error::new(ErrorKind::Lost, what)
        })
    }

    /// Returns the pass to give to storage, as [`Lease::pass`] does.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check) and [`Lease::pass`].
    pub fn pass(&self) -> Result<Pass, Error> {
        let name = self.name();
        if self.watchdog.home.is_forked() {
            let what = format!(
                "pass refused: the lease belongs to the parent of this process name={name}"
            );
            return Err(Error::new(ErrorKind::Closed, what));
        }
        self.check()?;
        Ok(match self.shown.as_deref() {
            Some(shown) => shown.clone(),
            None => Pass::new(name.clone(), self.holder, self.token()),
        })
    }

    /// Waits until the lease is lost, or its guard is released or dropped.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> LossReason {
        let end = self.signal.moved_past(Instant::FAR_FUTURE).await;
        end.expect_err("no deadline is that late")
    }
}

impl Bearer for Lease {
    fn pass(&self) -> Result<Pass, Error> {
        self.handle.pass()
    }

    fn refused(&self, refusal: &Refusal) {
        self.handle.refused(refusal);
    }

    fn group(&self) -> Option<&str> {
        self.handle.group()
    }
}

impl Bearer for LeaseHandle {
    fn pass(&self) -> Result<Pass, Error> {
        self.pass()
    }

    /// Raises the client's floor of the name whose pass was refused.
    fn refused(&self, refusal: &Refusal) {
        let shown = self.shown.as_deref();
        let name = shown.map_or(self.name(), |shown| &shown.name);
        if let Some(floor) = refusal.floor(name) {
            self.floor.floors.raise(name, floor);
        }
    }

    fn group(&self) -> Option<&str> {
        self.watchdog.sink.group()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(id) = self.take_id() {
            let was_held = self.handle.watchdog.leave(id, self.keep_for());
            let held_for = self.clock().now().since(self.held_since);
            let sink = self.handle.watchdog.sink;
            sink.dropped(self.label(), was_held, held_for);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHandle")
            .field("name", self.name())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}
