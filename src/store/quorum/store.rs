//! The store on a quorum of servers: the members, and what is known of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use super::KIND;
use super::failure::Failure;
use super::known::KnownQuorum;
use super::members::{Failures, Members};
use super::protocol::TokenMemory;
use crate::telemetry::StoreCounts;

/// Most releases that wait for one member. A lease left behind beyond that ends with its ttl.
const MOST_OWED: usize = 1_024;

/// A store on a quorum of independent Redis or Valkey servers.
///
/// It is made without I/O: the first request connects.
pub struct Quorum {
    pub(super) members: Members,
    /// For each member. Of these connections alone: a task that waits here may be on a runtime that is blocked, and
    /// must not keep the watchdog from the same work.
    pub(super) care: Arc<[Care]>,
    pub(super) shared: Arc<Shared>,
}

/// State that the connections of one store share.
pub(super) struct Shared {
    memory: Mutex<TokenMemory>,
    /// The highest mark and token that members told.
    seen: AtomicU64,
    known: Mutex<Option<KnownQuorum>>,
    /// As the settings have it.
    pub(super) max_ttl: Option<Duration>,
    pub(super) connect_timeout: Duration,
    /// Where the members are, without secrets.
    pub(super) place: String,
    pub(super) counts: &'static StoreCounts,
}

/// Limits of the work under way for one member: one adoption, and some releases. A permit ends with its task or the
/// runtime.
#[derive(Debug)]
pub(super) struct Care {
    pub(super) adopting: Arc<Semaphore>,
    pub(super) releasing: Arc<Semaphore>,
}

impl Default for Care {
    fn default() -> Self {
        Self {
            adopting: Arc::new(Semaphore::new(1)),
            releasing: Arc::new(Semaphore::new(MOST_OWED)),
        }
    }
}

impl Quorum {
    pub(super) fn of(
        members: Members,
        max_ttl: Option<Duration>,
        connect_timeout: Duration,
    ) -> Self {
        let counts = StoreCounts::of(KIND);
        counts.has_quorums();
        let shared = Shared {
            memory: Mutex::default(),
            seen: AtomicU64::new(0),
            known: Mutex::default(),
            max_ttl,
            connect_timeout,
            place: format!("quorum of {}", members.places()),
            counts,
        };
        Self::on(members, Arc::new(shared))
    }

    /// Returns the store on these connections, on which no work is under way.
    pub(super) fn on(members: Members, shared: Arc<Shared>) -> Self {
        let care = members.iter().map(|_| Care::default()).collect();
        Self {
            members,
            care,
            shared,
        }
    }

    /// Returns the same store on the same connections, for a task.
    pub(super) fn share(&self) -> Self {
        Self {
            members: self.members.clone(),
            care: self.care.clone(),
            shared: self.shared.clone(),
        }
    }

    pub(super) fn too_few(&self, answered: usize, failures: &Failures) -> Failure {
        Failure::too_few(&self.members, answered, failures)
    }
}

impl Shared {
    pub(super) fn memory(&self) -> MutexGuard<'_, TokenMemory> {
        self.memory.lock()
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Option<KnownQuorum>> {
        self.known.lock()
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn note_seen(&self, token: u64) {
        self.seen.fetch_max(token, Ordering::Relaxed);
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum")
            .field("location", &self.shared.place)
            .field("max_ttl", &self.shared.max_ttl)
            .finish_non_exhaustive()
    }
}
