//! Notices that names were freed or granted: one subscription for all names, on a connection of its own.
//!
//! The listener reconnects by itself, subscribes again to all topics, and then gives `Reconnected`.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::Msg;
use deadpool_redis::redis::aio::{PubSub, PubSubSink, PubSubStream};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::Redis;
use super::address::Address;
use super::failure::{Failure, FailureCause};
use super::fleet::Fleet;
use super::protocol::keys::Keys;
use crate::name::Name;
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::is_transient;
use crate::store::kit::connection::pauses::Pauses;
use crate::store::kit::subscription::{Subscription, Wanted};
use crate::store::{Handover, Notice, Topic};
use crate::telemetry::{ConnectionGauge, ConnectionPurpose, Sink};

/// Maximum number of channels per command, so that a reconnect with many names does not block the server.
const AT_ONCE: usize = 256;
/// How long the connection may be silent before it is probed.
const PULSE: Duration = Duration::from_secs(10);

/// The task that listens.
pub(super) struct Listener {
    fleet: Arc<Fleet>,
    keys: Keys,
    /// Time limit of each request to the server.
    limit: Duration,
    gauge: Arc<ConnectionGauge>,
    wanted: Wanted,
}

/// A connection that listens.
struct ListeningConnection {
    /// The server that it listens to.
    address: Address,
    /// Number of times that the address had led to another server before.
    changes: u32,
    sink: PubSubSink,
    stream: PubSubStream,
}

impl Listener {
    /// Connects and begins to listen, on the calling runtime. If the server `may_be_down`, it begins once it can.
    ///
    /// # Errors
    /// `Denied` if this user may not subscribe: then a client can wait without notices.
    pub(super) async fn subscribe(
        redis: &Redis,
        may_be_down: bool,
    ) -> Result<Subscription, Failure> {
        Subscription::start(async |wanted| {
            let settings = &redis.fleet.settings;
            let counts = Sink::of_store(settings.program.kind);
            let listener = Self {
                fleet: redis.fleet.clone(),
                keys: redis.keys.clone(),
                limit: settings.connect_timeout,
                gauge: counts.connection(Some(ConnectionPurpose::Notices)),
                wanted,
            };
            let connection = match listener.connect().await {
                Err(failure) if may_be_down && is_transient(&failure) => None,
                connection => Some(connection?),
            };
            Ok(tokio::spawn(listener.run(connection)).abort_handle())
        })
        .await
    }

    async fn run(mut self, mut connection: Option<ListeningConnection>) {
        loop {
            let mut listening = match connection.take() {
                Some(first) => first,
                None => {
                    let again = self.reconnect().await;
                    self.wanted.tell(Notice::Reconnected);
                    again
                }
            };
            self.gauge.made();
            self.listen(&mut listening).await;
            self.gauge.lost();
        }
    }

