//! Notices that names were freed, or granted to a client that waits.
//!
//! SQLite announces no change, but `PRAGMA data_version` shows one to a reader, from shared memory and without a lock.
//! The listener reads it when one of its [bells](super::bells) rings, and once a second; every ten milliseconds where a
//! bell is missing, which takes a hundredth of a core (measured on a virtual machine). A watch on the log file
//! (inotify) would wake it too early: the log is written before the change can be seen. Only when the counter has
//! moved, or a lease that a queue waits for has run out, are the names looked up. For those that are free or newly kept
//! for a while a notice goes out; a client of the queue is told of those that were granted to it, and of those that are
//! free or kept while it is first, or free for longer than the first one needs to take them.
//!
//! The listener is a thread, which sleeps until one of its bells rings: no other thread is woken for a poll. Its
//! connection never writes, so that the counter moves for the changes of all others, those of this client included.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::bells::{Bell, OpenBells};
use super::database::{Database, pause};
use super::failure::Failure;
use super::thread::Thread;
use super::transaction::{Caller, Tx};
use crate::clock::{Clock, Instant, Monotonic};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::kit::subscription::{Subscription, Wanted};
use crate::store::{Handover, HeldState, Notice, Topic};
use crate::token::Token;

/// Interval between polls while nothing rings: finds what was changed without a ring, at no cost to speak of.
const PACE: Duration = Duration::from_secs(1);
/// Interval between polls of a listener without a bell.
const PACE_WITHOUT_BELL: Duration = Duration::from_millis(10);
/// Minimum interval between polls, in multiples of their processor time: a listener of very many names, or among very
/// many releases, spends a tenth of a core on polls.
const PARTS: u32 = 10;
/// The time without polls that counts towards that, so that a few polls may follow each other at once.
const CREDIT: Duration = Duration::from_millis(100);
/// Time limit of a poll, and the pause after one that failed.
const LIMIT: Duration = Duration::from_secs(1);

/// The thread that polls.
struct Listener {
    wanted: Wanted,
    /// Receives a byte for each change of the topics, and ends with the subscription.
    changes: UnixStream,
    bells: BTreeSet<Bell>,
    open: OpenBells,
    /// The file's change counter at the last poll.
    version: Option<i64>,
    told: BTreeSet<Told>,
    /// When the names of queues are looked up again, whether the file was changed or not.
    look_up_at: Instant,
}

/// The conditions that are reported once, however many polls find them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// A name was kept after its release, until this moment. Nothing is written then, so a waiting client has to hear
    /// of it before.
    Kept(Name, Instant),
    /// A name was granted.
    Granted(Name, Token),
    /// A name is free, and another client is the first. Reported from the second time on, because the first client may
    /// be dead.
    Left(Name),
}

/// The finding of a poll about a topic.
#[derive(Default)]
struct Found {
    notice: Option<Notice>,
    told: Option<Told>,
    /// When the name can be free without a change of the file.
    ends_at: Option<Instant>,
}

/// Begins to poll the file of this store, which is left to it.
pub(super) async fn subscribe(store: Thread) -> Result<Subscription, Failure> {
    Subscription::start(async |wanted| {
        let failed = |source| Failure::io("make a pair of sockets", source);
        let (changes, changed) = UnixStream::pair().map_err(failed)?;
        changes.set_nonblocking(true).map_err(failed)?;
        changed.set_nonblocking(true).map_err(failed)?;
        // Fails if a byte is there already, or the thread has ended.
        let call = move || drop((&changed).write(&[0]));
        let until = wanted.when_changed(call);
        let listener = Listener {
            wanted,
            changes,
            bells: BTreeSet::new(),
            open: OpenBells::default(),
            version: None,
            told: BTreeSet::new(),
            look_up_at: Instant::FAR_FUTURE,
        };
        store.devote(|file| listener.run(file)).await;
        Ok(until)
    })
    .await
}

impl Listener {
    fn run(mut self, file: &mut Database) {
        let mut has_failed = false;
        let (mut doubted, mut rested) = (Monotonic.now(), Monotonic.now());
        let mut worked = processor_time();
        let mut rung = BTreeSet::new();
        loop {
            // Once a second, whatever rings: a bell that was deleted or replaced stays silent.
            let now = Monotonic.now();
            let are_in_doubt = now >= doubted.after(PACE);
            if are_in_doubt {
                doubted = now;
            }
            // The bells first, then the counter, then the names: a later change rings, or is found by the next poll.
            let new = self.follow();
            self.open
                .listen(file.bells(), &self.bells, &rung, are_in_doubt);
            match self.poll(file) {
                Ok(()) if std::mem::take(&mut has_failed) => self.wanted.tell(Notice::Reconnected),
                Ok(()) => {}
                Err(_) => has_failed = true,
            }
            for topic in new {
                self.wanted.tell(topic.first_notice());
            }
            let (now, so_far) = (Monotonic.now(), processor_time());
            let cost = so_far.saturating_sub(worked) * PARTS;
            (rested, worked) = (rested.max(now.before(CREDIT)).after(cost), so_far);
            pause(if has_failed { LIMIT } else { rested.since(now) });
            let next = match self.open.lacks_one() {
                true => Monotonic.now().after(PACE_WITHOUT_BELL),
                false => doubted.after(PACE).min(self.look_up_at),
            };
            let is_idle = self.bells.is_empty();
            let Some(heard) = self.wait((!is_idle).then_some(next)) else {
                break;
            };
            rung = heard;
        }
        let none = BTreeSet::new();
        self.open.listen(file.bells(), &none, &none, false);
    }

