//! Releases by a holder, and evictions by an operator.

use std::time::Duration;

use super::connection::session::SessionCall;
use super::failure::Failure;
use super::millis;
use super::protocol::tree::Kind;
use super::protocol::wire::{Aborted, Change, Mode};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Eviction, HeldState, Release};

impl SessionCall<'_> {
    /// Frees the name if this holder has it.
    pub(super) async fn free(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
    ) -> Result<Release, Failure> {
        let is_waiting = self.shared.remembered.lock().is_waiting(name, holder);
        if is_waiting {
            self.leave_queue(name, holder.client()).await?;
            (self.shared.remembered.lock()).waits_no_more(name, holder);
        }
        let tree = &self.shared.tree;
        // A memory is used once, because it can be wrong.
        let lease = self.shared.remembered.lock().leases.remove(&holder);
        let last = match lease {
            Some(lease) => Some(lease.token),
            // Unless an operator removed it.
            None => self.read_freshly(name).await?.children.token,
        };
        let begin_offer = last.map(|last| Change::Set(tree.token(name, last), Vec::new(), None));
        let keep = keep_for.map(|rest| {
            let path = tree.taken(name, Kind::Kept, holder);
            Change::Create(path, millis(rest), Mode::Persistent)
        });
        let is_kept = keep.is_some();
        let after = keep.or_else(|| begin_offer.clone());
        if self.is_ended(name, Kind::Leased, holder, after).await? {
            if let Some(lease) = lease.filter(|_| !is_kept) {
                let mut remembered = self.shared.remembered.lock();
                remembered.freed(name, tree.name(name), lease);
            }
            return Ok(Release::Released);
        }
        // An evicted holder keeps nothing.
        let is_ended = self.is_ended(name, Kind::Evicted, holder, begin_offer);
        Ok(if is_ended.await? {
            Release::Released
        } else {
            Release::NotHeld
        })
    }

    /// Deletes the node with which this holder keeps the name taken, and does what follows. Returns false if it does
    /// not exist; then nothing was done.
    async fn is_ended(
        &self,
        name: &Name,
        kind: Kind,
        holder: Holder,
        after: Option<Change>,
    ) -> Result<bool, Failure> {
        let end = Change::Delete(self.shared.tree.taken(name, kind, holder), None);
        let steps: Vec<_> = [end].into_iter().chain(after).collect();
        match self.transact(&steps).await {
            Ok(_) => Ok(true),
            Err(Aborted {
                step: Some(0),
                failure: Failure::NoNode,
            }) => Ok(false),
            Err(aborted) => Err(aborted.failure),
        }
    }

    /// Returns whether the name was held, kept or offered.
    pub(super) async fn evict(&self, name: &Name, how: Eviction) -> Result<bool, Failure> {
        let reading = match self.read_freshly(name).await {
            Err(Failure::TwoHolders(first, second)) if how == Eviction::Now => {
                let steps = [first, second].map(|path| Change::Delete(path, None));
                self.transact(&steps).await?;
                return Ok(true);
            }
            reading => reading?,
        };
        let Some(held) = reading.shown(name) else {
            return Ok(false);
        };
        let mut steps: Vec<_> = reading.delete_taken().into_iter().collect();
        match (how, held.state, held.by) {
            (Eviction::Now, ..) => {
                if reading.is_offered() {
                    let first = &reading.children.queue[0];
                    steps.extend(reading.delete_places(&first.nodes));
                }
                steps.extend(reading.begin_offer());
            }
            (Eviction::Marked, HeldState::Leased, Some(holder)) => {
                let path = self.shared.tree.taken(name, Kind::Evicted, holder);
                steps.push(Change::Create(path, millis(reading.left), Mode::Persistent));
            }
            (Eviction::Marked, state, _) => return Ok(state == HeldState::Evicted),
        }
        self.transact(&steps).await?;
        Ok(true)
    }
}
