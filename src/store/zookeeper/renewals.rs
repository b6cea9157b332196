//! Batches of renewals. Each is one transaction; if that fails because of one lease, the others are read together, and
//! those whose nodes are there are renewed in the next one.

use std::time::Duration;

use futures_util::future::join_all;

use super::connection::session::SessionCall;
use super::failure::Failure;
use super::protocol::tree::Kind;
use super::protocol::wire::{Aborted, Change, Stat};
use super::read::read_millis;
use super::{Zookeeper, millis};
use crate::clock::{Boottime, Clock};
use crate::store::kit::backend::Backend;
use crate::store::kit::budget::Budget;
use crate::store::{Outcome, Renewal, Renewed};

impl Zookeeper {
    pub(super) async fn renew_batch(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        let Some(ttl) = batch.iter().map(|renewal| renewal.ttl).min() else {
            return Renewed::new(Vec::new());
        };
        let call = match self.call(budget).await {
            Ok(call) => call,
            Err(failure) => {
                let unknown = |_| Outcome::Unknown(self.error_of_all(failure.clone(), "renew"));
                return Renewed::new(batch.iter().map(unknown).collect());
            }
        };
        call.line.silence_limit.limit_for(ttl);
        let renewed = call.renew_together(batch).await;
        // After a change of leaders the two clocks cannot be compared.
        let is_settled = (self.shared.remembered.lock()).is_settled(Boottime.now());
        let stamps = renewed.iter().flatten().map(|stat| stat.stamp.since_1970());
        let time = stamps.max().filter(|_| is_settled);
        let outcome = |renewed: Result<Stat, Outcome>| renewed.err().unwrap_or(Outcome::Renewed);
        Renewed::new(renewed.into_iter().map(outcome).collect()).at(time)
    }
}

impl SessionCall<'_> {
    /// Returns for each lease the stat of its node, or why it was not renewed.
    async fn renew_together(&self, batch: &[Renewal]) -> Vec<Result<Stat, Outcome>> {
        let refused = join_all(batch.iter().map(|renewal| self.refuse(renewal))).await;
        let mut outcomes: Vec<_> = refused.into_iter().map(|it| it.map(Err)).collect();
        loop {
            let open = batch.iter().zip(&mut outcomes);
            let mut open: Vec<_> = open.filter(|(_, outcome)| outcome.is_none()).collect();
            if open.is_empty() {
                return outcomes.into_iter().flatten().collect();
            }
            let set = |it: &Renewal| Change::Set(self.path(it), millis(it.ttl), None);
            let steps: Vec<_> = open.iter().map(|(renewal, _)| set(renewal)).collect();
            let written: Vec<_> = match self.transact(&steps).await {
                Ok(stats) => stats.into_iter().map(Ok).collect(),
                Err(Aborted {
                    step: Some(step),
                    failure,
                }) if step < open.len() => {
                    let (renewal, outcome) = open.swap_remove(step);
                    *outcome = Some(Err(self.not_renewed(renewal, failure).await));
                    let readings = open.into_iter().map(async |(renewal, outcome)| {
                        *outcome = self.find_gone(renewal).await.map(Err);
                    });
                    join_all(readings).await;
                    continue;
                }
                Err(aborted) => vec![Err(aborted.failure); open.len()],
            };
            let confirmed = open.into_iter().zip(written);
            let confirmed = confirmed.map(async |((renewal, outcome), written)| {
                *outcome = Some(self.confirm(renewal, written).await);
            });
            join_all(confirmed).await;
        }
    }

    /// Refuses the renewal of a lease that has run out, even if its node still exists: other clients have been shown
    /// the name as free. Also refuses that of a lease that is a later grant to the same holder.
    async fn refuse(&self, renewal: &Renewal) -> Option<Outcome> {
        let lease = (self.shared.remembered.lock().leases)
            .get(&renewal.holder)
            .copied();
        match lease {
            Some(lease) => {
                let is_over = lease.token != renewal.token || lease.has_run_out(Boottime.now());
                is_over.then_some(Outcome::Refused)
            }
            None => self.read_lease(renewal).await,
        }
    }

    /// Reads a lease that this client does not remember. Returns `None` if it can be renewed.
    async fn read_lease(&self, renewal: &Renewal) -> Option<Outcome> {
        let token = self.shared.tree.token(&renewal.name, renewal.token);
        let path = self.path(renewal);
        match tokio::try_join!(self.data(&path), self.data(&token)) {
            Ok(((data, stat), _)) => {
                let ttl = read_millis(&data).unwrap_or(renewal.ttl);
                let left = self.left(stat.stamp, ttl);
                (left == Some(Duration::ZERO)).then_some(Outcome::Refused)
            }
            Err(failure) => Some(self.not_renewed(renewal, failure).await),
        }
    }

    /// Returns the outcome for a lease whose node does not exist any more, or cannot be read.
    async fn find_gone(&self, renewal: &Renewal) -> Option<Outcome> {
        match self.data(&self.path(renewal)).await {
            Ok(_) => None,
            Err(failure) => Some(self.not_renewed(renewal, failure).await),
        }
    }

    /// Records the outcome of a renewal. It counts only once the node belongs to this session, or to none.
    async fn confirm(
        &self,
        renewal: &Renewal,
        written: Result<Stat, Failure>,
    ) -> Result<Stat, Outcome> {
        let adopted = match written {
            Ok(stat) => self.adopt(&self.path(renewal), renewal.ttl, stat).await,
            failed => failed,
        };
        match adopted {
            Ok(stat) => {
                let mut remembered = self.shared.remembered.lock();
                remembered.renewed(renewal.holder, renewal.ttl, Boottime.now());
                Ok(stat)
            }
            Err(failure) => Err(self.not_renewed(renewal, failure).await),
        }
    }

    /// Returns the outcome of a renewal that failed.
    async fn not_renewed(&self, renewal: &Renewal, failure: Failure) -> Outcome {
        let evicted = match failure {
            Failure::NoNode => {
                let tree = &self.shared.tree;
                let path = tree.taken(&renewal.name, Kind::Evicted, renewal.holder);
                self.data(&path).await
            }
            failure => Err(failure),
        };
        match evicted {
            Ok(_) => Outcome::Evicted,
            Err(Failure::NoNode) => Outcome::Refused,
            Err(failure) => Outcome::Unknown(self.store.error(failure, "renew", &renewal.name)),
        }
    }

    fn path(&self, renewal: &Renewal) -> String {
        self.shared.tree.lease(&renewal.name, renewal.holder)
    }

    /// Moves a lease that was written into this session, in one transaction, if it would end with another one.
    pub(super) async fn adopt(
        &self,
        path: &str,
        ttl: Duration,
        stat: Stat,
    ) -> Result<Stat, Failure> {
        if stat.owner == 0 || stat.owner == self.line.id {
            return Ok(stat);
        }
        let steps = [
            Change::Delete(path.into(), None),
            Change::Create(path.into(), millis(ttl), self.mode(ttl)),
            Change::Set(path.into(), millis(ttl), None),
        ];
        self.write(&steps).await
    }
}
