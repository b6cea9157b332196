//! A subscription that one task serves, on a connection of its own to a server that pushes notices.
//!
//! ```text
//!   follow, unfollow --(changes, notify)--> listener task --(bounded queue)--> next
//! ```
//!
//! Each store brings the listener: how it connects, what it sends to follow a topic, and how it reads a message.

use std::collections::{BTreeSet, HashMap};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use crate::future::BoxFuture;
use crate::store::{Notice, Notices, Topic};

/// The number of notices that may wait to be read. Beyond it a reconnect serves as well: a reader that is this far
/// behind checks every name.
const QUEUE: usize = 1_024;

/// The caller's end. The listener ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    changes: Arc<Changing>,
    notices: Mutex<mpsc::Receiver<Notice>>,
    has_overflowed: Arc<AtomicBool>,
    listener: AbortHandle,
}

/// The listener's end: the topics to follow, and where to send notices.
#[derive(Debug)]
pub(crate) struct Wanted {
    changes: Arc<Changing>,
    followed: BTreeSet<Topic>,
    /// Where the listener gives notices; other tasks of it have clones.
    pub(crate) teller: Teller,
}

/// The end of a task that gives notices to the caller. When the queue is full, notices are dropped, and the next one
/// read is `Reconnected`, because it asks for the same: check every name.
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    notices: mpsc::Sender<Notice>,
    has_overflowed: Arc<AtomicBool>,
}

/// The topics to follow, or to stop following, since the listener last read them.
#[derive(Debug, Default)]
struct Changing {
    topics: Mutex<HashMap<Topic, TopicChange>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct TopicChange {
    is_followed: bool,
    /// Was unfollowed at least once since the last change was taken.
    was_ended: bool,
}

/// The subscriptions that a listener has to begin and end because its topics changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) new: Vec<Topic>,
    pub(crate) old: Vec<Topic>,
}

impl Subscription {
    /// Makes a subscription; `listen` starts its listener.
    pub(crate) async fn start<E>(
        listen: impl AsyncFnOnce(Wanted) -> Result<AbortHandle, E>,
    ) -> Result<Self, E> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let has_overflowed = Arc::<AtomicBool>::default();
        let changes = Arc::<Changing>::default();
        let wanted = Wanted {
            changes: changes.clone(),
            followed: BTreeSet::new(),
            teller: Teller {
                notices: sender,
                has_overflowed: has_overflowed.clone(),
            },
        };
        Ok(Self {
            changes,
            notices: Mutex::new(receiver),
            has_overflowed,
            listener: listen(wanted).await?,
        })
    }

    async fn next_notice(&self) -> Notice {
        if self.has_overflowed.swap(false, Ordering::Relaxed) {
            while self.notices.lock().try_recv().is_ok() {}
            return Notice::Reconnected;
        }
        match poll_fn(|context| self.notices.lock().poll_recv(context)).await {
            Some(notice) => notice,
            // The listener's runtime has ended. Waiting clients check again after some time.
            None => pending().await,
        }
    }

    fn change(&self, topic: &Topic, is_followed: bool) {
        let mut topics = self.changes.topics.lock();
        let change = topics.entry(topic.clone()).or_default();
        change.is_followed = is_followed;
        change.was_ended |= !is_followed;
        self.changes.changed.notify_one();
    }
}

impl Notices for Subscription {
    fn follow(&self, topic: &Topic) {
        self.change(topic, true);
    }

    fn unfollow(&self, topic: &Topic) {
        self.change(topic, false);
    }

    fn next(&self) -> BoxFuture<'_, Notice> {
        Box::pin(self.next_notice())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Wanted {
    /// Returns once there are changes to take.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    pub(crate) async fn changed(&self) {
        while self.changes.topics.lock().is_empty() {
            self.changes.changed.notified().await;
        }
    }

    /// Has this called after each change, on the calling runtime, for a listener that awaits nothing: it is dropped
    /// when the task is aborted.
    pub(crate) fn when_changed(&self, call: impl Fn() + Send + 'static) -> AbortHandle {
        let changes = self.changes.clone();
        let calls = async move {
            loop {
                changes.changed.notified().await;
                call();
            }
        };
        tokio::spawn(calls).abort_handle()
    }

