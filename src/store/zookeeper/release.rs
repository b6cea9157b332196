//! Releases by a holder, and evictions by an operator.

use std::time::Duration;

use super::connection::session::{Aborted, Change, Mode};
use super::connection::sessions::within;
use super::failure::Failure;
use super::protocol::judge::shown;
use super::protocol::reading::NameReading;
use super::protocol::stamp::Left;
use super::protocol::tree::Kind;
use super::{Zookeeper, millis};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::budget::Budget;
use crate::store::{Eviction, HeldState, Release};
use crate::token::Token;

impl Zookeeper {
    pub(super) async fn give_back(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let kept = self.kept()?;
        let _permit = kept.permit(budget).await?;
        let lease = self.remembered().lease(holder);
        let mut token = lease.map(|lease| lease.token);
        loop {
            let last = match token.take() {
                None => self.last_token(name, budget).await?,
                known => known,
            };
            match self.free(name, holder, last, keep_for, budget).await {
                Ok(release) => return Ok(release),
                Err(failure) if failure.is_stale() && !budget.left().is_zero() => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn last_token(&self, name: &Name, budget: Budget) -> Result<Option<Token>, Failure> {
        let reading = self.look_freshly(name, budget).await?;
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
        budget: Budget,
    ) -> Result<Release, Failure> {
        let tree = &self.shared.tree;
        let begin_offer = last.map(|last| Change::Set(tree.token(name, last), Vec::new(), None));
        let leased = Change::Delete(tree.lease(name, holder), None);
        let kept = keep_for.map(|rest| {
            let path = tree.taken(name, Kind::Kept, holder);
            Change::Create(path, millis(rest).into_bytes(), Mode::Persistent)
        });
        let is_kept = kept.is_some();
        let rest = kept.or_else(|| begin_offer.clone());
        let steps: Vec<_> = [leased].into_iter().chain(rest).collect();
        if self.is_done(&steps, budget).await? {
            if is_kept {
                self.remembered().forget(holder);
            } else {
                self.remembered().released(name, holder);
            }
            return Ok(Release::Released);
        }
        self.remembered().forget(holder);
        // An evicted holder keeps nothing.
        let evicted = Change::Delete(tree.taken(name, Kind::Evicted, holder), None);
        let steps: Vec<_> = [evicted].into_iter().chain(begin_offer).collect();
        if self.is_done(&steps, budget).await? {
            return Ok(Release::Released);
        }
        Ok(Release::NotHeld)
    }

    /// Does these steps. Returns false if the node of the first step does not exist; then nothing was done.
    async fn is_done(&self, steps: &[Change], budget: Budget) -> Result<bool, Failure> {
        let session = self.session(budget).await?;
        let done = async {
            match session.transact(steps).await {
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
        };
        within(budget, done).await
    }

    pub(super) async fn evict_holder(
        &self,
        name: &Name,
        how: Eviction,
        budget: Budget,
    ) -> Result<bool, Failure> {
        loop {
            let reading = match self.look_freshly(name, budget).await {
                Err(Failure::TwoHolders(first, second)) if how == Eviction::Now => {
                    let path = |node| format!("{}/{node}", self.shared.tree.name(name));
                    let steps = [first, second].map(|node| Change::Delete(path(node), None));
                    if self.is_done(&steps, budget).await? {
                        return Ok(true);
                    }
                    continue;
                }
                reading => reading?,
            };
            let Some(reading) = reading else {
                return Ok(false);
            };
            let times = self.times(name, &reading);
            if times.taken == Left::Unknown || times.offer == Left::Unknown {
                self.freshen(budget).await?;
                continue;
            }
            let Some((state, remaining)) = shown(&reading, times) else {
                return Ok(false);
            };
            let steps = match (how, state) {
                (Eviction::Marked, HeldState::Evicted) => return Ok(true),
                (Eviction::Marked, HeldState::Leased) => {
                    self.steps_to_mark(name, &reading, remaining.unwrap_or_default())
                }
                (Eviction::Marked, _) => return Ok(false),
                (Eviction::Now, _) => self.steps_to_free(name, &reading),
            };
            match self.is_done(&steps, budget).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(failure) if failure.is_stale() => {}
                Err(failure) => return Err(failure),
            }
            if budget.left().is_zero() {
                return Err(Failure::Contended);
            }
        }
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
            Change::Create(evicted, millis(left).into_bytes(), Mode::Persistent),
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
