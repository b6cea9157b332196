//! Renewals in batches: one statement each, which skips rows that another transaction has locked.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::connection::Arguments;
use super::failure::Failure;
use super::protocol::reply;
use super::{Postgres, millis, replacing};
use crate::store::backend::Backend;
use crate::store::budget::Budget;
use crate::store::{Outcome, Renewal, Renewed};
use crate::token::Token;

/// The pause before a locked row is tried again: a claim or a mark of ours holds its lock no longer than that.
const AGAIN: Duration = Duration::from_millis(10);
/// Says how often it is tried again. A row that is locked for longer is locked by another program.
const TRIES: usize = 3;

impl Postgres {
    pub(super) async fn renew_batch(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        let every: Vec<_> = batch.iter().collect();
        let unknown = |failure, renewal: &Renewal| {
            Outcome::Unknown(self.error(failure, "renew", &renewal.name))
        };
        let (mut outcomes, server_time) = match self.renew_once(&every, budget).await {
            Ok(first) => first,
            Err(failure) => {
                let unknown = |renewal| unknown(failure.clone(), renewal);
                return Renewed::new(batch.iter().map(unknown).collect());
            }
        };
        for _ in 1..TRIES {
            let is_locked = |index: &usize| outcomes[*index].is_none();
            let locked: Vec<_> = (0..batch.len()).filter(is_locked).collect();
            if locked.is_empty() || budget.left() < 2 * AGAIN {
                break;
            }
            tokio::time::sleep(AGAIN).await;
            let these: Vec<_> = locked.iter().map(|index| &batch[*index]).collect();
            let Ok((again, _)) = self.renew_once(&these, budget).await else {
                break;
            };
            for (index, outcome) in locked.into_iter().zip(again) {
                outcomes[index] = outcome;
            }
        }
        let outcomes = batch.iter().zip(outcomes).map(|(renewal, outcome)| {
            outcome.unwrap_or_else(|| unknown(Failure::locked(), renewal))
        });
        Renewed::new(outcomes.collect()).at(Some(server_time))
    }

    /// Returns what [`reply::renewed`] does.
    async fn renew_once(
        &self,
        part: &[&Renewal],
        budget: Budget,
    ) -> Result<(Vec<Option<Outcome>>, Duration), Failure> {
        let names: Vec<_> = part.iter().map(|renewal| renewal.name.as_str()).collect();
        let holders = part.iter().map(|renewal| renewal.holder.to_string());
        let holders: Vec<_> = holders.collect();
        let tokens: Vec<_> = part.iter().map(|renewal| token(renewal.token)).collect();
        let ttls: Vec<_> = part.iter().map(|renewal| millis(renewal.ttl)).collect();
        let least = part.iter().map(|renewal| renewal.ttl).min();
        let arguments: Arguments<'_> = &[
            (&names, Type::TEXT_ARRAY),
            (&holders, Type::TEXT_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&ttls, Type::INT8_ARRAY),
        ];
        let budget = replacing(budget, least.unwrap_or_default());
        let rows = self.connections.call("renew_1", arguments, budget);
        reply::renewed(&rows.await?, part.len())
    }
}

fn token(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token is at most 2^53-1")
}
