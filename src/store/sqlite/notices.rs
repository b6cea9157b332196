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
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::Sqlite;
use super::database::Tx;
use super::failure::Failure;
use super::queue::stored_client;
use super::row::{Row, RowState};
use crate::clock::{Clock, Instant, Monotonic};
use crate::future::BoxFuture;
use crate::name::Name;
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

    async fn next_notice(&self) -> Notice {
        loop {
            if let Some(notice) = self.seen.lock().queue.pop_front() {
                return notice;
            }
            let followed = self.topics.lock().followed.clone();
            if followed.is_empty() {
                self.followed.notified().await;
            } else {
                self.look(followed).await;
            }
        }
    }

    /// Looks once and queues what it finds, or sleeps.
    async fn look(&self, followed: Arc<BTreeSet<Topic>>) {
        let fresh = self.topics.lock().fresh.clone();
        let last = self.seen.lock().last.clone();
        let began = Monotonic.now();
        let look = move |tx: &Tx<'_>| tx.changes_since(last.as_ref(), &followed);
        let Ok((sight, hints)) = self.store.read(LIMIT, look).await else {
            self.seen.lock().has_failed = true;
            sleep(LIMIT).await;
            return;
        };
        self.topics
            .lock()
            .fresh
            .retain(|topic| !fresh.contains(topic));
        let is_quiet = {
            let mut seen = self.seen.lock();
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
        let mut topics = self.topics.lock();
        Arc::make_mut(&mut topics.followed).insert(topic.clone());
        topics.fresh.insert(topic.clone());
        self.followed.notify_one();
    }

    fn unfollow(&self, topic: &Topic) {
        let mut topics = self.topics.lock();
        Arc::make_mut(&mut topics.followed).remove(topic);
        topics.fresh.remove(topic);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(self.next_notice())
    }
}

/// The part of what a look found that the next one compares with.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// The file's change counter.
    version: i64,
    kept: BTreeSet<Kept>,
}

/// A name that was kept after its release, and until when. Nothing is written at that moment, so a waiting client has
/// to hear of it before, and once is enough.
type Kept = (Name, Instant);

/// One look.
struct Changes<'a> {
    tx: &'a Tx<'a>,
    before: &'a BTreeSet<Kept>,
    kept: BTreeSet<Kept>,
}

impl Tx<'_> {
    /// Looks at the file. Returns what it looks like and, if it changed since the look before, the hints for these
    /// topics.
    pub(super) fn changes_since(
        &self,
        before: Option<&Snapshot>,
        topics: &BTreeSet<Topic>,
    ) -> Result<(Snapshot, Vec<Notice>), Failure> {
        let version = self
            .db
            .query_row("PRAGMA data_version", (), |row| row.get(0))?;
        let Some(before) = before.filter(|before| before.version != version) else {
            let kept = before.map_or_else(BTreeSet::new, |before| before.kept.clone());
            return Ok((Snapshot { version, kept }, Vec::new()));
        };
        let mut look = Changes {
            tx: self,
            before: &before.kept,
            kept: BTreeSet::new(),
        };
        let mut hints = Vec::new();
        for topic in topics {
            hints.extend(look.hint(topic)?);
        }
        // A client whose turn it is hears of it before those that still have to wait.
        hints.sort_by_key(|hint| matches!(hint, Notice::Next(..)));
        let kept = look.kept;
        Ok((Snapshot { version, kept }, hints))
    }
}

impl Changes<'_> {
    fn hint(&mut self, topic: &Topic) -> Result<Option<Notice>, Failure> {
        let name = topic.name();
        let row = self.tx.counting_row(name)?;
        if let Topic::Turn(_, client) = topic {
            return self.turn(name, row, &stored_client(*client));
        }
        let is_news = row.is_none_or(|row| self.is_newly_kept(name, &row));
        Ok(is_news.then(|| Notice::Freed(name.clone())))
    }

    fn is_newly_kept(&mut self, name: &Name, row: &Row) -> bool {
        if row.standing != RowState::Kept {
            return false;
        }
        let kept = (name.clone(), row.ends_at);
        let is_known = self.before.contains(&kept);
        self.kept.insert(kept);
        !is_known
    }

    /// The hint for a client in the queue.
    fn turn(&self, name: &Name, row: Option<Row>, client: &str) -> Result<Option<Notice>, Failure> {
        let notice = match row {
            None => Notice::Turn(name.clone()),
            Some(row) if row.is_offered_to(client) => return Ok(Some(Notice::Turn(name.clone()))),
            Some(row) => match row.unheld(self.tx) {
                Some(remaining) => Notice::Next(name.clone(), remaining),
                None => return Ok(None),
            },
        };
        let is_first = self.tx.queue(name).first_live()?.as_deref() == Some(client);
        Ok(is_first.then_some(notice))
    }
}
