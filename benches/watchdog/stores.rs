//! Stores that wrap another one, to stop its renewals, or to keep none at all.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Grant, Hazard, Held, Lane, Member, Notices,
    Outcome, Release, Renewal, Renewed, Store,
};

use leasehold::{BoxFuture, ClientId, Error, Holder, Name, Token};
use tokio::sync::watch;

use crate::forward::forward;

/// Another store, whose renewals wait while the gate is shut. Notes what passes.
#[derive(Debug, Clone)]
pub(crate) struct Gated {
    inner: Arc<dyn Store>,
    gate: watch::Receiver<bool>,
    pub(crate) passed: Arc<Mutex<Vec<Vec<Renewal>>>>,
    pub(crate) renewed: Arc<watch::Sender<usize>>,
    /// How many are to be renewed before anybody hears of it.
    pub(crate) goal: Arc<AtomicUsize>,
}

impl Gated {
    pub(crate) fn new(inner: Arc<dyn Store>) -> (Self, watch::Sender<bool>) {
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

    async fn renew_through(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        let mut gate = self.gate.clone();
        if gate.wait_for(|is_open| *is_open).await.is_err() {
            // The bench is over, and the gate stays shut.
            std::future::pending::<()>().await;
        }
        let renewed = self.inner.renew(batch, limit).await;
        let outcomes = renewed.outcomes.iter();
        let count = outcomes
            .filter(|outcome| matches!(outcome, Outcome::Renewed))
            .count();
        self.passed.lock().expect("no panic").push(batch.to_vec());
        // Nobody is woken before the last one: in the bare run nobody is either.
        self.renewed.send_if_modified(|total| {
            *total += count;
            *total >= self.goal.load(Ordering::Relaxed)
        });
        renewed
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Gated {
    forward!(inner: facts shard members clock location acquire release leave notices inspect list evict hazards close);

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_through(batch, limit))
    }
    fn on_own_connection(&self, lane: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let inner = self.inner.on_own_connection(lane).await?;
            Ok(Arc::new(Self {
                inner,
                ..self.clone()
            }) as Arc<dyn Store>)
        })
    }
}

/// Grants and renews everything and keeps nothing, so that what memory grows by is what a client needs.
#[derive(Debug)]
pub(crate) struct Yes;

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
    fn on_own_connection(&self, _: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async { Ok(Arc::new(Self) as Arc<dyn Store>) })
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
