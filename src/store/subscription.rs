//! A subscription that one task serves, on a connection of its own to a server that pushes hints.
//!
//! ```text
//!   follow, unfollow --(changes, notify)--> listener task --(bounded queue)--> next
//! ```
//!
//! Each store brings the listener: how it connects, what it sends to follow a topic, and how it reads a message.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
#[cfg(any(feature = "postgres", feature = "redis"))]
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
#[cfg(any(feature = "postgres", feature = "redis"))]
use tokio::time::sleep;

use super::hints::{Hints, Teller, hints};
use super::{Notice, Notices, Topic};
use crate::future::BoxFuture;

#[cfg(any(feature = "postgres", feature = "redis"))]
/// The first pause before a new connection; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
#[cfg(any(feature = "postgres", feature = "redis"))]
/// The longest pause before a new connection. Meanwhile waiting clients check again after some time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The caller's end. The listener ends when this is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    changes: Arc<Changing>,
    hints: Hints,
    listener: AbortHandle,
}

/// The listener's end: the topics to follow, and where to send hints.
#[derive(Debug)]
pub(super) struct Wanted {
    changes: Arc<Changing>,
    followed: BTreeSet<Topic>,
    teller: Teller,
}

/// The topics to follow, or to stop following, since the listener last read them.
#[derive(Debug, Default)]
struct Changing {
    topics: Mutex<HashMap<Topic, bool>>,
    changed: Notify,
}

/// The subscriptions that a listener has to begin and end because its topics changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) new: Vec<Topic>,
    pub(super) old: Vec<Topic>,
}

#[cfg(any(feature = "postgres", feature = "redis"))]
/// The pauses between attempts to connect.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Subscription {
    /// Makes a subscription, for which `listen` starts the listener.
    pub(super) async fn start<E>(
        listen: impl AsyncFnOnce(Wanted) -> Result<AbortHandle, E>,
    ) -> Result<Self, E> {
        let (teller, hints) = hints();
        let changes = Arc::<Changing>::default();
        let wanted = Wanted {
            changes: changes.clone(),
            followed: BTreeSet::new(),
            teller,
        };
        Ok(Self {
            changes,
            hints,
            listener: listen(wanted).await?,
        })
    }

    fn change(&self, topic: &Topic, is_followed: bool) {
        self.changes.topics().insert(topic.clone(), is_followed);
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
        Box::pin(self.hints.next())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Changing {
    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, bool>> {
        self.topics.lock()
    }
}

impl Wanted {
    /// Returns once there are changes to take.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    pub(super) async fn changed(&self) {
        while self.changes.topics().is_empty() {
            self.changes.changed.notified().await;
        }
    }

    /// Takes the changes since the last time.
    pub(super) fn take_changes(&mut self) -> Changed {
        let mut changed = Changed::default();
        for (topic, is_followed) in std::mem::take(&mut *self.changes.topics()) {
            if is_followed && self.followed.insert(topic.clone()) {
                changed.new.push(topic);
            } else if !is_followed && self.followed.remove(&topic) {
                changed.old.push(topic);
            }
        }
        changed
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    /// The topics that are followed, as of the changes that were taken.
    pub(super) const fn followed(&self) -> &BTreeSet<Topic> {
        &self.followed
    }

    /// Returns the end at which other tasks of the listener give hints to the caller.
    #[cfg(feature = "zookeeper")]
    pub(super) fn teller(&self) -> Teller {
        self.teller.clone()
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    /// Gives a hint to the caller.
    pub(super) fn tell(&self, notice: Notice) {
        self.teller.tell(notice);
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
impl Pauses {
    pub(super) const fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// Passes the next one. Half of it is random, so that clients that lost one server together do not all return
    /// together.
    pub(super) async fn pass(&mut self) {
        sleep(self.0.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
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
}
