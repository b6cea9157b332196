//! A store whose calls always end: the wrapper around every store that a client uses.
//!
//! A store promises to end each call within its limit, and a client that trusted it would hang with it. The wrapper
//! gives a call up at one and a half times its limit and catches its panics. The outcome of such a call is unknown, as
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
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::telemetry::{Standing, StoreCall, StoreCounts};

/// The limit of a call that brings none, such as making a connection. Every store connects within two seconds unless it
/// is set otherwise, and none may be set to more than this.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// After how long a call of this limit is given up. The extra half lets the store's own
/// time-out end the call first.
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
    counts: &'static StoreCounts,
}

/// The reason for which there is no answer.
#[derive(Debug, Clone, Copy)]
enum Unanswered {
    Late,
    Panicked,
}

impl Bounded {
    /// The store of the callers.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            clock: store.clock(),
            counts: StoreCounts::of(store.facts().kind),
            store,
            purpose: None,
        }
    }

    /// Returns the store's answer, if it comes in time.
    async fn answer<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Unanswered> {
        let given_up = self.timer(self.clock.now().after(gives_up_after(limit)));
        let mut answer = pin!(answer);
        let answer = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
            match polled {
                Ok(polled) => polled.map(Ok),
                Err(_) => Poll::Ready(Err(Unanswered::Panicked)),
            }
        });
        tokio::select! {
            biased;
            answer = answer => answer,
            () = given_up => Err(Unanswered::Late),
        }
    }

    /// Counts a call that was begun at this moment and has ended now, and the error that it failed with.
    fn count<T>(&self, call: StoreCall, began_at: Instant, answer: &Result<T, Error>) {
        let error = answer.as_ref().err().map(Error::kind);
        self.count_kind(call, began_at, error);
    }

    fn count_kind(&self, call: StoreCall, began_at: Instant, error: Option<ErrorKind>) {
        let took = self.clock.now().since(began_at);
        // The threads that have a connection of their own must not block.
        let is_background = self.purpose.is_some();
        self.counts.call_ended(call, took, error, is_background);
    }

    /// The watchdog has few calls at once, and leases live by them: they are worth a timer that a suspend does not
    /// delay.
    fn timer(&self, at: Instant) -> Sleep<'_> {
        match self.purpose {
            Some(Purpose::Watchdog) => self.clock.sleep_until(at),
            Some(Purpose::Waiting) | None => self.clock.nap_until(at),
        }
    }

    /// Of a call about one name.
    fn named<'a, T>(
        &'a self,
        (call, counted): (&'static str, StoreCall),
        name: &'a Name,
        limit: Duration,
        answer: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Error>> {
        Box::pin(async move {
            let began_at = self.clock.now();
            let answer = self.answer(limit, answer).await;
            let answer = answer.unwrap_or_else(|why| Err(why.error_of(call, name)));
            self.count(counted, began_at, &answer);
            answer
        })
    }

    /// Of a call about the store.
    fn unnamed<'a, T>(
        &'a self,
        call: &'static str,
        limit: Duration,
        answer: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Error>> {
        Box::pin(async move {
            let answer = self.answer(limit, answer).await;
            answer.unwrap_or_else(|why| Err(why.error(call)))
        })
    }
}

impl Unanswered {
    const fn kind(self) -> ErrorKind {
        match self {
            Self::Late => ErrorKind::TimedOut,
            Self::Panicked => ErrorKind::Misconfigured,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Late => "the store gave no answer in time",
            Self::Panicked => "the store panicked",
        }
    }

    fn error(self, call: &str) -> Error {
        Error::new(self.kind(), format!("{call} failed: {}", self.message()))
    }

    fn error_of(self, call: &str, name: &Name) -> Error {
        let message = format!("{call} failed: {} name={name}", self.message());
        Error::new(self.kind(), message)
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
            let answer = self
                .answer(limit, asking)
                .await
                .unwrap_or_else(|why| Err(Failed::perhaps(why.error_of("acquire", &claim.name))));
            let error = answer.as_ref().err().map(|failed| failed.error.kind());
            self.count_kind(StoreCall::Acquire, began_at, error);
            answer
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            let began_at = self.clock.now();
            let renewing = async { self.store.renew(batch, limit).await };
            let renewed = self.answer(limit, renewing).await.unwrap_or_else(|why| {
                let error = why.error("renew");
                let outcomes = batch.iter().map(|_| Outcome::Unknown(error.clone()));
                Renewed::new(outcomes.collect())
            });
            let error = renewed.outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Unknown(error) => Some(error.kind()),
                _ => None,
            });
            self.count_kind(StoreCall::Renew, began_at, error);
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
        self.named(("release", StoreCall::Release), name, limit, async move {
            self.store.release(name, holder, keep_for, limit).await
        })
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.named(
            ("leave the queue", StoreCall::Leave),
            name,
            limit,
            async move { self.store.leave(name, client, limit).await },
        )
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        self.unnamed("subscribe", LIMIT, async { self.store.notices().await })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        self.named(("inspect", StoreCall::Inspect), name, limit, async move {
            self.store.inspect(name, limit).await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(async move {
            let began_at = self.clock.now();
            let listing = async { self.store.list(prefix, limit).await };
            let list = self.answer(limit, listing).await;
            let list = list.unwrap_or_else(|why| Err(why.error("list")));
            self.count(StoreCall::List, began_at, &list);
            list
        })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.named(("evict", StoreCall::Evict), name, limit, async move {
            self.store.evict(name, how, limit).await
        })
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        self.unnamed("look for hazards", limit, async move {
            self.store.hazards(limit).await
        })
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        self.unnamed("look at the servers", limit, async move {
            let members = self.store.members(limit).await?;
            let count = |standing| {
                let alike = members
                    .iter()
                    .filter(|member| member.standing() == standing);
                alike.count()
            };
            let counts = Standing::ALL.map(count);
            self.counts.members_seen(counts);
            Ok(members)
        })
    }

    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        self.unnamed("connect", LIMIT, async move {
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
            // One that hangs or panics has nothing more to close for us.
            let _ = self.answer(LIMIT, async { self.store.close().await }).await;
        })
    }
}
