//! Hints that names were freed: the file's change counter, looked at every ten milliseconds while somebody waits.
//!
//! SQLite tells nobody of a change, but `PRAGMA data_version` tells whoever asks, from shared memory and without a lock:
//! some ten microseconds a look, so a client that waits costs about a thousandth of a core and one that does not costs
//! nothing. A watch on the log file (inotify) would wake faster, but too early: the log is written before the change can
//! be seen. Only when the counter has moved are the names looked up, and those that are free are hinted.
//!
//! The connection is the subscription's own and never writes, so that the counter moves for everybody else's changes,
//! those of this client included.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::Sqlite;
use super::leases::Leases;
use crate::clock::{Clock, Monotonic};
use crate::name::Name;
use crate::store::{Notice, Notices, Reply};

/// How often the counter is looked at.
const PACE: Duration = Duration::from_millis(10);
/// The share of its time that a subscription with very many names spends on looking them up: one part in so many.
const IDLE_PARTS: u32 = 9;
/// The limit of one look, and the pause after one that failed.
const LIMIT: Duration = Duration::from_secs(1);

/// The subscription of a client.
#[derive(Debug)]
pub(super) struct Subscription {
    store: Sqlite,
    names: Mutex<Names>,
    followed: Notify,
    seen: tokio::sync::Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Names {
    /// Shared with the look that is under way.
    followed: Arc<BTreeSet<Name>>,
    /// To be hinted once because they were just followed.
    fresh: BTreeSet<Name>,
}

#[derive(Debug, Default)]
struct Seen {
    version: Option<i64>,
    queue: VecDeque<Notice>,
    has_failed: bool,
}

impl Subscription {
    pub(super) fn new(store: Sqlite) -> Self {
        Self {
            store,
            names: Mutex::default(),
            followed: Notify::new(),
            seen: tokio::sync::Mutex::default(),
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next_notice(&self) -> Notice {
        let mut seen = self.seen.lock().await;
        loop {
            if let Some(notice) = seen.queue.pop_front() {
                return notice;
            }
            let followed = self.names().followed.clone();
            if followed.is_empty() {
                self.followed.notified().await;
            } else {
                self.look(&mut seen, followed).await;
            }
        }
    }

    /// Looks once and queues what it finds, or sleeps.
    async fn look(&self, seen: &mut Seen, followed: Arc<BTreeSet<Name>>) {
        let fresh = self.names().fresh.clone();
        let version = seen.version;
        let began = Monotonic.now();
        let work = move |leases: &mut Leases, until| leases.freed_since(version, &followed, until);
        let Ok((version, freed)) = self.store.ask("look for notices", LIMIT, work).await else {
            seen.has_failed = true;
            sleep(LIMIT).await;
            return;
        };
        seen.version = Some(version);
        if std::mem::take(&mut seen.has_failed) {
            seen.queue.push_back(Notice::Reconnected);
        }
        self.names().fresh.retain(|name| !fresh.contains(name));
        seen.queue
            .extend(freed.into_iter().chain(fresh).map(Notice::Freed));
        if seen.queue.is_empty() {
            let took = Monotonic.now().since(began);
            sleep(PACE.max(took * IDLE_PARTS)).await;
        }
    }
}

impl Notices for Subscription {
    fn follow(&self, name: &Name) {
        let mut names = self.names();
        Arc::make_mut(&mut names.followed).insert(name.clone());
        names.fresh.insert(name.clone());
        self.followed.notify_one();
    }

    fn unfollow(&self, name: &Name) {
        let mut names = self.names();
        Arc::make_mut(&mut names.followed).remove(name);
        names.fresh.remove(name);
    }

    fn next(&self) -> Reply<'_, Notice> {
        Box::pin(self.next_notice())
    }
}
