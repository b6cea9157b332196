//! Requests over a shared connection, which is replaced when a failure shows that it is useless.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Connect, Connection, Old, State};
use crate::clock::{Boottime, Clock, Instant};
use crate::store::kit::budget::Budget;

/// Sends the requests of one kind of store on a connection, and judges what a failure says about the connection.
pub(crate) trait Exchange: Connect {
    type Request<'a>: Copy + Send;
    type Answer: Send;

    /// Sends a request and awaits its answer. It is dropped at the end of the budget.
    fn exchange<'a>(
        &'a self,
        open: &Arc<Self::Open>,
        request: Self::Request<'a>,
        budget: Budget,
    ) -> impl Future<Output = Result<Self::Answer, Self::Failure>> + Send;

    /// Returns what this failure means for the connection. `None`: it stays in use.
    fn fault(failure: &Self::Failure, open: &Self::Open, replace_every: Duration) -> Option<Fault>;

    /// Records that a request sent at this moment is unanswered. Returns whether the server has been silent on this
    /// connection for long.
    fn is_silent(open: &Self::Open, sent_at: Instant, replace_every: Duration) -> bool;

    /// Makes the failure of a request that was sent, and that no longer waits for its answer.
    fn silence() -> Self::Failure;

    /// Returns whether the server refuses another connection because it has too many.
    fn is_full(failure: &Self::Failure) -> bool;

    /// Makes this the failure of a step before the request was sent.
    fn unsent(failure: Self::Failure) -> Self::Failure {
        failure
    }

    /// Makes this the failure of a request whose first connection was found closed. If that is checked before anything
    /// is sent, it is the same failure.
    fn sent_before(failure: Self::Failure) -> Self::Failure {
        failure
    }
}

/// Why a connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It was closed already when the request should have been sent.
    FoundClosed,
    /// It broke.
    Broken,
    /// Its server has not answered for long.
    Silent,
    /// It leads to a server that does not serve such requests, and has carried nothing out.
    WrongServer,
}

