//! Batches of renewals. Each is one transaction, which is sent again without the leases that are gone.

use std::time::Duration;

use futures_util::future::join_all;

use super::connection::session::{Aborted, Change, Session, Stat};
use super::failure::Failure;
use super::look::read_millis;
use super::protocol::stamp::Left;
use super::protocol::tree::Kind;
use super::{Zookeeper, millis};
use crate::clock::{Boottime, Clock};
use crate::store::backend::Backend;
use crate::store::budget::Budget;
use crate::store::{Outcome, Renewal, Renewed};

/// Says how often a transaction is sent again without the lease that has ended; then each is renewed alone.
const TRIES: usize = 3;

/// A batch under way.
struct RenewalBatch<'a> {
    store: &'a Zookeeper,
    session: &'a Session,
    renewals: &'a [Renewal],
    outcomes: Vec<Option<Outcome>>,
    /// The leader's clock at the last write.
    server_time: Option<Duration>,
}

impl Zookeeper {
    pub(super) async fn renew_batch(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        if batch.is_empty() {
            return Renewed::new(Vec::new());
        }
        let session = match self.session(budget).await {
            Ok(session) => session,
            Err(failure) => {
                let unknown = |_| Outcome::Unknown(self.error_of_all(failure.clone(), "renew"));
                return Renewed::new(batch.iter().map(unknown).collect());
            }
        };
        if let Some(ttl) = batch.iter().map(|renewal| renewal.ttl).min() {
            session.hurry(ttl);
        }
        let mut batch = RenewalBatch {
            store: self,
            session: &session,
            renewals: batch,
            outcomes: batch.iter().map(|_| None).collect(),
            server_time: None,
        };
        batch.refuse_what_is_over().await;
        batch.renew_together().await;
        batch.renew_one_by_one().await;
        let outcomes = batch.outcomes.into_iter();
        let outcomes = outcomes.map(|outcome| outcome.unwrap_or(Outcome::Refused));
        // After a change of leaders the two clocks cannot be compared.
        let time =
            (batch.server_time).filter(|_| self.shared.remembered().is_settled(Boottime.now()));
        Renewed::new(outcomes.collect()).at(time)
    }
}

