//! Renewals in batches: one script call extends many leases, and one bad lease does not affect the others.

use std::ops::Range;

use deadpool_redis::redis::RedisWrite as _;

use super::failure::Failure;
use super::fleet::Call;
use super::protocol::reply::{self, RenewReply};
use super::protocol::scripts::SCRIPTS;
use super::protocol::slot::slot_of;
use super::{Redis, of_ttl};
use crate::store::backend::Backend;
use crate::store::budget::{Budget, millis};
use crate::store::{Outcome, Renewal, Renewed};

impl Redis {
    pub(super) async fn renew_in_parts(&self, renewals: &[Renewal], budget: Budget) -> Renewed {
        if self.fleet.is_cluster() {
            return self.renew_each(renewals, budget).await;
        }
        let mut renewed = Renewed::new(Vec::with_capacity(renewals.len()));
        for (range, outcome) in self.renew_parts(renewals, budget).await {
            let of = &renewals[range];
            let outcomes = match outcome {
                Ok(batch) => {
                    // The last part of a batch was answered last. A replica that takes its master's place has the
                    // leases' ends by its master's clock, so one behind the other they count as one server.
                    renewed = renewed.at(Some(batch.server_time));
                    batch.outcomes
                }
                Err(failure) => of.iter().map(|_| Err(failure.clone())).collect(),
            };
            renewed.outcomes.extend(self.outcomes(of, outcomes));
        }
        renewed
    }

    /// Sends the batch. If it is refused because of one of its keys, sends its halves, and so on. Returns the parts in
    /// the order of the renewals.
    async fn renew_parts(
        &self,
        renewals: &[Renewal],
        budget: Budget,
    ) -> Vec<(Range<usize>, Result<RenewReply, Failure>)> {
        let mut done = Vec::new();
        let mut waiting = Vec::new();
        if !renewals.is_empty() {
            waiting.push(0..renewals.len());
        }
        // The last range pushed is popped first, and the left half is pushed last: so the parts stay in order.
        while let Some(range) = waiting.pop() {
            let outcome = self.renew_batch(&renewals[range.clone()], budget).await;
            match outcome {
                Err(failure) if failure.is_of_one_key() && range.len() > 1 => {
                    let middle = range.start + range.len() / 2;
                    waiting.push(middle..range.end);
                    waiting.push(range.start..middle);
                }
                outcome => done.push((range, outcome)),
            }
        }
        done
    }

    async fn renew_batch(
        &self,
        renewals: &[Renewal],
        budget: Budget,
    ) -> Result<RenewReply, Failure> {
        let count = renewals.len();
        let keys = renewals
            .iter()
            .map(|renewal| self.keys.lease(&renewal.name));
        let mut call = SCRIPTS.renew.call(keys);
        for renewal in renewals {
            // The beginning of the lease's value.
            call.write_arg_fmt(format_args!("{} {} ", renewal.holder, renewal.token));
        }
        // Most batches have one ttl, which the server then reads once.
        let ttls = renewals.iter().map(|renewal| renewal.ttl);
        let (least_ttl, longest_ttl) = (ttls.clone().min(), ttls.clone().max());
        let different = if least_ttl == longest_ttl { 1 } else { count };
        ttls.take(different).for_each(|ttl| {
            call.arg(millis(ttl));
        });
        let budget = of_ttl(budget, least_ttl.unwrap_or_default());
        let (first, is_written) = (&renewals[0].name, reply::has_renewals);
        let asked = self.fleet.run(first, &call, Some(is_written), budget);
        let reply = asked.await?;
        let batch = reply::renewed(&reply, count)?;
        let is_renewed = |outcome: &Result<_, _>| matches!(outcome, Ok(Outcome::Renewed));
        if batch.outcomes.iter().any(is_renewed) {
            self.fleet.note_write();
        }
        Ok(batch)
    }

    /// Sends one call for each renewal: a script's keys must be in one slot.
    async fn renew_each(&self, renewals: &[Renewal], budget: Budget) -> Renewed {
        let call = |renewal: &Renewal| {
            let keys = [self.keys.lease(&renewal.name)];
            let mut command = SCRIPTS.renew_one.call(keys);
            command.write_arg_fmt(format_args!("{} {} ", renewal.holder, renewal.token));
            command.arg(millis(renewal.ttl));
            Call {
                slot: slot_of(renewal.name.as_str()),
                is_written: Some(|reply| matches!(reply::renewed_one(reply), Ok(Outcome::Renewed))),
                command,
            }
        };
        let calls: Vec<_> = renewals.iter().map(call).collect();
        let least_ttl = renewals.iter().map(|renewal| renewal.ttl).min();
        let budget = of_ttl(budget, least_ttl.unwrap_or_default());
        let (replies, server_time) = self.fleet.run_each(&calls, budget).await;
        let outcomes = replies.into_iter();
        let outcomes = outcomes.map(|reply| reply.and_then(|reply| reply::renewed_one(&reply)));
        let mut renewed = Renewed::new(self.outcomes(renewals, outcomes).collect());
        renewed.server_time = server_time;
        renewed
    }

    fn outcomes(
        &self,
        renewals: &[Renewal],
        outcomes: impl IntoIterator<Item = Result<Outcome, Failure>>,
    ) -> impl Iterator<Item = Outcome> {
        let outcomes = renewals.iter().zip(outcomes);
        outcomes.map(|(renewal, outcome)| {
            let unknown = |failure| Outcome::Unknown(self.error(failure, "renew", &renewal.name));
            outcome.unwrap_or_else(unknown)
        })
    }
}
