//! Requests over a shared connection, which is replaced when a failure says that it is of no use.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{Connect, Connection, State};
use crate::clock::{Boottime, Clock};
use crate::store::budget::Budget;

/// Sends the requests of one kind of store on a connection, and judges what a failure says about the connection.
pub(in crate::store) trait Exchange: Connect {
    type Request<'a>: Copy + Send;
    type Answer: Send;

    /// Sends a request and awaits its answer.
    fn exchange<'a>(
        &'a self,
        open: &Arc<Self::Open>,
        request: Self::Request<'a>,
        budget: Budget,
    ) -> impl Future<Output = Result<Self::Answer, Self::Failure>> + Send;

    /// Returns what this failure says about the connection. `None`: it can be used on.
    fn fault(failure: &Self::Failure, open: &Self::Open, replace_every: Duration) -> Option<Fault>;

    /// Makes this the failure of a step before the request was sent.
    fn unsent(failure: Self::Failure) -> Self::Failure {
        failure
    }

    /// Makes this the failure of a request whose first connection was found closed. Where that is looked at before
    /// anything is sent, it is the same one.
    fn sent_before(failure: Self::Failure) -> Self::Failure {
        failure
    }
}

/// The reason for which a connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Fault {
    /// It was closed already when the request should have been sent.
    FoundClosed,
    /// It broke.
    Broken,
    /// Its server has not answered for long.
    Silent,
    /// It leads to a server that does not serve such requests, and has carried nothing out.
    #[cfg(any(test, feature = "redis"))]
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
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    // Not an `async fn`, because the compiler would have to find out in each caller that the future is `Send`, and
    // cannot.
    pub(in crate::store) fn request<'a>(
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
        let (connector, replace_every) = (self.connector(), budget.replace_every());
        let fault_of = |outcome: &Result<_, C::Failure>, open: &C::Open| {
            let failure = outcome.as_ref().err()?;
            C::fault(failure, open, replace_every)
        };
        let open = self.open(budget).await.map_err(C::unsent)?;
        let outcome = connector.exchange(&open, request, budget).await;
        let fault = fault_of(&outcome, &open);
        let after = match (fault, self.note(fault, &open, replace_every)) {
            (Some(Fault::FoundClosed), _) => C::sent_before,
            #[cfg(any(test, feature = "redis"))]
            (Some(Fault::WrongServer), true) => C::unsent,
            _ => return outcome,
        };
        let open = self.open(budget).await.map_err(after)?;
        let outcome = connector.exchange(&open, request, budget).await;
        self.note(fault_of(&outcome, &open), &open, replace_every);
        match fault {
            Some(Fault::FoundClosed) => outcome.map_err(C::sent_before),
            _ => outcome,
        }
    }

    /// Gives up a connection that is of no use. Returns whether the next request gets another one.
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
        let is_current =
            matches!(&*self.shared.state(), State::Up(current) if Arc::ptr_eq(current, open));
        if !is_current {
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
    pub(in crate::store) fn give_up(&self, open: &Arc<C::Open>) {
        if self.shared.leave_up(Arc::as_ptr(open), State::Down) {
            self.shared.gauge.lost();
        }
    }
}
