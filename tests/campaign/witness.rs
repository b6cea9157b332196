//! A store that writes down each request and its answer, between the client and the real store. Bugs are planted outside
//! of it, so that what it writes is true even when the client is told otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::{
    Answer, Ask, Claim, Eviction, Facts as StoreFacts, Failed, Grant, Hazard, Held, Member,
    Notices, Outcome, Purpose, Release, Renewal, Renewed, Sent, Store,
};
use leasehold::{BoxFuture, ClientId, Error, Holder, Name, Token};
use serde::{Deserialize, Serialize};

use crate::history::{Facts, Operation, Phase, Scribe, micros};

/// A bug that is planted in a worker's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Bug {
    /// A renewal without an answer within a sixth of the ttl counts as one that succeeded.
    OptimisticRenewal,
    /// A refused renewal counts as one that succeeded.
    IgnoredRefusal,
    /// The store is asked for half of the ttl that the holder counts with.
    LongDeadline,
    /// Each grant comes with the first grant's token.
    ReusedToken,
    /// A write raises no fence and is compared with none. (Planted in the worker, not here.)
    SkippedComparison,
    /// Each look at a permit shows that it is free.
    BlindLooks,
}

/// The store, its scribe, and the bug.
#[derive(Debug)]
pub(crate) struct Witness {
    store: Arc<dyn Store>,
    scribe: Scribe,
    bug: Option<Bug>,
    first_token: Arc<AtomicU64>,
}

impl Witness {
    pub(crate) fn new(store: Arc<dyn Store>, scribe: Scribe, bug: Option<Bug>) -> Self {
        Self {
            store,
            scribe,
            bug,
            first_token: Arc::default(),
        }
    }

    async fn acquire_seen(
        &self,
        claim: &Claim,
        ask: Ask,
        limit: Duration,
    ) -> Result<Answer, Failed> {
        let mut claim = claim.clone();
        claim.ttl = self.ttl(claim.ttl);
        let mut facts = Facts::named(claim.name.as_str());
        facts.holder = Some(claim.holder.to_string());
        facts.ttl_us = Some(micros(claim.ttl));
        let call = self.scribe.invoke(Operation::Claim, facts.clone());
        let answer = self.store.acquire(&claim, ask, limit).await;
        let answer = answer.map(|answer| self.with_reused_token(answer));
        let phase = match &answer {
            Ok(Answer::Granted(grant)) => {
                facts.token = Some(grant.token.get());
                Phase::Answer
            }
            Ok(Answer::Held(_)) => Phase::Refused,
            Err(failed) if failed.sent == Sent::Perhaps => {
                facts.detail = failed.error.to_string();
                Phase::Unknown
            }
            Err(failed) => {
                facts.detail = failed.error.to_string();
                Phase::Refused
            }
        };
        self.scribe.end(Operation::Claim, phase, call, facts);
        answer
    }

    async fn renew_seen(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        let batch: Vec<Renewal> = batch
            .iter()
            .map(|one| Renewal::new(one.name.clone(), one.holder, one.token, self.ttl(one.ttl)))
            .collect();
        let calls = batch.iter().map(|one| {
            let mut facts = Facts::held(one.name.as_str(), one.holder, one.token.get());
            facts.ttl_us = Some(micros(one.ttl));
            self.scribe.invoke(Operation::Renew, facts)
        });
        let calls: Vec<u64> = calls.collect();
        // The watchdog awaits an answer up to the deadline: by then nothing is gained by a bug that believes in it.
        let soon = batch.iter().map(|one| one.ttl / 6).min();
        let soon = soon.filter(|_| self.bug == Some(Bug::OptimisticRenewal));
        let limit = soon.map_or(limit, |soon| limit.min(soon));
        let mut renewed = self.store.renew(&batch, limit).await;
        for ((one, call), outcome) in batch.iter().zip(calls).zip(&mut renewed.outcomes) {
            let mut facts = Facts::held(one.name.as_str(), one.holder, one.token.get());
            let phase = match outcome {
                Outcome::Renewed => Phase::Answer,
                Outcome::Unknown(error) => {
                    facts.detail = error.to_string();
                    Phase::Unknown
                }
                _ => Phase::Refused,
            };
            self.scribe.end(Operation::Renew, phase, call, facts);
            let is_believed = match self.bug {
                Some(Bug::OptimisticRenewal) => phase == Phase::Unknown,
                Some(Bug::IgnoredRefusal) => phase == Phase::Refused,
                _ => false,
            };
            if is_believed {
                *outcome = Outcome::Renewed;
            }
        }
        renewed
    }

    fn ttl(&self, ttl: Duration) -> Duration {
        match self.bug {
            Some(Bug::LongDeadline) => ttl / 2,
            _ => ttl,
        }
    }

    fn with_reused_token(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Granted(grant) if self.bug == Some(Bug::ReusedToken) => {
                let token = grant.token.get();
                let first =
                    self.first_token
                        .compare_exchange(0, token, Ordering::SeqCst, Ordering::SeqCst);
                let token = first.err().unwrap_or(token);
                Answer::Granted(Grant::new(Token::new(token).expect("it was granted")))
            }
            answer => answer,
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Witness {
    fn facts(&self) -> StoreFacts {
        self.store.facts()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.store.clock()
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
        Box::pin(self.acquire_seen(claim, ask, limit))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_seen(batch, limit))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        self.store.release(name, holder, keep_for, limit)
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.store.leave(name, client, limit)
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        self.store.notices()
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async move {
            let held = self.store.inspect(name, limit).await?;
            // Not at the door: a writer that sees its own door free gives up.
            let is_blind = self.bug == Some(Bug::BlindLooks) && name.as_str().contains('#');
            Ok(held.filter(|_| !is_blind))
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        self.store.list(prefix, limit)
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.store.evict(name, how, limit)
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        self.store.hazards(limit)
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        self.store.members(limit)
    }

    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let store = self.store.on_own_connection(purpose).await?;
            let witness = Self {
                store,
                scribe: self.scribe.clone(),
                bug: self.bug,
                first_token: self.first_token.clone(),
            };
            Ok(Arc::new(witness) as Arc<dyn Store>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
