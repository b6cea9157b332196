//! Renewals in batches: one statement each, which skips rows that another transaction has locked.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::connection::Arguments;
use super::failure::Failure;
use super::protocol::reply::{self, Letter};
use super::{Postgres, millis, replace_every};
use crate::error::{Error, ErrorKind};
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
        let first = match self.renew_once(&every, budget).await {
            Ok(first) => first,
            Err(failure) => {
                let again = |_| Outcome::Unknown(self.error_of_all(failure.clone(), "renew"));
                return Renewed::new(batch.iter().map(again).collect());
            }
        };
        let mut marks = first.marks;
        for _ in 1..TRIES {
            let locked = locked(&marks);
            if locked.is_empty() || budget.left() < 2 * AGAIN {
                break;
            }
            tokio::time::sleep(AGAIN).await;
            let these: Vec<_> = locked.iter().map(|index| &batch[*index]).collect();
            let Ok(again) = self.renew_once(&these, budget).await else {
                break;
            };
            for (index, mark) in locked.into_iter().zip(again.marks) {
                marks[index] = mark;
            }
        }
        let outcomes = batch.iter().zip(marks);
        let outcomes = outcomes.map(|(renewal, mark)| self.outcome(renewal, mark));
        Renewed::new(outcomes.collect()).at(Some(first.server_time))
    }

    async fn renew_once(
        &self,
        part: &[&Renewal],
        budget: Budget,
    ) -> Result<reply::RenewedBatch, Failure> {
        let names: Vec<_> = part.iter().map(|renewal| renewal.name.as_str()).collect();
        let holders: Vec<_> = part
            .iter()
            .map(|renewal| renewal.holder.to_string())
            .collect();
        let tokens: Vec<_> = part.iter().map(|renewal| token(renewal.token)).collect();
        let ttls: Vec<_> = part.iter().map(|renewal| millis(renewal.ttl)).collect();
        let least = part.iter().map(|renewal| renewal.ttl).min();
        let arguments: Arguments<'_> = &[
            (&names, Type::TEXT_ARRAY),
            (&holders, Type::TEXT_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&ttls, Type::INT8_ARRAY),
        ];
        let every = replace_every(least.unwrap_or_default());
        let rows = self.connections.call("renew_1", arguments, budget, every);
        reply::renewed(&rows.await?, part.len())
    }

    fn outcome(&self, renewal: &Renewal, mark: Letter) -> Outcome {
        match mark {
            Letter::Renewed => Outcome::Renewed,
            Letter::Refused => Outcome::Refused,
            Letter::Evicted => Outcome::Evicted,
            Letter::Locked => Outcome::Unknown(Error::new(
                ErrorKind::TimedOut,
                format!(
                    "renew failed: another transaction keeps the row locked name={} store={}",
                    renewal.name, self.address
                ),
            )),
        }
    }
}

fn token(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token is at most 2^53-1")
}

fn locked(marks: &[Letter]) -> Vec<usize> {
    let marks = marks.iter().enumerate();
    let locked = marks.filter(|(_, mark)| **mark == Letter::Locked);
    locked.map(|(index, _)| index).collect()
}