    /// Updates the topics to follow. Returns the new ones.
    fn follow(&mut self) -> Vec<Topic> {
        let changes = self.wanted.take_changes();
        if !changes.new.is_empty() || !changes.old.is_empty() {
            self.bells = self.wanted.followed().iter().map(Bell::of).collect();
            self.look_up_at = self.look_up_at.min(Monotonic.now().after(PACE));
        }
        changes.new
    }

    /// Waits for a ring or a change of the topics, at most until this moment. Returns the bells that were rung, and
    /// `None` at the end of the subscription.
    fn wait(&mut self, until: Option<Instant>) -> Option<BTreeSet<Bell>> {
        let heard: Vec<_> = self.open.heard().collect();
        let mut polled = vec![PollFd::new(&self.changes, PollFlags::IN)];
        polled.extend(
            heard
                .iter()
                .map(|(_, fifo)| PollFd::new(*fifo, PollFlags::IN)),
        );
        let left = until.map(|until| until.since(Monotonic.now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => pause(PACE_WITHOUT_BELL),
        }
        let is_ready: Vec<_> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        let rung = heard.iter().zip(&is_ready[1..]);
        let rung = rung.filter(|(_, is_ready)| **is_ready);
        let rung = rung.map(|((bell, _), _)| *bell).collect();
        let is_over = is_ready[0] && matches!((&self.changes).read(&mut [0; 64]), Ok(0));
        (!is_over).then_some(rung)
    }

    /// Polls once, and passes on what it finds.
    fn poll(&mut self, file: &mut Database) -> Result<(), Failure> {
        let asked = Monotonic.now();
        let (last, topics) = (self.version, self.wanted.followed());
        let is_due = asked >= self.look_up_at;
        let caller = Caller::new(asked.after(LIMIT), &|| false);
        let (version, is_changed, found) = file.read(caller, |tx| {
            let version = tx.version()?;
            let is_changed = last.is_some_and(|last| last != version);
            let looked_up = topics.iter().filter(|topic| match topic {
                Topic::Queue(..) => is_changed || is_due,
                Topic::Freed(_) => is_changed,
            });
            let found: Result<Vec<_>, _> =
                looked_up.map(|topic| tx.find_out(topic, asked)).collect();
            Ok((version, is_changed, found?))
        })?;
        self.version = Some(version);
        if !is_changed && !is_due {
            return Ok(());
        }
        let ends = found.iter().filter_map(|found| found.ends_at);
        self.look_up_at = ends.min().unwrap_or(Instant::FAR_FUTURE);
        let before = match is_changed {
            true => std::mem::take(&mut self.told),
            false => self.told.clone(),
        };
        for Found { notice, told, .. } in found {
            let is_known = told.as_ref().is_some_and(|told| before.contains(told));
            let is_wanted = is_known == matches!(told, Some(Told::Left(_)));
            self.told.extend(told);
            if let Some(notice) = notice.filter(|_| is_wanted) {
                self.wanted.tell(notice);
            }
        }
        Ok(())
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

    /// Looks a topic up for a listener that asked at this moment.
    fn find_out(&self, topic: &Topic, asked: Instant) -> Result<Found, Failure> {
        let name = topic.name();
        let row = self.row(name)?;
        let kept = row.as_ref().filter(|row| row.state == HeldState::Kept);
        let kept = kept.map(|row| Told::Kept(name.clone(), row.ends_at));
        let mut found = Found::default();
        let Topic::Queue(_, client) = topic else {
            let is_freed = row.is_none() || kept.is_some();
            found.notice = is_freed.then(|| topic.first_notice());
            found.told = kept;
            return Ok(found);
        };
        let left = row.as_ref().and_then(|row| row.remaining());
        found.ends_at = left.map(|left| asked.after(left));
        if let Some(row) = row.as_ref().filter(|row| row.state == HeldState::Leased) {
            let holder: Option<Holder> = row.holder.parse().ok();
            if let Some(holder) = holder.filter(|holder| holder.client() == *client)
                && let Some(end) = found.ends_at
            {
                let handover = Handover::new(name.clone(), holder, row.token()?).with_end(end);
                found.told = Some(Told::Granted(name.clone(), handover.token));
                found.notice = Some(Notice::Granted(Box::new(handover)));
            }
            return Ok(found);
        }
        let Some(first) = self.first_waiting(name)? else {
            return Ok(found);
        };
        if first.holder.client() == *client {
            found.notice = Some(topic.first_notice());
            found.told = kept;
        } else if row.is_none() {
            found.notice = Some(topic.first_notice());
            found.told = Some(Told::Left(name.clone()));
            found.ends_at = Some(asked.after(PACE));
        }
        Ok(found)
    }
}
