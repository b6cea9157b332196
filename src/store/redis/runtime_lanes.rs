//! One lane for each runtime whose tasks send requests.
//!
//! A connection is a task of the runtime on which it was made: while that runtime is blocked, or once it has ended, no
//! task reads the server's answers. But a client can be used from several runtimes, one after the other or at the same
//! time. So the callers of each runtime share a lane of their own. A thread that drives one connection for all of them
//! would wake twice for each request, which doubles the time of a hand-off to a task of a runtime with several threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::budget::Budget;
use super::failure::Failure;
use super::lane::{Lane, Settings};
use super::link::Request;
use super::reply;
use super::run::{MemberClock, ServerRun};
use crate::store::quorum;
use crate::telemetry::{LaneUse, StoreCounts};

/// The lanes of one store.
#[derive(Debug)]
pub(super) struct RuntimeLanes {
    settings: Settings,
    purpose: Option<LaneUse>,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    by_runtime: HashMap<runtime::Id, OfRuntime>,
    is_closed: bool,
}

/// What a runtime has.
#[derive(Debug)]
struct OfRuntime {
    lane: Arc<Lane>,
    /// The task that waits for the end of the runtime ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl RuntimeLanes {
    /// Lanes for this purpose.
    pub(super) fn new(settings: Settings, purpose: Option<LaneUse>) -> Self {
        Self {
            settings,
            purpose,
            open: Arc::default(),
        }
    }

    /// Returns how many replicas must have a write before it counts.
    pub(super) fn acknowledged_by(&self) -> u8 {
        self.settings.acknowledged_by
    }

    /// Returns whether a server that may have lost data is to grant nothing for a while.
    pub(super) fn keeps_out(&self) -> bool {
        self.settings.node.max_ttl.is_some()
    }

    /// Returns lanes to the same address whose connections are made beside the pool, so that no other user of the pool
    /// can take them all.
    pub(super) fn beside(&self, purpose: Option<LaneUse>) -> Self {
        let settings = self.settings.clone();
        let source = settings.source.beside();
        Self::new(Settings { source, ..settings }, purpose)
    }

    /// Makes the connection of the calling runtime now.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        self.lane()?.connect().await.map(drop)
    }

    /// The same, and returns what a member of a quorum told then.
    pub(super) async fn meet_member(&self) -> Result<Option<MemberClock>, Failure> {
        let link = self.lane()?.connect().await?;
        Ok(link.run().and_then(ServerRun::clock))
    }

    /// Sends one command and awaits its answer, as [`Lane::request`] does.
    pub(super) async fn request(
        &self,
        command: &Cmd,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let request = Request::One(command);
        self.exchange(request, budget, replace_every).await
    }

    /// The same for a request of any kind.
    pub(super) async fn exchange(
        &self,
        request: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let lane = self.lane()?;
        lane.request(request, budget, replace_every).await
    }

    /// Sends these commands one right after the other, and awaits their answers. A command that is refused has an error
    /// for an answer.
    pub(super) async fn request_all(
        &self,
        commands: &Pipeline,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let request = Request::All(commands);
        reply::into_items(self.exchange(request, budget, replace_every).await?)
    }

    /// Notes that the server at this address has carried out a write, so the address normally leads to a master.
    pub(super) fn note_write(&self) {
        self.settings.note_write();
    }

    /// Closes all connections; requests fail from then on.
    pub(super) fn close(&self) {
        let open = {
            let mut open = lock(&self.open);
            open.is_closed = true;
            std::mem::take(&mut open.by_runtime)
        };
        open.values().for_each(|of_runtime| of_runtime.lane.close());
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.open).is_closed
    }

    /// The lane of the calling runtime.
    fn lane(&self) -> Result<Arc<Lane>, Failure> {
        let runtime = Handle::current();
        let mut open = lock(&self.open);
        if open.is_closed {
            return Err(Failure::Closed);
        }
        if let Some(known) = open.by_runtime.get(&runtime.id()) {
            return Ok(known.lane.clone());
        }
        let is_member = self.settings.node.is_member;
        let counts = counts(is_member);
        if !is_member {
            counts.has_replicas();
        }
        let gauge = counts.connection(self.purpose);
        let lane = Arc::new(Lane::new(self.settings.clone(), gauge));
        let (stop, stopped) = oneshot::channel::<()>();
        let end = RuntimeEnd {
            id: runtime.id(),
            open: Arc::downgrade(&self.open),
        };
        let of_runtime = OfRuntime {
            lane: lane.clone(),
            _stop: stop,
        };
        open.by_runtime.insert(runtime.id(), of_runtime);
        // A runtime that is shutting down drops a new task at once, and the end of the runtime takes the lock.
        drop(open);
        runtime.spawn(async move {
            let _end = end;
            // An error says that the lane was closed, which is what this waits for.
            let _ = stopped.await;
        });
        Ok(lane)
    }
}

/// Forgets the lane of a runtime when the runtime ends, and drops this with its tasks. The runtime's id may then be
/// given to another one.
struct RuntimeEnd {
    id: runtime::Id,
    open: Weak<Mutex<Open>>,
}

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        if let Some(open) = self.open.upgrade() {
            // Dropped after the lock is free.
            let _ended = lock(&open).by_runtime.remove(&self.id);
        }
    }
}

/// Where the connections are counted: as those of this kind of store, or of the quorum that the server is a member of.
pub(super) fn counts(is_member: bool) -> &'static StoreCounts {
    StoreCounts::of(if is_member { quorum::KIND } else { super::KIND })
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