impl<C: Exchange> Connection<C> {
    /// Sends a request and awaits its answer.
    ///
    /// A connection that broke is given up. One whose server is silent, or the wrong one, is given up only as often as
    /// the budget says, so that a slow server is not flooded with handshakes. A connection that was found closed is
    /// replaced at once. Where the request was not carried out because of that, or because the server was the wrong
    /// one, it is sent once more, on the new connection.
    ///
    /// A connection that is silent for longer than the budget allows is replaced for later requests, while earlier
    /// requests still wait for their answers on it: a slow line is not a dead server. If an answer comes before the new
    /// connection is made, the old one stays in use. At most one old connection is kept, and it is the first to go when
    /// the server has no room.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    // Not an `async fn`, because the compiler would have to find out in each caller that the future is `Send`, and
    // cannot.
    pub(crate) fn request<'a>(
        &'a self,
        request: C::Request<'a>,
        budget: Budget,
    ) -> impl Future<Output = Result<C::Answer, C::Failure>> + Send + 'a {
        self.send(request, budget)
    }

    async fn send<'a>(
        &'a self,
        request: C::Request<'a>,
        budget: Budget,
    ) -> Result<C::Answer, C::Failure> {
        let replace_every = budget.replace_every();
        let fault_of = |outcome: &Result<_, C::Failure>, open: &C::Open| {
            let failure = outcome.as_ref().err()?;
            C::fault(failure, open, replace_every)
        };
        let open = self.open_or_make_room(budget).await.map_err(C::unsent)?;
        let outcome = self.exchange(&open, request, budget).await;
        let fault = fault_of(&outcome, &open);
        let after = match (fault, self.note(fault, &open, replace_every)) {
            (Some(Fault::FoundClosed), _) => C::sent_before,
            (Some(Fault::WrongServer), true) => C::unsent,
            _ => return outcome,
        };
        let open = self.open(budget).await.map_err(after)?;
        let outcome = self.exchange(&open, request, budget).await;
        self.note(fault_of(&outcome, &open), &open, replace_every);
        match fault {
            Some(Fault::FoundClosed) => outcome.map_err(C::sent_before),
            _ => outcome,
        }
    }

    /// Returns the connection. A server that has no room for another one loses the old one.
    async fn open_or_make_room(&self, budget: Budget) -> Result<Arc<C::Open>, C::Failure> {
        match self.open(budget).await {
            Err(failure) if C::is_full(&failure) && self.give_up_old() => self.open(budget).await,
            opened => opened,
        }
    }

    /// Sends a request on this connection, which is set aside if its server stays silent.
    async fn exchange<'a>(
        &'a self,
        open: &Arc<C::Open>,
        request: C::Request<'a>,
        budget: Budget,
    ) -> Result<C::Answer, C::Failure> {
        let (sent_at, replace_every) = (Boottime.now(), budget.replace_every());
        let mut exchange = pin!(self.connector().exchange(open, request, budget));
        // One timer for the silence and the end, because it costs every request.
        let mut timer = pin!(sleep(budget.until_silence()));
        let given_up = loop {
            tokio::select! {
                biased;
                outcome = &mut exchange => return outcome,
                () = &mut timer => {}
            }
            if budget.left().is_zero() {
                C::is_silent(open, sent_at, replace_every);
                return Err(C::silence());
            }
            if let Some(given_up) = self.set_aside(open, sent_at, replace_every) {
                break given_up;
            }
            timer.set(sleep(budget.until_silence()));
        };
        tokio::select! {
            biased;
            outcome = exchange => {
                if outcome.is_ok() {
                    self.take_back(open);
                }
                outcome
            }
            () = given_up.cancelled() => Err(C::silence()),
            () = sleep(budget.left()) => Err(C::silence()),
        }
    }

    /// Replaces a connection whose server is silent, for later requests. Returns a token that is cancelled when its
    /// requests should stop waiting, or `None` if it stays in use.
    fn set_aside(
        &self,
        open: &Arc<C::Open>,
        sent_at: Instant,
        replace_every: Duration,
    ) -> Option<CancellationToken> {
        let mut old = self.shared.old.lock();
        if let Some(old) = &*old
            && std::ptr::eq(old.open.as_ptr(), Arc::as_ptr(open))
        {
            return Some(old.given_up.clone());
        }
        let given_up = CancellationToken::new();
        match self.is_current(open) {
            // It was the old one before.
            false => given_up.cancel(),
            true if !C::is_silent(open, sent_at, replace_every) => return None,
            true if !self.replace(open, replace_every) => return None,
            true => {
                let next = Old {
                    open: Arc::downgrade(open),
                    given_up: given_up.clone(),
                };
                if let Some(before) = old.replace(next) {
                    before.given_up.cancel();
                }
            }
        }
        Some(given_up)
    }

    /// Puts back a connection that was set aside and has answered, unless there is another one.
    fn take_back(&self, open: &Arc<C::Open>) {
        let mut state = self.shared.state();
        if matches!(*state, State::Down | State::Connecting(_)) {
            self.shared.gauge.connecting_ended(true);
            *state = State::Up(open.clone());
            drop(state);
            *self.shared.old.lock() = None;
        }
    }

    /// Stops waiting for answers on the old connection. Returns whether there was one.
    fn give_up_old(&self) -> bool {
        let old = self.shared.old.lock().take();
        let old = old.filter(|old| old.open.strong_count() > 0);
        old.inspect(|old| old.given_up.cancel()).is_some()
    }

    fn is_current(&self, open: &Arc<C::Open>) -> bool {
        matches!(&*self.shared.state(), State::Up(current) if Arc::ptr_eq(current, open))
    }

    /// Gives up a useless connection. Returns whether the next request gets another one.
    fn note(&self, fault: Option<Fault>, open: &Arc<C::Open>, replace_every: Duration) -> bool {
        match fault {
            None => false,
            Some(Fault::Broken | Fault::FoundClosed) => {
                self.give_up(open);
                true
            }
            Some(_) => self.replace(open, replace_every),
        }
    }

    /// Gives up a connection whose server is silent or the wrong one, unless the one before it was given up just now.
    /// Returns whether the next request gets another connection.
    fn replace(&self, open: &Arc<C::Open>, replace_every: Duration) -> bool {
        let now = Boottime.now();
        let mut replaced_at = self.shared.replaced_at.lock();
        if !self.is_current(open) {
            return true;
        }
        if replaced_at.is_some_and(|at| now.since(at) < replace_every) {
            return false;
        }
        *replaced_at = Some(now);
        self.give_up(open);
        true
    }

    /// Gives up this connection, unless it was replaced already.
    pub(crate) fn give_up(&self, open: &Arc<C::Open>) {
        if self.shared.leave_up(Arc::as_ptr(open), State::Down) {
            self.shared.gauge.lost();
        }
    }
}
