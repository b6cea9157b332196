//! Notices that names were freed, or granted to a client that waits.
//!
//! SQLite announces no change, but `PRAGMA data_version` shows one to a reader, from shared memory and without a lock.
//! The listener looks at it when a [bell](super::bells) of its names rings, and once a second; every ten milliseconds
//! where a bell is missing, which takes a hundredth of a core (measured on a virtual machine). A watch on the log file
//! (inotify) would wake it too early: the log is written before the change can be seen. Only when the counter has moved
//! are the names looked up. Those that are free or newly kept for a while are hinted; a client of the queue is told of
//! those that were granted to it, and of those that are free or kept while it is first.
//!
//! The connection is the listener's own and never writes, so that the counter moves for the changes of all others,
//! those of this client included.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

use super::Sqlite;
use super::bells::{BellSet, OpenBells};
use super::database::Database;
use super::failure::Failure;
use super::transaction::{Caller, Tx};
use crate::clock::{Clock, Instant, Monotonic};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::kit::subscription::{Subscription, Wanted};
use crate::store::{Handover, HeldState, Notice, Topic};
use crate::token::Token;

/// The pause between two looks while nothing rings: finds what was changed without a ring, at no cost to speak of.
const PACE: Duration = Duration::from_secs(1);
/// The same for a listener that lacks a bell.
const PACE_WITHOUT_BELL: Duration = Duration::from_millis(10);
/// The time in which a listener looks once, in multiples of its processor time: one of very many names, or among very
/// many releases, spends a tenth of a core on looks.
const PARTS: u32 = 10;
/// The time without looks that counts towards that, so that a few looks may follow each other at once.
const CREDIT: Duration = Duration::from_millis(100);
/// The processor time of the wake-ups around a look, which the thread that looks does not see.
const WAKE_UPS: Duration = Duration::from_micros(50);
/// The limit of one look, and the pause after one that failed.
const LIMIT: Duration = Duration::from_secs(1);

/// The task that looks.
struct Listener {
    store: Sqlite,
    wanted: Wanted,
    /// What is followed, for the thread of the store, and its bells.
    topics: Arc<BTreeSet<Topic>>,
    bells: BellSet,
    heard: OpenBells,
    /// The file's change counter at the last look.
    version: Option<i64>,
    told: BTreeSet<Told>,
}

/// What is told once, however often the file is looked at while it is so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// A name was kept after its release, until this moment. Nothing is written then, so a waiting client has to hear
    /// of it before.
    Kept(Name, Instant),
    /// A name was granted.
    Granted(Name, Token),
}

/// A notice, and what it tells if that is to be told once.
type Hint = (Notice, Option<Told>);

/// Begins to look into the file of this store, on the calling runtime.
pub(super) async fn subscribe(store: Sqlite) -> Subscription {
    let started = Subscription::start(async |wanted| {
        let listener = Listener {
            store,
            wanted,
            topics: Arc::default(),
            bells: BellSet::NONE,
            heard: OpenBells::default(),
            version: None,
            told: BTreeSet::new(),
        };
        Ok::<_, Infallible>(tokio::spawn(listener.run()).abort_handle())
    });
    let Ok(subscription) = started.await;
    subscription
}

impl Listener {
    async fn run(mut self) {
        let mut has_failed = false;
        let (mut renewed, mut rested) = (Monotonic.now(), Monotonic.now());
        loop {
            if self.topics.is_empty() {
                self.wanted.changed().await;
            }
            let began = Monotonic.now();
            // Once a second, whatever rings: a bell that was deleted or replaced stays silent.
            if began >= renewed.after(PACE) {
                renewed = began;
                self.heard.doubt();
            }
            let Ok(cost) = self.look().await else {
                has_failed = true;
                self.heard.forget(BellSet::ALL);
                sleep(LIMIT).await;
                continue;
            };
            if std::mem::take(&mut has_failed) {
                self.wanted.tell(Notice::Reconnected);
            }
            let now = Monotonic.now();
            rested = rested.max(now.before(CREDIT)).after(cost * PARTS);
            if rested > now {
                sleep(rested.since(now)).await;
            }
            let pace = match self.heard.lacks_one() {
                true => PACE_WITHOUT_BELL,
                false => renewed.after(PACE).since(Monotonic.now()),
            };
            tokio::select! {
                rung = self.heard.rung() => self.heard.forget(rung),
                () = self.wanted.changed() => {}
                () = sleep(pace) => {}
            }
        }
    }

