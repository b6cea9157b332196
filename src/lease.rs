//! The guard that a holder keeps while it works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::fence::{Bearer, Pass, Refusal};
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::telemetry::{self, Count, Event, HoldEnd, LeaseLabel};
use crate::term::{Instant, Term, Timing};
use crate::token::Token;
use crate::watchdog::Enrollment;
pub use crate::watchdog::schedule::ReleaseOutcome;

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
/// # Assumptions
/// The store's clock gains no more than the margin on the lease's clock within one ttl. After a failover or a flush,
/// or when an operator frees it at once, the name can be granted earlier; then the holder is told at its next renewal,
/// and only storage behind a [`fence`](crate::fence) is safe (see the promises of [this crate](crate)).
///
/// # Errors
/// [`check`](Self::check) fails with `Lost` and nothing else.
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    pub(crate) enrollment: Enrollment,
    pub(crate) holder: Holder,
    pub(crate) timing: Timing,
    pub(crate) held_since: Instant,
}

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and renewals are answered. Exits: AtRisk (two thirds of the ttl without a renewal), Lost.
    Held,
    /// Held, but the renewal is overdue. Exits: Held (renewed), Lost (at the deadline).
    AtRisk,
    /// Not held any more. No exits.
    Lost(LossReason),
}

impl Lease {
    /// Returns the name of this lease.
    pub const fn name(&self) -> &Name {
        self.enrollment.name()
    }

    /// Returns the fencing token, for logs and display. Give storage the [`pass`](Self::pass): the number alone
    /// says neither for which name it was granted nor to which holder.
    pub fn token(&self) -> Token {
        let token = self.enrollment.signal().token_of_grant();
        token.expect("a lease was granted")
    }

    /// Returns the identity of the claim that was granted.
    pub const fn holder(&self) -> Holder {
        self.holder
    }

    /// Returns the time for which the store keeps the lease without a renewal.
    pub const fn ttl(&self) -> Duration {
        self.timing.ttl()
    }

