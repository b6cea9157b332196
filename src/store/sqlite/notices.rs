//! Hints that names were freed, or are a client's turn: the file's change counter, looked at every ten
//! milliseconds while a client waits.
//!
//! SQLite announces no change, but `PRAGMA data_version` shows one to a reader, from shared memory and without a lock.
//! A look takes some ten microseconds, so a client that waits costs about a thousandth of a core, and one that does not
//! costs nothing. A watch on the log file (inotify) would wake faster, but too early: the log is written before the
//! change can be seen. Only when the counter has moved are the names looked up. Those that are free or newly kept for a
//! while are hinted; to a client of the queue, those that are offered to it or free for it, and those for which it is
//! next.
//!
//! The connection is the subscription's own and never writes, so that the counter moves for the changes of all others,
//! those of this client included.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::Sqlite;
use super::caller::Caller;
use super::changes::Snapshot;
use super::leases::Leases;
use crate::clock::{Clock, Monotonic};
use crate::future::BoxFuture;
use crate::store::{Notice, Notices, Topic};

/// The pause between two looks at the counter.
const PACE: Duration = Duration::from_millis(10);
/// The least pause after a look, in multiples of the time that the look took: a subscription of very many names spends
/// at most a tenth of its time on looks.
const IDLE_PARTS: u32 = 9;
/// The limit of one look, and the pause after one that failed.
const LIMIT: Duration = Duration::from_secs(1);

/// The subscription of a client.
#[derive(Debug)]
pub(super) struct Subscription {
    store: Sqlite,
    topics: Mutex<Topics>,
    followed: Notify,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Topics {
    /// Shared with the look that is under way.
    followed: Arc<BTreeSet<Topic>>,
    /// Topics that were just followed, and get their first hint.
    fresh: BTreeSet<Topic>,
}

#[derive(Debug, Default)]
struct Seen {
    last: Option<Snapshot>,
    queue: VecDeque<Notice>,
    has_failed: bool,
}

impl Subscription {
    pub(super) fn new(store: Sqlite) -> Self {
        Self {
            store,
            topics: Mutex::default(),
            followed: Notify::new(),
            seen: Mutex::default(),
        }
    }

    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next_notice(&self) -> Notice {
        loop {
            if let Some(notice) = self.seen().queue.pop_front() {
                return notice;
            }
            let followed = self.topics().followed.clone();
            if followed.is_empty() {
                self.followed.notified().await;
            } else {
                self.look(followed).await;
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks once and queues what it finds, or sleeps.
    async fn look(&self, followed: Arc<BTreeSet<Topic>>) {
        let fresh = self.topics().fresh.clone();
        let last = self.seen().last.clone();
        let began = Monotonic.now();
        let work = move |leases: &mut Leases, caller: Caller<'_>| {
            leases.hints_since(last.as_ref(), &followed, caller)
        };
        let Ok((sight, hints)) = self.store.ask("look for notices", LIMIT, work).await else {
            self.seen().has_failed = true;
            sleep(LIMIT).await;
            return;
        };
        self.topics().fresh.retain(|topic| !fresh.contains(topic));
        let is_quiet = {
            let mut seen = self.seen();
            seen.last = Some(sight);
            if std::mem::take(&mut seen.has_failed) {
                seen.queue.push_back(Notice::Reconnected);
            }
            seen.queue.extend(hints);
            seen.queue.extend(fresh.iter().map(Topic::first_hint));
            seen.queue.is_empty()
        };
        if is_quiet {
            let took = Monotonic.now().since(began);
            sleep(PACE.max(took * IDLE_PARTS)).await;
        }
    }
}

impl Notices for Subscription {
    fn follow(&self, topic: &Topic) {
        let mut topics = self.topics();
        Arc::make_mut(&mut topics.followed).insert(topic.clone());
        topics.fresh.insert(topic.clone());
        self.followed.notify_one();
    }

    fn unfollow(&self, topic: &Topic) {
        let mut topics = self.topics();
        Arc::make_mut(&mut topics.followed).remove(topic);
        topics.fresh.remove(topic);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(self.next_notice())
    }
}
