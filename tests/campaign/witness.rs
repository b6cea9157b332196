//! A store that writes down each request and its answer, between the client and the real store. Bugs are planted outside
//! of it, so that what it writes is true even when the client is told otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::store::{
    Answer, Ask, Claim, Failed, Grant, Held, Outcome, Renewal, Renewed, Sent, Store,
};
use leasehold::{Name, Token};
use leasehold_harness::wrapped::{Hook, Wrapped};
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
    BlindPolls,
}

/// The scribe, and the bug.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    scribe: Scribe,
    bug: Option<Bug>,
    first_token: Arc<AtomicU64>,
}

impl Witness {
    pub(crate) fn new(store: Arc<dyn Store>, scribe: Scribe, bug: Option<Bug>) -> Wrapped<Self> {
        let hook = Self {
            scribe,
            bug,
            first_token: Arc::default(),
        };
        Wrapped { store, hook }
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

impl Hook for Witness {
    async fn acquire(
        &self,
        store: &dyn Store,
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
        let answer = store.acquire(&claim, ask, limit).await;
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

    async fn renew(&self, store: &dyn Store, batch: &[Renewal], limit: Duration) -> Renewed {
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
        let mut renewed = store.renew(&batch, limit).await;
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

    fn inspected(&self, name: &Name, held: Option<Held>) -> Option<Held> {
        // Not at the door: a writer that sees its own door free gives up.
        let is_blind = self.bug == Some(Bug::BlindPolls) && name.as_str().contains('#');
        held.filter(|_| !is_blind)
    }
}