    /// Looks once, and passes on what it finds. Returns the processor time that it took.
    async fn look(&mut self) -> Result<Duration, Failure> {
        let changes = self.wanted.take_changes();
        if !changes.new.is_empty() || !changes.old.is_empty() {
            let topics = self.wanted.followed();
            let bells = topics.iter().map(|topic| BellSet::of(topic.name()));
            self.bells = bells.fold(BellSet::NONE, BellSet::with);
            self.topics = Arc::new(topics.clone());
        }
        let due = self.heard.due(self.bells);
        let (last, topics) = (self.version, self.topics.clone());
        let look = move |file: &mut Database, caller: Caller<'_>| {
            let before = processor_time();
            // The bells first, then the counter, then the names: a later change rings, or is found by the next look.
            let bells = file.bells().listen(due);
            let (version, found) = file.read(caller, |tx| {
                let version = tx.version()?;
                if last.is_none_or(|last| last == version) {
                    return Ok((version, None));
                }
                let hints: Result<Vec<Option<Hint>>, _> =
                    topics.iter().map(|topic| tx.hint(topic)).collect();
                Ok((version, Some(hints?)))
            })?;
            let cost = processor_time().saturating_sub(before) + WAKE_UPS;
            Ok((bells, version, found, cost))
        };
        let (bells, version, found, cost) = self.store.thread.ask(LIMIT, look).await?;
        self.version = Some(version);
        self.heard.replace(bells);
        for topic in changes.new {
            self.wanted.tell(topic.first_notice());
        }
        let Some(found) = found else {
            return Ok(cost);
        };
        let mut hints = Vec::new();
        let before = std::mem::take(&mut self.told);
        for (hint, told) in found.into_iter().flatten() {
            let is_known = told.as_ref().is_some_and(|told| before.contains(told));
            self.told.extend(told);
            if !is_known {
                hints.push(hint);
            }
        }
        for hint in hints {
            self.wanted.tell(hint);
        }
        Ok(cost)
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl Tx<'_> {
    fn version(&self) -> Result<i64, Failure> {
        let version = self.find("PRAGMA data_version", ())?;
        version.ok_or_else(|| Failure::damaged("it has no change counter"))
    }

    /// Returns the notice about this topic, and what it tells if that is to be told once.
    fn hint(&self, topic: &Topic) -> Result<Option<Hint>, Failure> {
        let name = topic.name();
        let freed = topic.first_notice();
        let row = self.row(name)?;
        let kept = row.as_ref().filter(|row| row.state == HeldState::Kept);
        let kept = kept.map(|row| Told::Kept(name.clone(), row.ends_at));
        let Topic::Queue(_, client) = topic else {
            return Ok((row.is_none() || kept.is_some()).then_some((freed, kept)));
        };
        if let Some(row) = row.filter(|row| row.state == HeldState::Leased) {
            let holder: Option<Holder> = row.holder.parse().ok();
            let Some(holder) = holder.filter(|holder| holder.client() == *client) else {
                return Ok(None);
            };
            let handover = Handover::new(name.clone(), holder, row.token()?);
            let told = Told::Granted(name.clone(), handover.token);
            return Ok(Some((Notice::Granted(Box::new(handover)), Some(told))));
        }
        let first = self.first_waiting(name)?;
        let is_first = first.is_some_and(|first| first.client == client.to_string());
        Ok(is_first.then_some((freed, kept)))
    }
}
