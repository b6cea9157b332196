//! Hints that names were freed: one subscription for all names, on a connection of its own.
//!
//! ```text
//!   follow, unfollow --(changes, notify)--> listener task --(bounded queue)--> next
//! ```
//!
//! The listener reconnects by itself, subscribes again to all topics, and then gives `Reconnected`. When the queue is
//! full, hints are dropped, and the next one read is `Reconnected` as well, because it asks for the same: check every
//! name.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::Msg;
use deadpool_redis::redis::aio::{PubSubSink, PubSubStream};
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::address::Address;
use super::budget::Budget;
use super::failure::Failure;
use super::fleet::Ear;
use super::keys::Keys;
use crate::future::BoxFuture;
use crate::store::{Notice, Notices, Topic};
use crate::telemetry::{ConnectionGauge, LaneUse};

/// How many hints may wait to be read. With more, a reconnect is as good: a reader so far behind checks every name.
const QUEUE: usize = 1_024;
/// How many channels one command names, so that a reconnect with many names does not block the server.
const AT_ONCE: usize = 256;
/// How long the connection may be silent before it is probed.
const PULSE: Duration = Duration::from_secs(10);
/// The first pause before a new connection; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause before a new connection. Meanwhile waiting clients check again after some time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The subscription of a client. The listener ends when this is dropped.
pub(super) struct Subscription {
    shared: Arc<Shared>,
    queue: tokio::sync::Mutex<mpsc::Receiver<Notice>>,
    task: AbortHandle,
}

/// The state that a subscription and its listener share.
#[derive(Default)]
struct Shared {
    /// The topics to follow, or to stop following, since the listener last read them.
    changes: Mutex<HashMap<Topic, bool>>,
    changed: Notify,
    has_overflowed: AtomicBool,
}

/// The task that listens.
struct SubscriptionTask {
    ear: Ear,
    keys: Keys,
    /// The limit of each single request to the server.
    limit: Duration,
    shared: Arc<Shared>,
    queue: mpsc::Sender<Notice>,
    followed: BTreeSet<Topic>,
    gauge: Arc<ConnectionGauge>,
}

/// A connection that listens.
struct Connection {
    /// The server that it listens to.
    address: Address,
    sink: PubSubSink,
    stream: PubSubStream,
}

/// Connects and begins to listen, on the calling runtime.
///
/// # Errors
/// `Denied` if this user may not subscribe: then a client can wait without notices.
pub(super) async fn subscribe(
    ear: Ear,
    keys: &Keys,
    limit: Duration,
) -> Result<Subscription, Failure> {
    let shared = Arc::<Shared>::default();
    let (sender, receiver) = mpsc::channel(QUEUE);
    let task = SubscriptionTask {
        ear,
        keys: keys.clone(),
        limit,
        shared: shared.clone(),
        queue: sender,
        followed: BTreeSet::new(),
        gauge: super::counts().connection(Some(LaneUse::Notices)),
    };
    let connection = task.connect().await?;
    task.gauge.made();
    Ok(Subscription {
        shared,
        queue: tokio::sync::Mutex::new(receiver),
        task: tokio::spawn(task.run(connection)).abort_handle(),
    })
}

impl Subscription {
    fn change(&self, topic: &Topic, is_followed: bool) {
        self.shared.changes().insert(topic.clone(), is_followed);
        self.shared.changed.notify_one();
    }

