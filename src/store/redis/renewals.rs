//! Renewals in batches: one script call extends many leases, and one bad lease does not affect the others.

use std::time::Duration;

use deadpool_redis::redis::{self, RedisWrite as _};

use super::failure::Failure;
use super::fleet::{Call, OF_MANY, OF_ONE};
use super::protocol::reply;
use super::protocol::scripts::SCRIPTS;
use super::protocol::slot::slot_of;
use super::{Redis, of_ttl};
use crate::store::kit::backend::Backend;
use crate::store::kit::budget::{Budget, millis};
use crate::store::{Outcome, Renewal, Renewed, ServerTime};

/// An outcome for each renewal, in their order.
type Outcomes = Vec<Result<Outcome, Failure>>;

impl Redis {
    pub(super) async fn renew_in_parts(&self, renewals: &[Renewal], budget: Budget) -> Renewed {
        let (outcomes, server_time) = match self.fleet.is_cluster() {
            true => self.renew_each(renewals, budget).await,
            false => self.renew_parts(renewals, budget).await,
        };
        let outcomes = renewals.iter().zip(outcomes).map(|(renewal, outcome)| {
            let unknown = |failure| Outcome::Unknown(self.error(failure, "renew", &renewal.name));
            outcome.unwrap_or_else(unknown)
        });
        let mut renewed = Renewed::new(outcomes.collect());
        let is_renewed = |(outcome, _): &(&_, _)| matches!(outcome, Outcome::Renewed);
        let held = renewed.outcomes.iter().zip(renewals).filter(is_renewed);
        self.need_for(held.map(|(_, renewal)| renewal.ttl).max());
        renewed.server_time = server_time;
        renewed
    }

    /// Sends the batch. If it is refused because of one of its keys, sends its halves, and so on.
    async fn renew_parts(
        &self,
        renewals: &[Renewal],
        budget: Budget,
    ) -> (Outcomes, Option<ServerTime>) {
        let (mut outcomes, mut server_time) = (Vec::with_capacity(renewals.len()), None);
        // The left half is taken before the right one, so the outcomes stay in order.
        let mut waiting = vec![renewals];
        while let Some(part) = waiting.pop().filter(|part| !part.is_empty()) {
            match self.renew_batch(part, budget).await {
                Ok((time, renewed)) => {
                    // The last part of a batch was answered last. A promoted replica has the ends of leases by its
                    // master's clock, so a master and its successor count as one server.
                    server_time = Some(ServerTime { shard: 0, time });
                    outcomes.extend(renewed);
                }
                Err(failure) if failure.is_of_one_key() && part.len() > 1 => {
                    let (left, right) = part.split_at(part.len() / 2);
                    waiting.extend([right, left]);
                }
                Err(failure) => outcomes.extend(part.iter().map(|_| Err(failure.clone()))),
            }
        }
        (outcomes, server_time)
    }

    async fn renew_batch(
        &self,
        renewals: &[Renewal],
        budget: Budget,
    ) -> Result<(Duration, Outcomes), Failure> {
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
        let (name, is_written) = (&renewals[0].name, reply::has_renewals);
        let asked = self.fleet.run(name, call, Some(is_written), OF_ONE, budget);
        let reply = asked.await?;
        let (time, outcomes) = reply::renewed(&reply, count)?;
        let is_renewed = |outcome: &Result<_, _>| matches!(outcome, Ok(Outcome::Renewed));
        if outcomes.iter().any(is_renewed) {
            self.fleet.settings.note_write();
        }
        Ok((time, outcomes))
    }

    /// Sends one call for each renewal: a script's keys must be in one slot.
    async fn renew_each(
        &self,
        renewals: &[Renewal],
        budget: Budget,
    ) -> (Outcomes, Option<ServerTime>) {
        let call = |renewal: &Renewal| {
            let keys = [self.keys.lease(&renewal.name)];
            let mut command = SCRIPTS.renew_one.call(keys);
            command.write_arg_fmt(format_args!("{} {} ", renewal.holder, renewal.token));
            command.arg(millis(renewal.ttl));
            let slot = slot_of(renewal.name.as_str());
            Call { slot, command }
        };
        let mut calls: Vec<_> = renewals.iter().map(call).collect();
        // The time of the server that is asked for the last of them.
        let time = calls.last().map(|call| Call {
            slot: call.slot,
            command: redis::cmd("TIME"),
        });
        calls.extend(time);
        // Clocks of different servers are different clocks, so this one counts only if one server answers for all.
        let shard = || {
            let shards = calls.iter().map(|call| self.fleet.shard_of(call.slot));
            shards
                .clone()
                .min()
                .filter(|least| shards.max() == Some(*least))
        };
        let least_ttl = renewals.iter().map(|renewal| renewal.ttl).min();
        let budget = of_ttl(budget, least_ttl.unwrap_or_default());
        let is_written = |reply: &_| matches!(reply::renewed_one(reply), Ok(Outcome::Renewed));
        let before = shard();
        let asked = self
            .fleet
            .run_each(&calls, Some(is_written), OF_MANY, budget);
        let (mut answers, is_direct) = asked.await;
        let time = answers.pop().and_then(|time| reply::time(&time.ok()?).ok());
        let shard = before.filter(|before| is_direct && shard() == Some(*before));
        let server_time = shard
            .zip(time)
            .map(|(shard, time)| ServerTime { shard, time });
        let outcomes = answers.into_iter();
        let outcomes = outcomes.map(|answer| reply::renewed_one(&answer?));
        (outcomes.collect(), server_time)
    }
}