impl RenewalBatch<'_> {
    fn open(&self) -> Vec<usize> {
        let outcomes = self.outcomes.iter().enumerate();
        let open = outcomes.filter(|(_, outcome)| outcome.is_none());
        open.map(|(index, _)| index).collect()
    }

    fn path(&self, index: usize) -> String {
        let renewal = &self.renewals[index];
        let tree = &self.store.shared.tree;
        tree.lease(&renewal.name, renewal.holder)
    }

    fn unknown(&self, index: usize, failure: Failure) -> Outcome {
        let name = &self.renewals[index].name;
        Outcome::Unknown(self.store.error(failure, "renew", name))
    }

    /// Refuses the renewals of leases that have run out, even if their nodes still exist: other clients have been shown
    /// these names as free. Also refuses those of a lease that is a later grant to the same holder.
    async fn refuse_what_is_over(&mut self) {
        let now = Boottime.now();
        let mut strange = Vec::new();
        for (index, renewal) in self.renewals.iter().enumerate() {
            let lease = self.store.shared.remembered().lease(renewal.holder);
            match lease {
                Some(lease) if lease.token != renewal.token => {
                    self.outcomes[index] = Some(Outcome::Refused);
                }
                Some(lease) if lease.has_run_out(now) => {
                    self.store.shared.remembered().forget(renewal.holder);
                    self.outcomes[index] = Some(Outcome::Refused);
                }
                Some(_) => {}
                None => strange.push(index),
            }
        }
        let looks = strange.iter().map(|index| self.look(*index));
        for (index, outcome) in strange.iter().zip(join_all(looks).await) {
            self.outcomes[*index] = outcome;
        }
    }

    /// Looks at a lease that this client does not remember. Returns `None` if it can be renewed.
    async fn look(&self, index: usize) -> Option<Outcome> {
        let renewal = &self.renewals[index];
        let token = self.store.shared.tree.token(&renewal.name, renewal.token);
        let path = self.path(index);
        let looks = tokio::try_join!(self.session.data(&path), self.session.is_there(&token));
        match looks {
            Ok((_, false)) => Some(Outcome::Refused),
            Ok(((data, stat), true)) => {
                let ttl = read_millis(&data).unwrap_or(renewal.ttl);
                let mut remembered = self.store.shared.remembered();
                let left = remembered.left(&renewal.name, stat.stamp, ttl, Boottime.now());
                (left == Left::Over).then_some(Outcome::Refused)
            }
            Err(failure) => Some(self.failed(index, failure).await),
        }
    }

    async fn renew_together(&mut self) {
        for _ in 0..TRIES {
            let open = self.open();
            if open.is_empty() {
                return;
            }
            let steps = open.iter().map(|index| {
                Change::Set(self.path(*index), millis(self.renewals[*index].ttl), None)
            });
            let steps: Vec<_> = steps.collect();
            match self.session.transact(&steps).await {
                Ok(stats) => {
                    for (index, stat) in open.into_iter().zip(stats.into_iter().flatten()) {
                        let ttl = self.renewals[index].ttl;
                        let adopted = self.session.adopted(&self.path(index), ttl, stat).await;
                        self.outcomes[index] = Some(self.settled(index, adopted).await);
                    }
                }
                Err(Aborted {
                    step: Some(step),
                    failure: Failure::NoNode,
                }) if step < open.len() => {
                    let index = open[step];
                    self.outcomes[index] = Some(self.gone(index).await);
                }
                Err(Aborted { step: Some(_), .. }) => return,
                Err(aborted) => {
                    for index in open {
                        self.outcomes[index] = Some(self.unknown(index, aborted.failure.clone()));
                    }
                }
            }
        }
    }

    /// Renews each lease alone, so that one that was removed, or that this user may not write, does not affect the
    /// others.
    async fn renew_one_by_one(&mut self) {
        let open = self.open();
        let session = self.session;
        let sent = open.iter().map(|index| {
            let (path, ttl) = (self.path(*index), self.renewals[*index].ttl);
            async move { session.renew(&path, ttl).await }
        });
        for (index, renewed) in open.iter().zip(join_all(sent).await) {
            self.outcomes[*index] = Some(self.settled(*index, renewed).await);
        }
    }

    /// Takes in what became of a renewal. It counts only once the node belongs to this session, or to none.
    async fn settled(&mut self, index: usize, renewed: Result<Stat, Failure>) -> Outcome {
        let stat = match renewed {
            Ok(stat) => stat,
            Err(failure) => return self.failed(index, failure).await,
        };
        let (renewal, now) = (&self.renewals[index], Boottime.now());
        let mut remembered = self.store.shared.remembered();
        remembered.clock.hear(stat.stamp, now);
        remembered.renewed(renewal.holder, renewal.ttl, now);
        self.server_time = self.server_time.max(Some(stat.stamp.since_1970()));
        Outcome::Renewed
    }

    async fn failed(&self, index: usize, failure: Failure) -> Outcome {
        match failure {
            Failure::NoNode => self.gone(index).await,
            failure => self.unknown(index, failure),
        }
    }

    /// Returns why a lease has no node.
    async fn gone(&self, index: usize) -> Outcome {
        let renewal = &self.renewals[index];
        let tree = &self.store.shared.tree;
        let evicted = tree.taken(&renewal.name, Kind::Evicted, renewal.holder);
        match self.session.is_there(&evicted).await {
            Ok(true) => Outcome::Evicted,
            Ok(false) => Outcome::Refused,
            Err(failure) => self.unknown(index, failure),
        }
    }
}
