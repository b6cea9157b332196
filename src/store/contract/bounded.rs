//! A store whose calls always end: the wrapper around every store that a client uses.
//!
//! A store promises to end each call within its limit, and a client that trusted it would hang with it. The wrapper
//! gives up a call at one and a half times its limit and catches its panics. The outcome of such a call is unknown, as
//! after a lost reply. Connections made through it are wrapped as well.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Hazard, Held, Member, Notices, Outcome, Purpose,
    Release, Renewal, Renewed, Store,
};
use crate::clock::{Clock, Instant, Sleep};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::holder::Holder;
use crate::name::Name;
use crate::telemetry::{ServerState, Sink, StoreCall};

/// Time limit of a call without one, such as making a connection. Every store connects within two seconds by default,
/// and no setting may exceed this.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Returns how long a call with this limit may take. The extra half lets the store's own time-out end the call first.
pub(crate) fn gives_up_after(limit: Duration) -> Duration {
    limit + limit / 2
}

/// A store that answers each call in time, if only with an error.
#[derive(Debug)]
pub(crate) struct Bounded {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The purpose of this connection; `None` if it is for the callers.
    purpose: Option<Purpose>,
    counts: &'static Sink,
}

/// A call as messages and metrics name it.
type Called<'a> = (&'static str, Option<&'a Name>, Option<StoreCall>);

impl Bounded {
    /// The store of the callers.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            clock: store.clock(),
            counts: Sink::of_store(store.facts().kind),
            store,
            purpose: None,
        }
    }

    /// Returns the store's answer, if it comes in time.
    async fn answer<T>(
        &self,
        (call, name, _): Called<'_>,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let unanswered = |kind, why| {
            let name = name.map(|name| format!(" name={name}")).unwrap_or_default();
            Err(Error::new(kind, format!("{call} failed: {why}{name}")))
        };
        let given_up = self.timer(self.clock.now().after(gives_up_after(limit)));
        let mut answer = pin!(answer);
        let answer = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
            match polled {
                Ok(polled) => polled.map(Ok),
                Err(_) => {
                    let why = "the store panicked";
                    Poll::Ready(unanswered(ErrorKind::Misconfigured, why))
                }
            }
        });
        tokio::select! {
            biased;
            answer = answer => answer,
            () = given_up => unanswered(ErrorKind::TimedOut, "the store gave no answer in time"),
        }
    }

    /// Counts a call that began at this moment and has just ended, and its error.
    fn count(&self, call: StoreCall, began_at: Instant, error: Option<ErrorKind>) {
        let took = self.clock.now().since(began_at);
        // The threads that have a connection of their own must not block.
        let is_background = self.purpose.is_some();
        self.counts.call_ended(call, took, error, is_background);
    }

    /// The watchdog has few calls at once, and leases depend on them, so they get a timer that a suspend does not
    /// delay.
    fn timer(&self, at: Instant) -> Sleep<'_> {
        match self.purpose {
            Some(Purpose::Watchdog) => self.clock.sleep_until(at),
            Some(Purpose::Waiting) | None => self.clock.nap_until(at),
        }
    }

    /// Makes a call that can fail with an error, and counts it if its kind is counted.
    fn call<'a, T>(
        &'a self,
        called: Called<'a>,
        limit: Duration,
        answer: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Error>> {
        Box::pin(async move {
            let began_at = self.clock.now();
            let answer = self.answer(called, limit, answer).await.flatten();
            if let (_, _, Some(counted)) = called {
                self.count(counted, began_at, answer.as_ref().err().map(Error::kind));
            }
            answer
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Bounded {
    fn facts(&self) -> Facts {
        self.store.facts()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn location(&self) -> String {
        self.store.location()
    }

    fn shard(&self, name: &Name) -> u32 {
        self.store.shard(name)
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move {
            let began_at = self.clock.now();
            let asking = async { self.store.acquire(claim, ask, limit).await };
            let called = ("acquire", Some(&claim.name), None);
            let answer = self.answer(called, limit, asking).await;
            let answer = answer.unwrap_or_else(|error| Err(Failed::perhaps(error)));
            let error = answer.as_ref().err().map(|failed| failed.error.kind());
            self.count(StoreCall::Acquire, began_at, error);
            answer
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            let began_at = self.clock.now();
            let renewing = async { self.store.renew(batch, limit).await };
            let renewed = self.answer(("renew", None, None), limit, renewing).await;
            let renewed = renewed.unwrap_or_else(|error| {
                let outcomes = batch.iter().map(|_| Outcome::Unknown(error.clone()));
                Renewed::new(outcomes.collect())
            });
            let error = renewed.outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Unknown(error) => Some(error.kind()),
                _ => None,
            });
            self.count(StoreCall::Renew, began_at, error);
            renewed
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        let called = ("release", Some(name), Some(StoreCall::Release));
        self.call(called, limit, async move {
            self.store.release(name, holder, keep_for, limit).await
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        let called = ("subscribe", None, None);
        self.call(called, LIMIT, async { self.store.notices().await })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        let called = ("inspect", Some(name), Some(StoreCall::Inspect));
        self.call(called, limit, async move {
            self.store.inspect(name, limit).await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        let called = ("list", None, Some(StoreCall::List));
        self.call(called, limit, async move {
            self.store.list(prefix, limit).await
        })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let called = ("evict", Some(name), Some(StoreCall::Evict));
        self.call(called, limit, async move {
            self.store.evict(name, how, limit).await
        })
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        let called = ("read the hazards", None, None);
        self.call(
            called,
            limit,
            async move { self.store.hazards(limit).await },
        )
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        self.call(("read the servers", None, None), limit, async move {
            let members = self.store.members(limit).await?;
            let count = |state| {
                let alike = members.iter().filter(|member| member.counted_as() == state);
                alike.count()
            };
            let counts = ServerState::ALL.map(count);
            self.counts.members_seen(counts);
            Ok(members)
        })
    }

    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        self.call(("connect", None, None), LIMIT, async move {
            let store = self.store.on_own_connection(purpose).await?;
            let purpose = Some(purpose);
            let bounded = Self {
                purpose,
                ..Self::new(store)
            };
            Ok(Arc::new(bounded) as Arc<dyn Store>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // If it hangs or panics, there is nothing more to close.
            let closing = async { self.store.close().await };
            let _ = self.answer(("close", None, None), LIMIT, closing).await;
        })
    }
}