    /// Returns the clock by which the lease is measured.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.enrollment.clock()
    }

    /// Checks that the lease is held now. The check is exact and does no I/O, so it is cheap enough for each step of
    /// the work.
    ///
    /// The answer may be outdated when the caller acts on it: only a fence closes that gap.
    ///
    /// # Errors
    /// `Lost`, with the reason.
    pub fn check(&self) -> Result<(), Error> {
        match self.enrollment.signal().check(self.clock().now()) {
            Ok(_) => Ok(()),
            Err(reason) => Err(self.loss(reason)),
        }
    }

    /// Returns the pass to give to storage with each write: token, holder and name. Fails unless the lease is held.
    /// The guards in [`fence`](crate::fence) take the lease itself and call this; call it for a service that takes the
    /// pass in a message.
    ///
    /// # Errors
    /// `Lost`, with the reason. `Closed` in a forked child: the lease is the parent's, who may have released it.
    pub fn pass(&self) -> Result<Pass, Error> {
        if self.is_forked() {
            let what = format!(
                "pass refused: the lease belongs to the parent of this process name={}",
                self.name()
            );
            return Err(Error::new(ErrorKind::Closed, what));
        }
        self.check()?;
        Ok(Pass::new(self.name().clone(), self.holder, self.token()))
    }

    fn loss(&self, reason: LossReason) -> Error {
        Error::new(
            ErrorKind::Lost,
            format!(
                "lease lost: {reason} name={} token={}",
                self.name(),
                self.token()
            ),
        )
    }

    /// Returns the state of the lease now.
    pub fn state(&self) -> LeaseState {
        let now = self.clock().now();
        match self.enrollment.signal().check(now) {
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
        let deadline = self.enrollment.signal().check(now);
        deadline.map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Returns the term that the last confirmed request began, on the lease's [`clock`](Self::clock). Returns `None`
    /// once the lease is lost.
    pub fn term(&self) -> Option<Term> {
        let deadline = self.enrollment.signal().deadline().ok()?;
        Some(self.timing.term_until(deadline))
    }

    /// Waits for a term that ends later than `deadline`. Returns `None` once the lease is lost.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn renewed_past(&self, deadline: Instant) -> Option<Term> {
        let deadline = self.enrollment.signal().moved_past(deadline).await.ok()?;
        Some(self.timing.term_until(deadline))
    }

    /// Returns a token that is cancelled when the lease is lost. Cancelling this token yourself has no effect on the
    /// lease or on other tokens.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.enrollment.signal().new_token()
    }

    /// Waits until the lease is lost.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> LossReason {
        self.enrollment.signal().token().cancelled().await;
        let reason = self.enrollment.signal().deadline();
        reason.expect_err("a loss is written before it is told")
    }

    /// Reports progress: restarts the [`progress_within`](crate::LeaseRequest::progress_within) limit of this lease.
    /// Has no effect on a lease without that limit.
    pub fn progress(&self) {
        let now = self.clock().now();
        self.enrollment.signal().note_progress(now);
    }

    /// Releases the lease and waits for the store's answer, for at most the time limit of a request.
    ///
    /// # Cancel safety
    /// If the future is dropped, the watchdog sends the release at once. From the first poll on the lease no longer
    /// counts as held.
    pub async fn release(self) -> ReleaseOutcome {
        self.end(None).await
    }

    /// Releases the lease, but keeps the name taken for another `rest`, so that a short job does not run twice when the
    /// clocks of two machines differ. If the lease was lost before, by an eviction for example, the name is not kept. A
    /// longer `rest` than a year ([`MAX_KEEP`](crate::store::MAX_KEEP)) counts as a year.
    ///
    /// # Cancel safety
    /// The same as for [`release`](Self::release).
    pub async fn release_keeping(self, rest: Duration) -> ReleaseOutcome {
        self.end(Some(rest)).await
    }

    async fn end(mut self, keep_for: Option<Duration>) -> ReleaseOutcome {
        if self.is_forked() {
            return ReleaseOutcome::Unknown;
        }
        // Withdrawn first: no renewal may follow the release.
        let (leaving, was_held) = self.enrollment.withdraw(keep_for);
        let held_for = self.clock().now().since(self.held_since);
        let end = if was_held {
            HoldEnd::Released
        } else {
            HoldEnd::Lost
        };
        let group = self.enrollment.reporter().group();
        telemetry::left(group, &self.label(), end, held_for);
        let outcome = match leaving {
            None => ReleaseOutcome::AlreadyLost,
            Some(leaving) => self.enrollment.release(leaving).await,
        };
        self.enrollment.reporter().count(outcome.count(), 1);
        telemetry::released(group, &self.label(), outcome.as_str());
        outcome
    }

    /// The name and the token under which logs report this lease.
    fn label(&self) -> LeaseLabel {
        LeaseLabel::new(self.name().clone(), Some(self.token()))
    }

    fn is_forked(&self) -> bool {
        self.enrollment.is_forked()
    }
}

impl Bearer for Lease {
    fn pass(&self) -> Result<Pass, Error> {
        self.pass()
    }

    fn refused(&self, refusal: &Refusal) {
        if let Some(floor) = refusal.floor(self.name()) {
            self.enrollment.raise_floor(floor);
        }
    }

    fn group(&self) -> Option<&str> {
        Some(self.enrollment.reporter().group().as_str())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_forked() && !self.enrollment.has_ended() {
            let (count, end) = if self.enrollment.leave() {
                (Count::Dropped, HoldEnd::Dropped)
            } else {
                (Count::AlreadyLost, HoldEnd::Lost)
            };
            let reporter = self.enrollment.reporter();
            reporter.count(count, 1);
            let held_for = self.clock().now().since(self.held_since);
            let lease = self.label();
            reporter.send(Event::Left {
                lease,
                end,
                held_for,
            });
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