    /// Takes the changes since the last time. A topic that is followed again before its end was taken gets its first
    /// notice here: notices of the time between were not read.
    pub(crate) fn take_changes(&mut self) -> Changed {
        let mut changed = Changed::default();
        for (topic, change) in std::mem::take(&mut *self.changes.topics.lock()) {
            if change.is_followed && self.followed.insert(topic.clone()) {
                changed.new.push(topic);
            } else if change.is_followed && change.was_ended {
                self.teller.tell(topic.first_notice());
            } else if !change.is_followed && self.followed.remove(&topic) {
                changed.old.push(topic);
            }
        }
        changed
    }

    /// The topics that are followed, as of the changes that were taken.
    pub(crate) const fn followed(&self) -> &BTreeSet<Topic> {
        &self.followed
    }

    /// Gives a notice to the caller.
    pub(crate) fn tell(&self, notice: Notice) {
        self.teller.tell(notice);
    }
}

impl Teller {
    /// Gives a notice to the caller.
    pub(crate) fn tell(&self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::name::Name;

    fn topic(name: &str) -> Topic {
        Topic::Freed(Name::new(name).expect("a name"))
    }

    async fn started() -> (Subscription, Wanted) {
        let mut ends = None;
        let subscription = Subscription::start(async |wanted| {
            ends = Some(wanted);
            Ok::<_, Infallible>(tokio::spawn(std::future::pending::<()>()).abort_handle())
        });
        let Ok(subscription) = subscription.await;
        (subscription, ends.expect("it was started"))
    }

    #[tokio::test]
    async fn a_listener_is_told_of_each_topic_once() {
        let (subscription, mut wanted) = started().await;
        subscription.follow(&topic("a"));
        subscription.follow(&topic("a"));
        wanted.changed().await;
        let new = vec![topic("a")];
        assert_eq!(wanted.take_changes().new, new);
        subscription.follow(&topic("a"));
        assert_eq!(wanted.take_changes(), Changed::default());
        subscription.unfollow(&topic("a"));
        subscription.unfollow(&topic("b"));
        assert_eq!(wanted.take_changes().old, new);
        assert!(wanted.followed().is_empty());
    }

    #[tokio::test]
    async fn a_topic_that_was_followed_for_a_moment_is_no_change() {
        let (subscription, mut wanted) = started().await;
        subscription.follow(&topic("a"));
        subscription.unfollow(&topic("a"));
        assert_eq!(wanted.take_changes(), Changed::default());
    }

    #[tokio::test]
    async fn a_topic_that_is_followed_again_at_once_gets_a_first_notice() {
        let (subscription, mut wanted) = started().await;
        subscription.follow(&topic("a"));
        wanted.take_changes();
        subscription.unfollow(&topic("a"));
        subscription.follow(&topic("a"));
        assert_eq!(wanted.take_changes(), Changed::default());
        assert_eq!(subscription.next().await, topic("a").first_notice());
    }

    #[tokio::test]
    async fn the_listener_ends_with_its_subscription() {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let subscription = Subscription::start(async |_| {
            let listening = async move {
                let _sender = sender;
                std::future::pending::<()>().await;
            };
            Ok::<_, Infallible>(tokio::spawn(listening).abort_handle())
        });
        let Ok(subscription) = subscription.await;
        drop(subscription);
        assert!(receiver.await.is_err());
    }

    #[tokio::test]
    async fn notices_are_read_in_order_and_too_many_become_one_to_check_everything() {
        let (subscription, wanted) = started().await;
        let freed = |index: usize| topic(&format!("n{index}")).first_notice();
        let next = || subscription.next();
        (0..2).for_each(|index| wanted.tell(freed(index)));
        assert_eq!([next().await, next().await], [freed(0), freed(1)]);
        (0..=QUEUE).for_each(|index| wanted.tell(freed(index)));
        assert_eq!(next().await, Notice::Reconnected);
        wanted.tell(freed(7));
        assert_eq!(next().await, freed(7));
    }
}
