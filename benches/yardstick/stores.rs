//! Stores that wrap another one to stop its renewals, or that keep nothing at all.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::store::memory::Memory;
use leasehold::store::{
    Answer, Ask, Claim, Facts, Failed, Grant, Notices, Outcome, Renewal, Renewed, Store,
};
use leasehold::{Error, Token};
use leasehold_harness::wrapped::{Hook, Wrapped};
use tokio::sync::watch;

/// Another store whose renewals wait while the gate is closed. It notes the batches that pass.
#[derive(Debug, Clone)]
pub struct Gated {
    gate: watch::Receiver<bool>,
    pub passed: Arc<Mutex<Vec<Vec<Renewal>>>>,
    renewed: Arc<watch::Sender<usize>>,
    /// How many renewals are awaited before the waiting task is woken.
    goal: Arc<AtomicUsize>,
}

impl Gated {
    pub fn new(store: Arc<dyn Store>) -> (Wrapped<Self>, watch::Sender<bool>) {
        let (open, gate) = watch::channel(true);
        let hook = Self {
            gate,
            passed: Arc::default(),
            renewed: Arc::new(watch::channel(0).0),
            goal: Arc::default(),
        };
        (Wrapped { store, hook }, open)
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
}

impl Hook for Gated {
    async fn renew(&self, store: &dyn Store, batch: &[Renewal], limit: Duration) -> Renewed {
        let mut gate = self.gate.clone();
        if gate.wait_for(|is_open| *is_open).await.is_err() {
            // The bench is over, and the gate stays closed.
            std::future::pending::<()>().await;
        }
        let renewed = store.renew(batch, limit).await;
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

/// Grants and renews everything and keeps nothing, so that the growth of memory is what a client needs. Beneath it is a
/// store that stays empty.
#[derive(Debug, Clone)]
pub struct Yes;

impl Yes {
    pub fn store() -> Wrapped<Self> {
        let store = Arc::new(Memory::new());
        Wrapped { store, hook: Self }
    }
}

impl Hook for Yes {
    fn facts(&self, _: &dyn Store) -> Facts {
        Facts::new("nowhere")
    }

    async fn acquire(
        &self,
        _: &dyn Store,
        _: &Claim,
        _: Ask,
        _: Duration,
    ) -> Result<Answer, Failed> {
        let token = Token::new(1).expect("valid");
        Ok(Answer::Granted(Grant::new(token)))
    }

    async fn renew(&self, _: &dyn Store, batch: &[Renewal], _: Duration) -> Renewed {
        Renewed::new(batch.iter().map(|_| Outcome::Renewed).collect())
    }

    async fn notices(&self, _: &dyn Store) -> Result<Option<Box<dyn Notices>>, Error> {
        Ok(None)
    }
}
