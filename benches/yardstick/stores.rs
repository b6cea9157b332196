//! Stores that wrap another one to stop its renewals, or that keep nothing at all.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Grant, Hazard, Held, Member, Notices, Outcome,
    Purpose, Release, Renewal, Renewed, Store,
};

use leasehold::{BoxFuture, ClientId, Error, Holder, Name, Token};
use tokio::sync::watch;

/// Another store whose renewals wait while the gate is closed. It notes the batches that pass.
#[derive(Debug, Clone)]
pub struct Gated {
    inner: Arc<dyn Store>,
    gate: watch::Receiver<bool>,
    pub passed: Arc<Mutex<Vec<Vec<Renewal>>>>,
    renewed: Arc<watch::Sender<usize>>,
    /// How many renewals are awaited before the waiting task is woken.
    goal: Arc<AtomicUsize>,
}

impl Gated {
    pub fn new(inner: Arc<dyn Store>) -> (Self, watch::Sender<bool>) {
        let (open, gate) = watch::channel(true);
        let store = Self {
            inner,
            gate,
            passed: Arc::default(),
            renewed: Arc::new(watch::channel(0).0),
            goal: Arc::default(),
        };
        (store, open)
    }

    /// Closes the gate until each of so many leases is due, opens it, and returns how many a second are renewed.
    pub async fn burst(&self, gate: &watch::Sender<bool>, leases: usize, ttl: Duration) -> f64 {
        gate.send(false).expect("the store listens");
        tokio::time::sleep(Self::pause(ttl)).await;
        self.passed.lock().expect("no panic").clear();
        let mut renewed = self.renewed.subscribe();
        let before = *renewed.borrow();
        let goal = before + leases * 9 / 10;
        self.goal.store(goal, Ordering::Relaxed);
        gate.send(true).expect("the store listens");
        let started = Instant::now();
        let all = |total: &usize| *total >= goal;
        renewed.wait_for(all).await.expect("the store lives");
        let count = *renewed.borrow() - before;
        count as f64 / started.elapsed().as_secs_f64()
    }

    /// After how long each lease of this ttl is due.
    pub fn pause(ttl: Duration) -> Duration {
        ttl / 3 + Duration::from_millis(200)
    }

    async fn renew_through(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        let mut gate = self.gate.clone();
        if gate.wait_for(|is_open| *is_open).await.is_err() {
            // The bench is over, and the gate stays closed.
            std::future::pending::<()>().await;
        }
        let renewed = self.inner.renew(batch, limit).await;
        let outcomes = renewed.outcomes.iter();
        let count = outcomes
            .filter(|outcome| matches!(outcome, Outcome::Renewed))
            .count();
        self.passed.lock().expect("no panic").push(batch.to_vec());
        // No task is woken before the last one: in the bare run none is either.
        self.renewed.send_if_modified(|total| {
            *total += count;
            *total >= self.goal.load(Ordering::Relaxed)
        });
        renewed
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Gated {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }
    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
    fn location(&self) -> String {
        self.inner.location()
    }
    fn shard(&self, name: &Name) -> u32 {
        self.inner.shard(name)
    }
    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        self.inner.acquire(claim, ask, limit)
    }
    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        self.inner.release(name, holder, keep_for, limit)
    }
    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.leave(name, client, limit)
    }
    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        self.inner.notices()
    }
    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        self.inner.inspect(name, limit)
    }
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        self.inner.list(prefix, limit)
    }
    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.inner.evict(name, how, limit)
    }
    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        self.inner.hazards(limit)
    }
    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        self.inner.members(limit)
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_through(batch, limit))
    }
    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let inner = self.inner.on_own_connection(purpose).await?;
            Ok(Arc::new(Self {
                inner,
                ..self.clone()
            }) as Arc<dyn Store>)
        })
    }
}

/// Grants and renews everything and keeps nothing, so that the growth of memory is what a client needs.
#[derive(Debug)]
pub struct Yes;

impl Store for Yes {
    fn facts(&self) -> Facts {
        Facts::new("nowhere")
    }
    fn shard(&self, _: &Name) -> u32 {
        0
    }
    fn members(&self, _: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Monotonic)
    }
    fn location(&self) -> String {
        "nowhere".into()
    }
    fn acquire<'a>(
        &'a self,
        _: &'a Claim,
        _: Ask,
        _: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        let token = Token::new(1).expect("valid");
        Box::pin(async move { Ok(Answer::Granted(Grant::new(token))) })
    }
    fn renew<'a>(&'a self, batch: &'a [Renewal], _: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(async move { Renewed::new(batch.iter().map(|_| Outcome::Renewed).collect()) })
    }
    fn release<'a>(
        &'a self,
        _: &'a Name,
        _: Holder,
        _: Option<Duration>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(async { Ok(Release::Released) })
    }
    fn inspect<'a>(
        &'a self,
        _: &'a Name,
        _: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async { Ok(None) })
    }
    fn list<'a>(&'a self, _: &'a str, _: Duration) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn evict<'a>(
        &'a self,
        _: &'a Name,
        _: Eviction,
        _: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async { Ok(false) })
    }
    fn leave<'a>(
        &'a self,
        _: &'a Name,
        _: ClientId,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async { Ok(None) })
    }
    fn hazards(&self, _: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn on_own_connection(&self, _: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async { Ok(Arc::new(Self) as Arc<dyn Store>) })
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