    async fn next_notice(&self) -> Notice {
        let mut queue = self.queue.lock().await;
        if self.shared.has_overflowed.swap(false, Ordering::Relaxed) {
            while queue.try_recv().is_ok() {}
            return Notice::Reconnected;
        }
        match queue.recv().await {
            Some(notice) => notice,
            // The listener's runtime has ended. Waiting clients check again after some time.
            None => std::future::pending().await,
        }
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

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("has_overflowed", &self.shared.has_overflowed)
            .finish_non_exhaustive()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn changes(&self) -> std::sync::MutexGuard<'_, HashMap<Topic, bool>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubscriptionTask {
    async fn run(mut self, mut connection: Connection) {
        loop {
            self.listen(&mut connection).await;
            self.gauge.lost();
            connection = self.reconnect().await;
            self.gauge.made();
            self.tell(Notice::Reconnected);
        }
    }

    /// Passes hints on until the connection is unusable.
    async fn listen(&mut self, connection: &mut Connection) {
        loop {
            let is_well = tokio::select! {
                message = connection.stream.next() => match message {
                    Some(message) => {
                        if let Some(notice) = self.read(&message) {
                            self.tell(notice);
                        }
                        true
                    }
                    None => false,
                },
                () = self.shared.changed.notified() => self.adjust(&mut connection.sink).await.is_ok(),
                () = self.ear.moved(&connection.address) => false,
                () = sleep(PULSE) => {
                    let pulse = timeout(self.limit, connection.sink.ping::<()>()).await;
                    // An answer other than a pong is a sign of life too.
                    pulse.is_ok_and(|pong| !pong.is_err_and(|error| error.is_unrecoverable_error()))
                }
            };
            if !is_well {
                return;
            }
        }
    }

    /// Follows and stops following topics as asked.
    async fn adjust(&mut self, sink: &mut PubSubSink) -> Result<(), Failure> {
        let changes = std::mem::take(&mut *self.shared.changes());
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for (topic, is_followed) in changes {
            if is_followed && self.followed.insert(topic.clone()) {
                new.push(topic);
            } else if !is_followed && self.followed.remove(&topic) {
                old.push(self.channel(&topic));
            }
        }
        for channels in old.chunks(AT_ONCE) {
            self.within_limit(sink.unsubscribe(channels)).await?;
        }
        self.follow(sink, &new).await?;
        // Each name may have been freed after its client checked and before the server listened for it.
        new.iter().for_each(|topic| self.tell(topic.first_hint()));
        Ok(())
    }

    /// If this user may not follow a name, its clients check again after some time instead.
    async fn follow(&self, sink: &mut PubSubSink, topics: &[Topic]) -> Result<(), Failure> {
        let channels: Vec<_> = topics.iter().map(|topic| self.channel(topic)).collect();
        for channels in channels.chunks(AT_ONCE) {
            match self.within_limit(sink.subscribe(channels)).await {
                // It may be refused because of one of them.
                Err(Failure::Refused { .. }) => {
                    for channel in channels {
                        match self.within_limit(sink.subscribe(channel)).await {
                            Ok(()) | Err(Failure::Refused { .. }) => {}
                            Err(failure) => return Err(failure),
                        }
                    }
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn channel(&self, topic: &Topic) -> String {
        match topic {
            Topic::Freed(name) => self.keys.channel(name),
            Topic::Turn(name, client) => self.keys.turn_channel(name, *client),
        }
    }

    fn read(&self, message: &Msg) -> Option<Notice> {
        let channel = message.get_channel_name();
        if let Some(name) = self.keys.name_of_channel(channel) {
            return Some(Notice::Freed(name));
        }
        let name = self.keys.name_of_turn_channel(channel)?;
        let payload: String = message.get_payload().ok()?;
        match payload.strip_prefix("next ") {
            None => Some(Notice::Turn(name)),
            Some(ms) => Some(Notice::Next(name, Duration::from_millis(ms.parse().ok()?))),
        }
    }

    /// Connects, and subscribes to a channel that no client uses, to find out now whether this user may subscribe.
    async fn connect(&self) -> Result<Connection, Failure> {
        let address = self.ear.address(Budget::new(self.limit)).await?;
        let connection = match timeout(self.limit, address.subscribe()).await {
            Ok(connection) => connection?,
            Err(_) => return Err(Failure::Silent),
        };
        let (mut sink, stream) = connection.split();
        let channel = self.keys.probe_channel();
        self.within_limit(sink.subscribe(channel)).await?;
        Ok(Connection {
            address,
            sink,
            stream,
        })
    }

    /// Connects and subscribes again to all topics, however long it takes.
    async fn reconnect(&mut self) -> Connection {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Ok(mut connection) = self.connect().await {
                let followed: Vec<_> = self.followed.iter().cloned().collect();
                if self.follow(&mut connection.sink, &followed).await.is_ok() {
                    return connection;
                }
            }
            // Half of the pause is random, so that clients that lost one server together do not all return together.
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn within_limit<T>(
        &self,
        request: impl Future<Output = Result<T, deadpool_redis::redis::RedisError>>,
    ) -> Result<T, Failure> {
        match timeout(self.limit, request).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Failure::Silent),
        }
    }

    fn tell(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            self.shared.has_overflowed.store(true, Ordering::Relaxed);
        }
    }
}
