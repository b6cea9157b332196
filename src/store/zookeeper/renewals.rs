//! Batches of renewals. Each is one transaction, which is sent again without the leases that are gone.

use std::time::Duration;

use futures_util::future::join_all;

use super::acquire::{is_strange, take_over};
use super::connection::session::{Change, Session, Stat};
use super::connection::sessions::within;
use super::failure::Failure;
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
    budget: Budget,
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
        let mut batch = RenewalBatch {
            store: self,
            session: &session,
            renewals: batch,
            outcomes: batch.iter().map(|_| None).collect(),
            server_time: None,
            budget,
        };
        batch.refuse_what_is_over().await;
        batch.renew_together().await;
        batch.renew_one_by_one().await;
        let outcomes = batch.outcomes.into_iter();
        let outcomes = outcomes.map(|outcome| outcome.unwrap_or(Outcome::Refused));
        // After a change of leaders the two clocks cannot be compared.
        let time = (batch.server_time).filter(|_| self.remembered().is_settled(Boottime.now()));
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
            let lease = self.store.remembered().lease(renewal.holder);
            match lease {
                Some(lease) if lease.token != renewal.token => {
                    self.outcomes[index] = Some(Outcome::Refused);
                }
                Some(lease) if lease.has_run_out(now) => {
                    self.store.remembered().forget(renewal.holder);
                    self.outcomes[index] = Some(Outcome::Refused);
                }
                Some(_) => {}
                None => strange.push(index),
            }
        }
        let (session, budget) = (self.session, self.budget);
        let looks = strange.iter().map(|index| {
            let renewal = &self.renewals[*index];
            let token = self.store.shared.tree.token(&renewal.name, renewal.token);
            let path = self.path(*index);
            async move {
                let looks = async { tokio::join!(session.data(&path), session.is_there(&token)) };
                let (data, is_last) = within(budget, async { Ok(looks.await) }).await?;
                let (data, stat) = data?;
                Ok((data, stat, is_last?))
            }
        });
        let looks = join_all(looks).await;
        for (index, look) in strange.into_iter().zip(looks) {
            self.outcomes[index] = match look {
                Ok((data, stat, is_last)) if !is_last || self.has_run_out(index, &data, stat) => {
                    Some(Outcome::Refused)
                }
                Ok(_) => None,
                Err(Failure::NoNode) => Some(self.gone(index).await),
                Err(failure) => Some(self.unknown(index, failure)),
            };
        }
    }

    fn has_run_out(&self, index: usize, data: &[u8], stat: Stat) -> bool {
        let ttl = std::str::from_utf8(data)
            .ok()
            .and_then(|ms| ms.parse().ok());
        let ttl = ttl.map_or(self.renewals[index].ttl, Duration::from_millis);
        let name = &self.renewals[index].name;
        let now = Boottime.now();
        let left = self.store.remembered().left(name, stat.stamp, ttl, now);
        left == Left::Over
    }

    async fn renew_together(&mut self) {
        for _ in 0..TRIES {
            let open = self.open();
            if open.is_empty() {
                return;
            }
            let steps = open.iter().map(|index| {
                let data = millis(self.renewals[*index].ttl).into_bytes();
                Change::Set(self.path(*index), data, None)
            });
            let steps: Vec<_> = steps.collect();
            let sent = async { Ok(self.session.transact(&steps).await) };
            let aborted = match within(self.budget, sent).await {
                Ok(Ok(stats)) => {
                    for (index, stat) in open.into_iter().zip(stats.into_iter().flatten()) {
                        self.outcomes[index] = Some(self.renewed(index, stat).await);
                    }
                    return;
                }
                Ok(Err(aborted)) => aborted,
                Err(failure) => {
                    return self.give_up(&failure);
                }
            };
            match aborted.step {
                Some(step) if matches!(aborted.failure, Failure::NoNode) && step < open.len() => {
                    let index = open[step];
                    self.outcomes[index] = Some(self.gone(index).await);
                }
                Some(_) => return,
                None => return self.give_up(&aborted.failure),
            }
        }
    }

    fn give_up(&mut self, failure: &Failure) {
        for index in self.open() {
            self.outcomes[index] = Some(self.unknown(index, failure.clone()));
        }
    }

    /// Renews each lease alone, so that one that is gone, or that this user may not write, does not affect the others.
    async fn renew_one_by_one(&mut self) {
        let open = self.open();
        let (session, budget) = (self.session, self.budget);
        let sent = open.iter().map(|index| {
            let (path, data) = (self.path(*index), millis(self.renewals[*index].ttl));
            async move { within(budget, session.set(&path, data.as_bytes())).await }
        });
        let stats = join_all(sent).await;
        for (index, stat) in open.into_iter().zip(stats) {
            let outcome = match stat {
                Ok(stat) => self.renewed(index, stat).await,
                Err(Failure::NoNode) => self.gone(index).await,
                Err(failure) => self.unknown(index, failure),
            };
            self.outcomes[index] = Some(outcome);
        }
    }

    /// Takes in a renewal that was written. It counts only if the node belongs to this session, or to none; otherwise
    /// it is moved first.
    async fn renewed(&mut self, index: usize, mut stat: Stat) -> Outcome {
        let renewal = &self.renewals[index];
        if is_strange(self.session, stat) {
            let path = self.path(index);
            let taken = take_over(self.session, &path, renewal.ttl);
            stat = match within(self.budget, taken).await {
                Ok(stat) => stat,
                Err(Failure::NoNode) => return self.gone(index).await,
                Err(failure) => return self.unknown(index, failure),
            };
        }
        let now = Boottime.now();
        let mut remembered = self.store.remembered();
        remembered.hear(stat.stamp, now);
        remembered.renewed(renewal.holder, renewal.ttl, now);
        self.server_time = self.server_time.max(Some(stat.stamp.since_1970()));
        Outcome::Renewed
    }

    /// Returns why a lease has no node.
    async fn gone(&self, index: usize) -> Outcome {
        let renewal = &self.renewals[index];
        let tree = &self.store.shared.tree;
        let evicted = tree.taken(&renewal.name, Kind::Evicted, renewal.holder);
        match within(self.budget, self.session.is_there(&evicted)).await {
            Ok(true) => Outcome::Evicted,
            Ok(false) => Outcome::Refused,
            Err(failure) => self.unknown(index, failure),
        }
    }
}
