//! Removal of old records, so that a storage has hardly more records than leases.
//!
//! The order is what keeps tokens rising: the mark is raised to the token of a record before that record is removed, on
//! the version that was read. Who finds no record reads the mark afterwards.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::register::{Expiry, Failure, Register};
use super::rules::{self, InHand};
use super::{IN_FLIGHT, MARK, Records};
use crate::holder::Holder;
use crate::store::kit::budget::Budget;
use crate::token::Token;

/// How long a record stays when it is over. A request that is still on its way after this time could write a token that
/// the mark has passed.
pub(super) const RETENTION: Duration = Duration::from_secs(60 * 60);

/// One of so many claims for a name without a record removes old ones: each such claim adds one record, and one sweep
/// removes more than that.
const SWEEP_EVERY: u64 = 64;
/// The longest time by which a claim or a list is delayed for it.
const SWEEP_LIMIT: Duration = Duration::from_secs(1);

impl<R: Register> Records<R> {
    /// Returns the mark, for a claim of a name without a record. Some of those claims remove old records first.
    pub(super) async fn mark_of_a_new_name(
        &self,
        holder: Holder,
        budget: Budget,
    ) -> Result<Option<Token>, Failure> {
        if let Expiry::ByStorage { .. } = self.expiry() {
            // It removes records itself, and shows the last token of one.
            return Ok(None);
        }
        if holder.bits().is_multiple_of(SWEEP_EVERY) {
            let limited = budget.at_most(budget.left() / 4);
            let before = self.observed.lock().time(self.clock.now());
            let before = before.map(|time| time.saturating_sub(RETENTION));
            // A later claim removes the rest.
            if let Ok(old) = self.list("", before, limited).await {
                self.sweep(old, limited).await;
            }
        }
        self.mark(budget).await
    }

    /// Removes the old ones of these records. What fails is left to a later sweep.
    pub(super) async fn sweep(&self, listed: Vec<(String, InHand)>, budget: Budget) {
        let expiry = self.expiry();
        if let Expiry::ByStorage { .. } = expiry {
            return;
        }
        let budget = budget.at_most(SWEEP_LIMIT);
        let now = self.clock.now();
        let time = self.observed.lock().time(now);
        let is_old = |(key, hand): &(String, InHand)| {
            let record = hand.record();
            let is_ours = record.by.is_some() && record.token.is_some();
            key != MARK && is_ours && hand.sighting.is_over_for(RETENTION, expiry, now, time)
        };
        let old: Vec<_> = listed.into_iter().filter(is_old).collect();
        let tokens = old.iter().filter_map(|(_, hand)| hand.record().token);
        let Some(highest) = tokens.max() else {
            return;
        };
        if self.raise_mark(highest, budget).await.is_err() {
            return;
        }
        let removals = old.iter().map(|(key, hand)| self.remove(key, hand, budget));
        let removals: Vec<_> = removals.collect();
        let removed = stream::iter(removals).buffer_unordered(IN_FLIGHT);
        removed.for_each(async |_| {}).await;
    }

    async fn raise_mark(&self, token: Token, budget: Budget) -> Result<(), Failure> {
        let raised = self.settle(MARK, budget, |mark| rules::raised_mark(mark, token));
        raised.await.map(drop)
    }

    async fn remove(&self, key: &str, hand: &InHand, budget: Budget) -> Result<(), Failure> {
        if !self.register.traits().removes {
            return self
                .write(key, rules::emptied(hand), budget)
                .await
                .map(drop);
        }
        let removed = self.register.remove(key, &hand.sighting.record.version);
        self.observed.lock().forget(key);
        self.ask(budget, removed).await.map(drop)
    }
}
