//! Hints that names were freed, or are a client's turn: the file's change counter, looked at every ten
//! milliseconds while a client waits.
//!
//! SQLite announces no change, but `PRAGMA data_version` shows one to a reader, from shared memory and without a lock.
//! With its changes of threads a look takes a fraction of a millisecond, so a client that waits costs one or two
//! hundredths of a core (measured on a virtual machine), and one that does not costs nothing. A watch on the log file
//! (inotify) would wake faster, but too early: the log is written before the change can be seen. Only when the counter
//! has moved are the names looked up. Those that are free or newly kept for a while are hinted; to a client of the
//! queue, those that are offered to it or free for it, and those for which it is next.
//!
//! The connection is the listener's own and never writes, so that the counter moves for the changes of all others,
//! those of this client included.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

use super::Sqlite;
use super::failure::Failure;
use super::transaction::Tx;
use crate::clock::{Clock, Instant, Monotonic};
use crate::name::Name;
use crate::store::kit::subscription::{Subscription, Wanted};
use crate::store::{HeldState, Notice, Topic};

/// The pause between two looks at the counter.
const PACE: Duration = Duration::from_millis(10);
/// The least pause after a look, in multiples of the time that the look took: a subscription of very many names spends
/// at most a tenth of its time on looks.
const IDLE_PARTS: u32 = 9;
/// The limit of one look, and the pause after one that failed.
const LIMIT: Duration = Duration::from_secs(1);

/// The task that looks.
struct Listener {
    store: Sqlite,
    wanted: Wanted,
    /// The file's change counter at the last look.
    version: Option<i64>,
    kept: BTreeSet<Kept>,
}

/// A name that was kept after its release, and until when. Nothing is written at that moment, so a waiting client has
/// to hear of it before, and once is enough.
type Kept = (Name, Instant);

/// Begins to look into the file of this store, on the calling runtime.
pub(super) async fn subscribe(store: Sqlite) -> Subscription {
    let started = Subscription::start(async |wanted| {
        let listener = Listener {
            store,
            wanted,
            version: None,
            kept: BTreeSet::new(),
        };
        Ok::<_, Infallible>(tokio::spawn(listener.run()).abort_handle())
    });
    let Ok(subscription) = started.await;
    subscription
}

impl Listener {
    async fn run(mut self) {
        let mut has_failed = false;
        loop {
            if self.wanted.followed().is_empty() {
                self.wanted.changed().await;
            }
            let began = Monotonic.now();
            if self.look().await.is_err() {
                has_failed = true;
                sleep(LIMIT).await;
                continue;
            }
            if std::mem::take(&mut has_failed) {
                self.wanted.tell(Notice::Reconnected);
            }
            let took = Monotonic.now().since(began);
            sleep(PACE.max(took * IDLE_PARTS)).await;
        }
    }

    /// Looks once, and passes on what it finds.
    async fn look(&mut self) -> Result<(), Failure> {
        let new = self.wanted.take_changes().new;
        // Before the names are looked up: a change after this is found by the next look.
        let version = self.store.read(LIMIT, |tx| tx.version()).await?;
        for topic in new {
            self.wanted.tell(topic.first_notice());
        }
        let last = self.version.replace(version);
        if last.is_none_or(|last| last == version) {
            return Ok(());
        }
        let topics = self.wanted.followed().clone();
        let look = move |tx: &Tx<'_>| topics.iter().map(|topic| tx.hint(topic)).collect();
        let found: Vec<_> = self.store.read(LIMIT, look).await?;
        let mut hints = Vec::new();
        let before = std::mem::take(&mut self.kept);
        for (hint, kept) in found.into_iter().flatten() {
            let is_known = kept.as_ref().is_some_and(|kept| before.contains(kept));
            self.kept.extend(kept);
            if !is_known {
                hints.push(hint);
            }
        }
        for hint in hints {
            self.wanted.tell(hint);
        }
        Ok(())
    }
}

impl Tx<'_> {
    fn version(&self) -> Result<i64, Failure> {
        let sql = "PRAGMA data_version";
        Ok(self.db.query_row(sql, (), |row| row.get(0))?)
    }

    /// Returns the hint about this topic, and the end of a name that is kept.
    fn hint(&self, topic: &Topic) -> Result<Option<(Notice, Option<Kept>)>, Failure> {
        let name = topic.name();
        let row = self.row(name)?;
        let Topic::Queue(_, client) = topic else {
            let kept = match row {
                None => None,
                Some(row) if row.state == HeldState::Kept => Some((name.clone(), row.ends_at)),
                Some(_) => return Ok(None),
            };
            return Ok(Some((topic.first_notice(), kept)));
        };
        let client = client.to_string();
        let notice = match row {
            None => topic.first_notice(),
            Some(row) if row.is_offered_to(&client) => {
                return Ok(Some((topic.first_notice(), None)));
            }
            Some(row) if row.state == HeldState::Kept => topic.first_notice(),
            Some(_) => return Ok(None),
        };
        let is_first = self.first_queued(name)?.as_ref() == Some(&client);
        Ok(is_first.then_some((notice, None)))
    }
}
