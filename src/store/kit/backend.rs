//! The implementation of the contract for all stores of this crate: a store brings its requests, and this module does
//! the rest.
//!
//! A [`Backend`] has an `async fn` for each call, and its own type of failures. The implementation of [`Store`] for all
//! backends gives each call its budget, boxes it, and turns a failure into an error, which says how far a claim came.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use crate::clock::{Boottime, Clock};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::holder::Holder;
use crate::name::Name;
use crate::store::contract::kept_for;
use crate::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Hazard, Held, Member, Notices, Purpose, Release,
    Renewal, Renewed, Sent, Store,
};
use crate::term::request_limit;

/// The failure of a request: the kind of the error that it becomes, and the words for it.
pub(crate) trait Failing: StdError + Sized + Send + Sync + 'static {
    fn kind(&self) -> ErrorKind;

    /// Returns how far the request came. Only a proof that it was not carried out gives another answer than `Perhaps`.
    fn sent(&self) -> Sent;

    /// Returns the finished error, if this failure already carries one.
    fn made(&self) -> Option<&Error> {
        None
    }

    /// Returns the reason, if retrying the request can never succeed.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Returns the remedy, if it is known.
    fn advice(&self) -> Option<String> {
        None
    }

    /// Makes the error for the caller of `operation`; `facts` are `key=value`.
    fn during(self, operation: &str, facts: impl fmt::Display) -> Error {
        let kind = self.kind();
        if let Some(made) = self.made() {
            return made.clone();
        }
        if let Some(refusal) = self.refusal() {
            return Error::new(kind, format!("{operation} refused: {refusal} {facts}"));
        }
        let what = match kind {
            ErrorKind::Unavailable => "store unavailable",
            ErrorKind::TimedOut => "store did not answer in time",
            ErrorKind::Denied => "authentication failed or a permission is missing",
            ErrorKind::Closed => "store is closed",
            _ => "store cannot do its work",
        };
        let advice = self.advice().map(|advice| format!(": {advice}"));
        let advice = advice.unwrap_or_default();
        Error::new(kind, format!("{operation} failed: {what}{advice} {facts}")).with_source(self)
    }
}

/// A store of this crate. The contract of each call is that of the method of [`Store`] with the same name, but for its
/// `own_` or `try_`.
pub(crate) trait Backend: fmt::Debug + Sized + Send + Sync + 'static {
    type Failure: Failing;

    /// Returns the store's facts.
    fn own_facts(&self) -> Facts;

    /// Returns where the leases are kept, without secrets.
    fn own_location(&self) -> &dyn fmt::Display;

    /// Returns the clock that runs whenever a rival's can: that of servers also while this machine sleeps.
    fn own_clock(&self) -> Arc<dyn Clock> {
        Arc::new(Boottime)
    }

    fn own_shard(&self, _: &Name) -> u32 {
        0
    }

    fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> impl Future<Output = Result<Answer, Self::Failure>> + Send;

    fn try_renew(&self, batch: &[Renewal], budget: Budget) -> impl Future<Output = Renewed> + Send;

    fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> impl Future<Output = Result<Release, Self::Failure>> + Send;

    fn try_notices(
        &self,
    ) -> impl Future<Output = Result<Option<Box<dyn Notices>>, Self::Failure>> + Send;

    fn try_inspect(
        &self,
        name: &Name,
        budget: Budget,
    ) -> impl Future<Output = Result<Option<Held>, Self::Failure>> + Send;

    fn try_list(
        &self,
        prefix: &str,
        budget: Budget,
    ) -> impl Future<Output = Result<Vec<Held>, Self::Failure>> + Send;

    fn try_evict(
        &self,
        name: &Name,
        how: Eviction,
        budget: Budget,
    ) -> impl Future<Output = Result<bool, Self::Failure>> + Send;

    fn try_hazards(
        &self,
        budget: Budget,
    ) -> impl Future<Output = Result<Vec<Hazard>, Self::Failure>> + Send;

    fn try_members(
        &self,
        budget: Budget,
    ) -> impl Future<Output = Result<Vec<Member>, Self::Failure>> + Send;

    /// Returns the same store on a connection of its own, made on the calling runtime.
    fn try_own_connection(
        &self,
        purpose: Purpose,
    ) -> impl Future<Output = Result<Self, Self::Failure>> + Send;

    fn own_close(&self) -> impl Future<Output = ()> + Send;

    /// Makes the error of an operation on a name.
    fn error(&self, failure: Self::Failure, operation: &str, name: &Name) -> Error {
        failure.during(
            operation,
            format_args!("name={name} store={}", self.own_location()),
        )
    }

    /// Makes the error of an operation that concerns no single name.
    fn error_of_all(&self, failure: Self::Failure, operation: &str) -> Error {
        failure.during(operation, format_args!("store={}", self.own_location()))
    }
}

#[diagnostic::do_not_recommend]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Store for B {
    fn facts(&self) -> Facts {
        self.own_facts()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.own_clock()
    }

    fn location(&self) -> String {
        self.own_location().to_string()
    }

    fn shard(&self, name: &Name) -> u32 {
        self.own_shard(name)
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move {
            let budget = Budget::with_silence(limit, request_limit(claim.ttl));
            let answer = self.try_acquire(claim, ask, budget).await;
            answer.map_err(|failure| Failed {
                sent: failure.sent(),
                error: self.error(failure, "acquire", &claim.name),
            })
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            let least_ttl = batch.iter().map(|renewal| renewal.ttl).min();
            let silence = request_limit(least_ttl.unwrap_or(limit));
            let budget = Budget::with_silence(limit, silence);
            self.try_renew(batch, budget).await
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(async move {
            let budget = Budget::with_silence(limit, request_limit(limit * 3));
            let keep_for = kept_for(keep_for);
            let release = self.try_release(name, holder, keep_for, budget).await;
            release.map_err(|failure| self.error(failure, "release", name))
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async move {
            let notices = self.try_notices().await;
            notices.map_err(|failure| self.error_of_all(failure, "subscribe"))
        })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async move {
            let held = self.try_inspect(name, Budget::new(limit)).await;
            held.map_err(|failure| self.error(failure, "inspect", name))
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(async move {
            let list = self.try_list(prefix, Budget::new(limit)).await;
            list.map_err(|failure| self.error_of_all(failure, "list"))
        })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let evicted = self.try_evict(name, how, Budget::new(limit)).await;
            evicted.map_err(|failure| self.error(failure, "evict", name))
        })
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(async move {
            let hazards = self.try_hazards(Budget::new(limit)).await;
            hazards.map_err(|failure| self.error_of_all(failure, "inspect the store"))
        })
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async move {
            let members = self.try_members(Budget::new(limit)).await;
            members.map_err(|failure| self.error_of_all(failure, "check the servers"))
        })
    }

    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            match self.try_own_connection(purpose).await {
                Ok(store) => Ok(Arc::new(store) as Arc<dyn Store>),
                Err(failure) => Err(self.error_of_all(failure, "connect")),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.own_close())
    }
}
