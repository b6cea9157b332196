//! Renewals in batches: one script call extends many leases, and one bad lease does not affect the others.

use std::ops::Range;
use std::sync::Arc;

use deadpool_redis::redis::RedisWrite as _;

use super::Redis;
use super::connection::budget::Budget;
use super::connection::open::Request;
use super::failure::Failure;
use super::fleet::{Call, Many};
use super::protocol::reply::{self, Mark, RenewReply};
use super::protocol::scripts::SCRIPTS;
use super::protocol::slot::slot_of;
use crate::store::backend::Backend;
use crate::store::{Outcome, Renewal, Renewed};

impl Redis {
    pub(super) async fn renew_in_parts(&self, renewals: &[Renewal], budget: Budget) -> Renewed {
        if let Some(many) = self.fleet.cluster() {
            return self.renew_each(many, renewals, budget).await;
        }
        let mut renewed = Renewed::new(Vec::with_capacity(renewals.len()));
        for (range, outcome) in self.renew_parts(renewals, budget).await {
            let of = &renewals[range];
            match outcome {
                Ok(batch) => {
                    // The last part of a batch was answered last. A replica that takes its master's place has the
                    // leases' ends by its master's clock, so one behind the other they count as one server.
                    renewed = renewed.at(Some(batch.server_time));
                    let marks = of.iter().zip(batch.marks);
                    let outcomes = marks.map(|(renewal, mark)| self.outcome(renewal, mark));
                    renewed.outcomes.extend(outcomes);
                }
                Err(failure) => renewed.outcomes.extend(
                    of.iter()
                        .map(|renewal| self.outcome(renewal, Mark::Failed(failure.clone()))),
                ),
            }
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
            .map(|renewal| self.keys.lease_word(&renewal.name));
        let mut call = SCRIPTS.renew.call(keys);
        for renewal in renewals {
            // What the value of the lease begins with.
            call.write_arg_fmt(format_args!("{} {} ", renewal.holder, renewal.token));
        }
        // Most batches have one ttl, which the server then reads once.
        let ttls = renewals.iter().map(|renewal| renewal.ttl);
        let (least_ttl, longest_ttl) = (ttls.clone().min(), ttls.clone().max());
        let different = if least_ttl == longest_ttl { 1 } else { count };
        ttls.take(different).for_each(|ttl| {
            call.arg(super::millis(ttl));
        });
        let replace_every = super::replace_every(least_ttl.unwrap_or_default());
        let request = Request::Written(&call, reply::has_renewals);
        let reply = self
            .fleet
            .run(&renewals[0].name, request, budget, replace_every);
        let reply = reply.await?;
        let batch = reply::renewed(&reply, count)?;
        if batch.marks.iter().any(|mark| matches!(mark, Mark::Renewed)) {
            self.fleet.note_write();
        }
        Ok(batch)
    }

    /// Sends one call for each renewal: a script's keys must be in one slot.
    async fn renew_each(&self, many: &Arc<Many>, renewals: &[Renewal], budget: Budget) -> Renewed {
        let call = |renewal: &Renewal| {
            let keys = [self.keys.lease_word(&renewal.name)];
            let mut command = SCRIPTS.renew_one.call(keys);
            command.write_arg_fmt(format_args!("{} {} ", renewal.holder, renewal.token));
            command.arg(super::millis(renewal.ttl));
            Call {
                slot: slot_of(renewal.name.as_str()),
                is_write: true,
                command,
            }
        };
        let calls: Vec<_> = renewals.iter().map(call).collect();
        let least_ttl = renewals.iter().map(|renewal| renewal.ttl).min();
        let replace_every = super::replace_every(least_ttl.unwrap_or_default());
        let (replies, server_time) = many.run_each(&calls, budget, replace_every).await;
        let marks = replies.into_iter().map(|reply| {
            let mark = reply.and_then(|reply| reply::renewed_one(&reply));
            mark.unwrap_or_else(Mark::Failed)
        });
        let marks = marks.zip(renewals);
        let outcomes = marks.map(|(mark, renewal)| self.outcome(renewal, mark));
        let mut renewed = Renewed::new(outcomes.collect());
        renewed.server_time = server_time;
        renewed
    }

    fn outcome(&self, renewal: &Renewal, mark: Mark) -> Outcome {
        match mark {
            Mark::Renewed => Outcome::Renewed,
            Mark::Refused => Outcome::Refused,
            Mark::Evicted => Outcome::Evicted,
            Mark::Failed(failure) => Outcome::Unknown(self.error(failure, "renew", &renewal.name)),
        }
    }
}
