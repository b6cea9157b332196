//! Batches of renewals. Each is one transaction; if that fails because of one lease, each lease is renewed alone.

use std::time::Duration;

use futures_util::future::join_all;

use super::connection::session::SessionCall;
use super::failure::Failure;
use super::look::read_millis;
use super::protocol::tree::Kind;
use super::protocol::wire::{Aborted, Change, Stat};
use super::{Zookeeper, millis};
use crate::clock::{Boottime, Clock};
use crate::store::backend::Backend;
use crate::store::budget::Budget;
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
        call.hurry(ttl);
        let refused = batch.iter().map(|renewal| call.refuse(renewal));
        let refused = join_all(refused).await;
        let open = batch.iter().zip(&refused);
        let open = open.filter_map(|(renewal, refused)| refused.is_none().then_some(renewal));
        let renewed = call.renew_all(&open.collect::<Vec<_>>()).await;
        // After a change of leaders the two clocks cannot be compared.
        let is_settled = (self.shared.remembered.lock()).is_settled(Boottime.now());
        let stamps = renewed.iter().flatten().map(|stat| stat.stamp.since_1970());
        let time = stamps.max().filter(|_| is_settled);
        let renewed = renewed.into_iter();
        let mut renewed = renewed.map(|it| it.map_or_else(|why| why, |_| Outcome::Renewed));
        let outcomes = refused.into_iter();
        let outcomes = outcomes.filter_map(|refused| refused.or_else(|| renewed.next()));
        Renewed::new(outcomes.collect()).at(time)
    }
}

impl SessionCall<'_> {
    /// Refuses the renewal of a lease that has run out, even if its node still exists: other clients have been shown
    /// the name as free. Also refuses that of a lease that is a later grant to the same holder.
    async fn refuse(&self, renewal: &Renewal) -> Option<Outcome> {
        let lease = self.shared.remembered.lock().lease(renewal.holder);
        match lease {
            Some(lease) if lease.token != renewal.token => Some(Outcome::Refused),
            Some(lease) if lease.has_run_out(Boottime.now()) => {
                self.shared.remembered.lock().take_lease(renewal.holder);
                Some(Outcome::Refused)
            }
            Some(_) => None,
            None => self.look_at_lease(renewal).await,
        }
    }

    /// Looks at a lease that this client does not remember. Returns `None` if it can be renewed.
    async fn look_at_lease(&self, renewal: &Renewal) -> Option<Outcome> {
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

    /// Renews these leases. Returns for each the stat of its node, or why it was not renewed.
    async fn renew_all(&self, renewals: &[&Renewal]) -> Vec<Result<Stat, Outcome>> {
        if renewals.is_empty() {
            return Vec::new();
        }
        let nodes = renewals.iter().map(|it| (self.path(it), millis(it.ttl)));
        let steps = nodes.map(|(path, ttl)| Change::Set(path, ttl, None));
        let steps: Vec<_> = steps.collect();
        let written: Vec<_> = match self.transact(&steps).await {
            Ok(stats) => stats.into_iter().map(Ok).collect(),
            Err(Aborted { step: Some(_), .. }) => {
                let each = renewals.iter();
                let each = each.map(async |it| self.set(&self.path(it), millis(it.ttl)).await);
                join_all(each).await
            }
            Err(Aborted { failure, .. }) => vec![Err(failure); renewals.len()],
        };
        let written = renewals.iter().zip(written);
        let renewed =
            written.map(
                async |(renewal, written)| match self.confirm(renewal, written).await {
                    Ok(stat) => Ok(stat),
                    Err(failure) => Err(self.not_renewed(renewal, failure).await),
                },
            );
        join_all(renewed).await
    }

    /// Takes in what became of a renewal. It counts only once the node belongs to this session, or to none.
    async fn confirm(
        &self,
        renewal: &Renewal,
        written: Result<Stat, Failure>,
    ) -> Result<Stat, Failure> {
        let stat = self
            .adopt(&self.path(renewal), renewal.ttl, written?)
            .await?;
        let mut remembered = self.shared.remembered.lock();
        remembered.renewed(renewal.holder, renewal.ttl, Boottime.now());
        Ok(stat)
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
        if stat.owner == 0 || stat.owner == self.id() {
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