    /// Passes notices on until the connection is unusable.
    async fn listen(&mut self, connection: &mut ListeningConnection) {
        loop {
            let is_well = tokio::select! {
                message = connection.stream.next() => match message {
                    Some(message) => {
                        if let Some(notice) = self.read(&message) {
                            self.wanted.tell(notice);
                        }
                        true
                    }
                    None => false,
                },
                () = self.wanted.changed() => self.adjust(&mut connection.sink).await.is_ok(),
                () = self.fleet.left(&connection.address) => false,
                () = self.fleet.settings.changed(connection.changes) => false,
                () = sleep(PULSE) => {
                    let pulse = timeout(self.limit, connection.sink.ping::<()>()).await;
                    // Answers other than a pong are signs of life, too.
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
        let changed = self.wanted.take_changes();
        let old: Vec<_> = changed
            .old
            .iter()
            .map(|topic| self.channel(topic))
            .collect();
        for channels in old.chunks(AT_ONCE) {
            self.within_limit(sink.unsubscribe(channels)).await?;
        }
        // Each name may have been freed after its client checked and before the server listened for it.
        for topic in self.follow(sink, &changed.new).await? {
            self.wanted.tell(topic.first_notice());
        }
        Ok(())
    }

    /// Returns the topics that the server listens for now: if this user may not follow a name, its clients check again
    /// after some time instead.
    async fn follow<'a>(
        &self,
        sink: &mut PubSubSink,
        topics: &'a [Topic],
    ) -> Result<Vec<&'a Topic>, Failure> {
        let mut followed = Vec::with_capacity(topics.len());
        for topics in topics.chunks(AT_ONCE) {
            let channels: Vec<_> = topics.iter().map(|topic| self.channel(topic)).collect();
            match self.within_limit(sink.subscribe(&channels)).await {
                // It may be refused because of one of them.
                Err(failure) if is_refused(&failure) => {
                    for (topic, channel) in topics.iter().zip(channels) {
                        match self.within_limit(sink.subscribe(channel)).await {
                            Err(failure) if is_refused(&failure) => {}
                            outcome => {
                                outcome?;
                                followed.push(topic);
                            }
                        }
                    }
                }
                outcome => {
                    outcome?;
                    followed.extend(topics);
                }
            }
        }
        Ok(followed)
    }

    fn channel(&self, topic: &Topic) -> String {
        match topic {
            Topic::Freed(name) => self.keys.channel(name),
            Topic::Queue(name, client) => self.keys.granted_channel(name, *client),
        }
    }

    fn read(&self, message: &Msg) -> Option<Notice> {
        let channel = message.get_channel_name();
        if let Some(name) = self.keys.name_of_channel(channel) {
            return Some(Notice::Freed(name));
        }
        let name = self.keys.name_of_granted_channel(channel)?;
        let payload: String = message.get_payload().ok()?;
        // A message that cannot be read makes the client poll, too.
        let granted = read_grant(&name, &payload).map(Box::new);
        Some(granted.map_or(Notice::Freed(name), Notice::Granted))
    }

    /// Connects, and subscribes to a channel that no client uses, to find out now whether this user may subscribe.
    async fn connect(&self) -> Result<ListeningConnection, Failure> {
        let budget = Budget::new(self.limit);
        let changes = *self.fleet.settings.changes.borrow();
        let connector = self.fleet.listening(budget).await?;
        let address = connector.address.clone();
        let open = || self.within_limit(address.open::<PubSub>());
        let opened = connector.make_in_turn(open).await;
        let (mut sink, stream) = opened.map_err(|failure| connector.named(failure))?.split();
        let channel = self.keys.probe_channel();
        self.within_limit(sink.subscribe(channel)).await?;
        Ok(ListeningConnection {
            address,
            changes,
            sink,
            stream,
        })
    }

    /// Connects and subscribes again to all topics, however long it takes.
    async fn reconnect(&mut self) -> ListeningConnection {
        let mut pauses = Pauses::new();
        loop {
            if let Ok(mut connection) = self.connect().await {
                let followed: Vec<_> = self.wanted.followed().iter().cloned().collect();
                if self.follow(&mut connection.sink, &followed).await.is_ok() {
                    return connection;
                }
            }
            pauses.pass().await;
        }
    }

    async fn within_limit<T, E: Into<Failure>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        match timeout(self.limit, request).await {
            Ok(outcome) => outcome.map_err(Into::into),
            Err(_) => Err(FailureCause::Silent.into()),
        }
    }
}

/// Reads the notice of a grant: `<holder> <token>`.
fn read_grant(name: &Name, payload: &str) -> Option<Handover> {
    let (holder, token) = payload.split_once(' ')?;
    let (holder, token) = (holder.parse().ok()?, token.parse().ok()?);
    Some(Handover::new(name.clone(), holder, token))
}

fn is_refused(failure: &Failure) -> bool {
    matches!(failure.cause, FailureCause::Refused { .. })
}
