//! Renewals in batches: one statement each, which skips rows that another transaction has locked. A lease whose row was
//! skipped is renewed alone, by a statement that waits for the row, over the connections for requests.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_postgres::types::Type;

use super::connection::Arguments;
use super::failure::Failure;
use super::protocol::reply;
use super::{Postgres, millis, replacing};
use crate::store::kit::backend::Backend;
use crate::store::kit::budget::Budget;
use crate::store::{Outcome, Renewal, Renewed};
use crate::token::Token;

/// The pause before a locked row is tried again: a claim or a mark of ours holds its lock no longer than that.
const AGAIN: Duration = Duration::from_millis(10);
/// Number of retries before a statement waits for the row.
const TRIES: usize = 3;
/// Maximum number of statements that wait for rows at once: each occupies a connection.
const WAITING: usize = 4;
/// Minimum rest of a limit to send one: more than the functions wait for a lock.
const WORTH_A_WAIT: Duration = Duration::from_millis(150);

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
        self.wait_for_rows(batch, &mut outcomes, budget).await;
        let outcomes = batch.iter().zip(outcomes).map(|(renewal, outcome)| {
            outcome.unwrap_or_else(|| unknown(Failure::locked(), renewal))
        });
        Renewed::new(outcomes.collect()).at(Some(server_time))
    }

    /// Renews each lease whose row was skipped by itself, and waits for the row. The outcome stays unknown for rows
    /// that are locked for longer than the limit, and for leases without a turn within it.
    async fn wait_for_rows(
        &self,
        batch: &[Renewal],
        outcomes: &mut [Option<Outcome>],
        budget: Budget,
    ) {
        let mut locked: Vec<_> = (0..batch.len())
            .filter(|index| outcomes[*index].is_none())
            .collect();
        // Those that stay locked must not always be the same that keep the others from their turn.
        fastrand::shuffle(&mut locked);
        let mut waits = FuturesUnordered::new();
        loop {
            while waits.len() < WAITING
                && budget.left() > WORTH_A_WAIT
                && let Some(index) = locked.pop()
            {
                waits.push(self.renew_alone(index, &batch[index], budget));
            }
            match waits.next().await {
                Some((index, Ok(renewed))) => outcomes[index] = renewed,
                Some((_, Err(failure))) => tracing::debug!(%failure, "a locked row was waited for"),
                None => return,
            }
        }
    }

    async fn renew_alone(
        &self,
        index: usize,
        renewal: &Renewal,
        budget: Budget,
    ) -> (usize, Result<Option<Outcome>, Failure>) {
        let arguments: Arguments<'_> = &[
            (&renewal.name.as_str(), Type::TEXT),
            (&renewal.holder.to_string(), Type::TEXT),
            (&token(renewal.token), Type::INT8),
            (&millis(renewal.ttl), Type::INT8),
        ];
        let budget = replacing(budget, renewal.ttl);
        let rows = self.connections().call("renew_locked_1", arguments, budget);
        let renewed = rows.await.and_then(|rows| reply::renewed(&rows, 1));
        (index, renewed.map(|(mut one, _)| one.pop().flatten()))
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
        let longest = part.iter().map(|renewal| renewal.ttl).max();
        self.connections
            .room()
            .need_for(longest.unwrap_or_default());
        let connections = self.renewing().await;
        let rows = connections.call("renew_1", arguments, budget).await;
        let renewed = reply::renewed(&rows?, part.len())?;
        let is_renewed = |outcome: &Option<_>| matches!(outcome, Some(Outcome::Renewed));
        if renewed.0.iter().any(is_renewed) {
            connections.has_renewed();
        }
        Ok(renewed)
    }
}

fn token(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token is at most 2^53-1")
}
