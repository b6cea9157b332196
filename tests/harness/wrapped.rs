//! A store that forwards each call to the one beneath it, past a hook: what a test wants to see or to change is its hook,
//! and nothing else has to be written.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Hazard, Held, Member, Notices, Purpose, Release,
    Renewal, Renewed, Store,
};
use leasehold::{BoxFuture, Error, Holder, Name};

/// What a store is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Call {
    Acquire,
    Renew,
    Release,
    Inspect,
    List,
    Evict,
    Hazards,
    Members,
    Connect,
    Subscribe,
    /// The next notice of a subscription.
    Notice,
}

/// What comes before and after each call. It forwards by default.
pub trait Hook: fmt::Debug + Clone + Send + Sync + 'static {
    fn facts(&self, store: &dyn Store) -> Facts {
        store.facts()
    }

    fn clock(&self, store: &dyn Store) -> Arc<dyn Clock> {
        store.clock()
    }

    /// Whether it has one store beneath for all clients, which opens no further connection and is not closed.
    fn is_shared(&self) -> bool {
        false
    }

    fn acquire(
        &self,
        store: &dyn Store,
        claim: &Claim,
        ask: Ask,
        limit: Duration,
    ) -> impl Future<Output = Result<Answer, Failed>> + Send {
        async move { store.acquire(claim, ask, limit).await }
    }

    fn renew(
        &self,
        store: &dyn Store,
        batch: &[Renewal],
        limit: Duration,
    ) -> impl Future<Output = Renewed> + Send {
        async move { store.renew(batch, limit).await }
    }

    fn notices(
        &self,
        store: &dyn Store,
    ) -> impl Future<Output = Result<Option<Box<dyn Notices>>, Error>> + Send {
        store.notices()
    }

    /// The answer of `inspect` for the name, instead of this one.
    fn inspected(&self, _: &Name, held: Option<Held>) -> Option<Held> {
        held
    }

    /// Any other call. It does not begin before `asked` is polled.
    fn around<T: Send>(
        &self,
        _: Call,
        asked: impl Future<Output = Result<T, Error>> + Send,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        asked
    }
}

/// The store, which has the methods of its hook as well.
#[derive(Debug, Clone)]
pub struct Wrapped<H> {
    pub store: Arc<dyn Store>,
    pub hook: H,
}

impl<H> Deref for Wrapped<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.hook
    }
}

#[deny(clippy::missing_trait_methods)]
impl<H: Hook> Store for Wrapped<H> {
    fn facts(&self) -> Facts {
        self.hook.facts(&*self.store)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.hook.clock(&*self.store)
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
        Box::pin(self.hook.acquire(&*self.store, claim, ask, limit))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.hook.renew(&*self.store, batch, limit))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        let asked = async move { self.store.release(name, holder, keep_for, limit).await };
        Box::pin(self.hook.around(Call::Release, asked))
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(self.hook.notices(&*self.store))
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        let asked = async move {
            let held = self.store.inspect(name, limit).await?;
            Ok(self.hook.inspected(name, held))
        };
        Box::pin(self.hook.around(Call::Inspect, asked))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        let asked = async move { self.store.list(prefix, limit).await };
        Box::pin(self.hook.around(Call::List, asked))
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        let asked = async move { self.store.evict(name, how, limit).await };
        Box::pin(self.hook.around(Call::Evict, asked))
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        let asked = async move { self.store.hazards(limit).await };
        Box::pin(self.hook.around(Call::Hazards, asked))
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        let asked = async move { self.store.members(limit).await };
        Box::pin(self.hook.around(Call::Members, asked))
    }

    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        let asked = async move {
            let store = if self.hook.is_shared() {
                self.store.clone()
            } else {
                self.store.on_own_connection(purpose).await?
            };
            let hook = self.hook.clone();
            Ok(Arc::new(Self { store, hook }) as Arc<dyn Store>)
        };
        Box::pin(self.hook.around(Call::Connect, asked))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if !self.hook.is_shared() {
                self.store.close().await;
            }
        })
    }
}
