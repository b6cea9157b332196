//! The pools of a client: the doors that it found taken, and its tasks in the queue at each door.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::acquire::Acquiring;
use super::taking::Access;
use crate::lease::Lease;
use crate::name::Name;

/// Maximum number of doors that are remembered as taken. Beyond it the client forgets them all. That costs no more than
/// the order between a task that tries and those that wait.
const DOORS: usize = 4_096;

#[derive(Default)]
pub(super) struct Pools {
    doors_taken: Mutex<HashSet<Name>>,
    waiting: Mutex<HashMap<(Name, Access), VecDeque<WaitingTaker>>>,
}

/// A task that waits at a door.
pub(super) struct WaitingTaker {
    access: Access,
    /// Its own request, with its own options.
    pub(super) request: Acquiring,
    /// Receives a permit for it. A permit that comes after the task has given up is dropped, and so released.
    pub(super) permit: oneshot::Sender<Lease>,
}

/// A task's place in the queue at a door. Dropping it gives the place up.
pub(super) struct TakerPlace<'a> {
    pools: &'a Pools,
    key: (Name, Access),
    permit: oneshot::Receiver<Lease>,
}

impl Pools {
    pub(super) fn is_door_taken(&self, name: &Name) -> bool {
        self.doors_taken.lock().contains(name)
    }

    /// Records whether a door was free when it was checked.
    pub(super) fn note_door(&self, name: &Name, is_free: bool) {
        let mut taken = self.doors_taken.lock();
        if is_free {
            taken.remove(name);
            return;
        }
        if taken.len() >= DOORS {
            taken.clear();
        }
        taken.insert(name.clone());
    }

    /// Joins the tasks that wait at this door, as the last one.
    pub(super) fn join(&self, access: Access, request: Acquiring) -> TakerPlace<'_> {
        let (sender, permit) = oneshot::channel();
        let key = (request.name.clone(), access);
        let waiting = WaitingTaker {
            access,
            request,
            permit: sender,
        };
        let mut all = self.waiting.lock();
        all.entry(key.clone()).or_default().push_back(waiting);
        TakerPlace {
            pools: self,
            key,
            permit,
        }
    }

    /// Removes the first `most` tasks that wait at this door.
    pub(super) fn waiting(&self, access: Access, name: &Name, most: usize) -> Vec<WaitingTaker> {
        let mut all = self.waiting.lock();
        let Some(waiting) = all.get_mut(&(name.clone(), access)) else {
            return Vec::new();
        };
        waiting.drain(..most.min(waiting.len())).collect()
    }

    /// Puts back a task that was removed without result.
    pub(super) fn put_back(&self, waiting: WaitingTaker) {
        if waiting.permit.is_closed() {
            return;
        }
        let key = (waiting.request.name.clone(), waiting.access);
        let mut all = self.waiting.lock();
        all.entry(key).or_default().push_front(waiting);
    }
}

impl TakerPlace<'_> {
    /// Waits for a permit that another task takes for this one; for ever if there will be none.
    pub(super) async fn permit(mut self) -> Lease {
        match (&mut self.permit).await {
            Ok(lease) => lease,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for TakerPlace<'_> {
    fn drop(&mut self) {
        self.permit.close();
        let mut all = self.pools.waiting.lock();
        if let Some(waiting) = all.get_mut(&self.key) {
            waiting.retain(|waiting| !waiting.permit.is_closed());
            if waiting.is_empty() {
                all.remove(&self.key);
            }
        }
    }
}
