//! Removes the names that are no longer used, now and then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::failure::Failure;
use super::lane::within;
use super::reading::NameReading;
use super::session::Change;
use super::stamp::{Left, Stamp};
use super::tree::decode;
use super::{Shared, Zookeeper, until};
use crate::clock::{Boottime, Clock};
use crate::name::Name;

/// Each fourth new name begins a sweep, so there are never many more old names than new ones.
const EVERY: u32 = 4;
/// How many names one sweep removes at most.
const AT_MOST: usize = 8;
/// How many names one sweep looks at.
const LOOKS: usize = 16;
/// How long a sweep may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A sweep under way. It ends with its task, even if the runtime of that task ends first.
struct Sweeping(Arc<Shared>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.0.is_sweeping.store(false, Ordering::Relaxed);
    }
}

impl Zookeeper {
    /// Called when a new name was granted: sweeps its folder if it is time, without delaying the grant.
    pub(super) fn sweep_now_and_then(&self, name: &Name) {
        let count = self.shared.new_names.fetch_add(1, Ordering::Relaxed);
        // One at a time: sweeps must not double the load of a burst of new names.
        let is_sweeping = &self.shared.is_sweeping;
        if !count.is_multiple_of(EVERY) || is_sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (store, folder) = (self.beside(), self.shared.tree.folder(name));
        let sweeping = Sweeping(self.shared.clone());
        tokio::spawn(async move {
            let _sweeping = sweeping;
            if let Err(failure) = store.sweep(&folder).await {
                tracing::debug!(%failure, "old names not swept away");
            }
        });
    }

    /// Removes some names of this folder that were freed long ago, and returns how many.
    async fn sweep(&self, folder: &str) -> Result<usize, Failure> {
        let memory = self.shared.address.token_memory();
        let until = until(LIMIT);
        let session = self.session(until).await?;
        let (mut nodes, _) = within(until, session.children(folder)).await?;
        fastrand::shuffle(&mut nodes);
        let mut removed = 0;
        for node in nodes.into_iter().take(LOOKS) {
            let Some(name) = decode(&node).and_then(|name| Name::new(name).ok()) else {
                continue;
            };
            let Some(reading) = self.look(&name, 0, until).await? else {
                continue;
            };
            let steps = self.steps_to_sweep(&name, &reading, memory).await?;
            if steps.is_empty() {
                continue;
            }
            // The server removes the empty container. A name that changed meanwhile stays.
            let sent = async { Ok(session.transact(&steps).await.is_ok()) };
            removed += usize::from(within(until, sent).await?);
            if removed == AT_MOST {
                break;
            }
        }
        Ok(removed)
    }

    /// Returns the steps that remove a name; none, unless all of it is old enough.
    async fn steps_to_sweep(
        &self,
        name: &Name,
        reading: &NameReading,
        memory: Duration,
    ) -> Result<Vec<Change>, Failure> {
        let tree = &self.shared.tree;
        let Some(last) = &reading.last else {
            return Ok(Vec::new());
        };
        if !reading.children.queue.is_empty() {
            return Ok(Vec::new());
        }
        let token = tree.token(name, last.token);
        let until = until(LIMIT);
        if let Some(taken) = &reading.taken {
            if self.left(name, taken.stamp, taken.span + memory) != Left::Over {
                return Ok(Vec::new());
            }
            let path = tree.taken(name, taken.kind, taken.holder);
            return Ok(vec![
                Change::Delete(path, Some(taken.version)),
                Change::Delete(token, Some(last.version)),
            ]);
        }
        let session = self.session(until).await?;
        let (data, stat) = match within(until, session.data(&token)).await {
            Err(Failure::NoNode) => return Ok(Vec::new()),
            found => found?,
        };
        let is_old = self.left(name, stat.stamp, memory) == Left::Over;
        Ok(match (is_old, data.is_empty()) {
            (true, true) => vec![Change::Delete(token, Some(stat.version))],
            // Its session ended at an unknown time: the time for which its token is remembered begins now.
            (true, false) => vec![Change::Set(token, Vec::new(), Some(stat.version))],
            (false, _) => Vec::new(),
        })
    }

    fn left(&self, name: &Name, stamp: Stamp, span: Duration) -> Left {
        let mut remembered = self.remembered();
        remembered.left(name, stamp, span, Boottime.now())
    }

    /// Returns the same store, for a task of its own.
    fn beside(&self) -> Self {
        Self {
            shared: Arc::<Shared>::clone(&self.shared),
            own: self.own.clone(),
            role: self.role,
        }
    }
}
