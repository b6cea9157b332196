//! Releases by a holder, and evictions by an operator.

use std::time::Duration;

use super::connection::session::{Aborted, Change, Mode};
use super::connection::sessions::SessionCall;
use super::failure::Failure;
use super::millis;
use super::protocol::reading::NameReading;
use super::protocol::tree::Kind;
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Eviction, HeldState, Release};
use crate::token::Token;

impl SessionCall<'_> {
    pub(super) async fn give_back(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
    ) -> Result<Release, Failure> {
        let lease = self.shared.remembered().lease(holder);
        let mut token = lease.map(|lease| lease.token);
        loop {
            let last = match token.take() {
                None => self.last_token(name).await?,
                known => known,
            };
            match self.free(name, holder, last, keep_for).await {
                Ok(release) => return Ok(release),
                Err(failure) if failure.is_stale() && !self.budget.left().is_zero() => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn last_token(&self, name: &Name) -> Result<Option<Token>, Failure> {
        let reading = self.look_freshly(name).await?;
        Ok(reading
            .and_then(|reading| reading.last)
            .map(|last| last.token))
    }

    /// Frees the name if this holder has it. `last` is the name's last token, unless an operator removed it.
    async fn free(
        &self,
        name: &Name,
        holder: Holder,
        last: Option<Token>,
        keep_for: Option<Duration>,
    ) -> Result<Release, Failure> {
        let tree = &self.shared.tree;
        let begin_offer = last.map(|last| Change::Set(tree.token(name, last), Vec::new(), None));
        let kept = keep_for.map(|rest| {
            let path = tree.taken(name, Kind::Kept, holder);
            Change::Create(path, millis(rest), Mode::Persistent)
        });
        let is_kept = kept.is_some();
        let leased = Change::Delete(tree.lease(name, holder), None);
        // An evicted holder keeps nothing.
        let evicted = Change::Delete(tree.taken(name, Kind::Evicted, holder), None);
        let after_lease = kept.or_else(|| begin_offer.clone());
        if self.is_done(&with(leased, after_lease)).await? {
            if is_kept {
                self.shared.remembered().forget(holder);
            } else {
                self.shared.remembered().released(name, holder);
            }
            return Ok(Release::Released);
        }
        self.shared.remembered().forget(holder);
        let is_done = self.is_done(&with(evicted, begin_offer)).await?;
        Ok(if is_done {
            Release::Released
        } else {
            Release::NotHeld
        })
    }

    /// Does these steps. Returns false if the node of the first step does not exist; then nothing was done.
    async fn is_done(&self, steps: &[Change]) -> Result<bool, Failure> {
        match self.transact(steps).await {
            Ok(stats) => {
                stats.into_iter().flatten().for_each(|stat| {
                    self.heard(stat);
                });
                Ok(true)
            }
            Err(Aborted {
                step: Some(0),
                failure: Failure::NoNode,
            }) => Ok(false),
            Err(aborted) => Err(aborted.failure),
        }
    }

    pub(super) async fn evict_holder(&self, name: &Name, how: Eviction) -> Result<bool, Failure> {
        loop {
            let steps = match self.steps_to_evict(name, how).await? {
                Ok(steps) => steps,
                Err(was_held) => return Ok(was_held),
            };
            match self.is_done(&steps).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(failure) if failure.is_stale() => {}
                Err(failure) => return Err(failure),
            }
            if self.budget.left().is_zero() {
                return Err(Failure::Contended);
            }
        }
    }

    /// Returns the steps of an eviction, or its answer if there is nothing to do.
    async fn steps_to_evict(
        &self,
        name: &Name,
        how: Eviction,
    ) -> Result<Result<Vec<Change>, bool>, Failure> {
        let reading = match self.look_freshly(name).await {
            Err(Failure::TwoHolders(first, second)) if how == Eviction::Now => {
                let steps = [first, second].map(|path| Change::Delete(path, None));
                return Ok(Ok(steps.into()));
            }
            reading => reading?,
        };
        let Some(reading) = reading else {
            return Ok(Err(false));
        };
        let shown = self.shown_now(name, &reading).await?;
        Ok(match (how, shown) {
            (_, None) => Err(false),
            (Eviction::Now, _) => Ok(self.steps_to_free(name, &reading)),
            (Eviction::Marked, Some((HeldState::Evicted, _))) => Err(true),
            (Eviction::Marked, Some((HeldState::Leased, left))) => {
                Ok(self.steps_to_mark(name, &reading, left.unwrap_or_default()))
            }
            (Eviction::Marked, _) => Err(false),
        })
    }

    /// Returns the steps that mark a holder as evicted. They delete the lease at the version that was read, because a
    /// renewal in between would change how much of its time is left.
    fn steps_to_mark(&self, name: &Name, reading: &NameReading, left: Duration) -> Vec<Change> {
        let tree = &self.shared.tree;
        let Some(taken) = &reading.taken else {
            return Vec::new();
        };
        let evicted = tree.taken(name, Kind::Evicted, taken.holder);
        vec![
            Change::Delete(tree.lease(name, taken.holder), Some(taken.version)),
            Change::Create(evicted, millis(left), Mode::Persistent),
        ]
    }

    /// Returns the steps that free a name: they delete what keeps it, and offer it to the next client in the queue.
    fn steps_to_free(&self, name: &Name, reading: &NameReading) -> Vec<Change> {
        let tree = &self.shared.tree;
        let mut steps = Vec::new();
        if let Some(taken) = &reading.taken {
            let path = tree.taken(name, taken.kind, taken.holder);
            steps.push(Change::Delete(path, None));
        } else if let Some(first) = reading.children.queue.first() {
            let nodes = first.nodes.iter();
            let paths = nodes.map(|node| format!("{}/{node}", tree.name(name)));
            steps.extend(paths.map(|path| Change::Delete(path, None)));
        }
        if let Some(last) = &reading.last {
            steps.push(Change::Set(tree.token(name, last.token), Vec::new(), None));
        }
        steps
    }
}

fn with(first: Change, second: Option<Change>) -> Vec<Change> {
    [first].into_iter().chain(second).collect()
}
