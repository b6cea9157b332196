//! Hints that names were freed: one subscription for all names, on a connection of its own, while clients wait.
//!
//! A release sends a notice only if the name's row says that a client waits for it. So the listener marks each name
//! before it listens, and again every few seconds: it marks, listens, then checks. It reconnects by itself, subscribes
//! again to all topics, and then gives `Reconnected`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use super::address::Address;
use super::failure::Failure;
use super::lane::Query;
use super::lanes::Lanes;
use super::schema::Statements;
use super::{REPLACE_EVERY, reply};
use crate::clock::{Boottime, Clock};
use crate::holder::ClientId;
use crate::name::Name;
use crate::store::subscription::{Pauses, Subscription, Wanted};
use crate::store::{Notice, Topic};
use crate::telemetry::{ConnectionGauge, LaneUse};

/// How many messages of the server may wait to be read.
const HEARD: usize = 1_024;
/// How many names one statement marks.
const AT_ONCE: usize = 256;
/// How often names are marked again, and the connection is probed. A mark lasts for three times as long.
const PULSE: Duration = Duration::from_secs(5);
/// How long the connection's own notice may take. A transaction pooler drops LISTEN without an error.
const OWN_NOTICE: Duration = Duration::from_secs(2);
/// How long the connection is kept while no client waits.
const UNUSED: Duration = Duration::from_secs(30);

/// The task that listens.
struct Listener {
    address: Arc<Address>,
    statements: Arc<Statements>,
    /// For all requests but listening.
    lanes: Arc<Lanes>,
    /// The limit of each single request to the server.
    limit: Duration,
    wanted: Wanted,
    /// The names of the topics, with their channels.
    channels: BTreeMap<Name, String>,
    gauge: Arc<ConnectionGauge>,
}

/// A connection that listens. The task that drives it ends with it.
struct ListeningConnection {
    client: Client,
    heard: mpsc::Receiver<String>,
}

/// Connects and begins to listen, on the calling runtime. `None`: its own notice does not arrive.
pub(super) async fn subscribe(
    address: &Arc<Address>,
    statements: &Arc<Statements>,
    lanes: &Arc<Lanes>,
    limit: Duration,
) -> Result<Option<Subscription>, Failure> {
    if lanes.is_closed() {
        return Err(Failure::Closed);
    }
    let started = Subscription::start(async |wanted| {
        let listener = Listener {
            address: address.clone(),
            statements: statements.clone(),
            lanes: lanes.clone(),
            limit,
            wanted,
            channels: BTreeMap::new(),
            gauge: super::counts().connection(Some(LaneUse::Notices)),
        };
        let connection = listener.connect().await.map_err(Some)?;
        // Without its own notice there is nothing to listen to.
        let connection = connection.ok_or(None)?;
        listener.gauge.made();
        Ok(tokio::spawn(listener.run(connection)).abort_handle())
    });
    match started.await {
        Ok(subscription) => Ok(Some(subscription)),
        Err(None) => Ok(None),
        Err(Some(failure)) => Err(failure),
    }
}

impl Listener {
    async fn run(mut self, mut connection: ListeningConnection) {
        loop {
            if self.listen(&mut connection).await.is_ok() {
                // No client waits any more: the connection is closed until one does.
                drop(connection);
                self.gauge.closed();
                self.wanted.changed().await;
                connection = self.reconnect().await;
                self.gauge.made();
            } else {
                self.gauge.lost();
                connection = self.reconnect().await;
                self.gauge.made();
                self.wanted.tell(Notice::Reconnected);
            }
        }
    }

    /// Passes hints on until the connection is unusable, or no client has waited for a while.
    async fn listen(&mut self, connection: &mut ListeningConnection) -> Result<(), Failure> {
        let mut pulse = interval(PULSE);
        pulse.tick().await;
        let mut unused = Duration::ZERO;
        loop {
            tokio::select! {
                message = connection.heard.recv() => {
                    let message = message.ok_or(Failure::Silent)?;
                    self.hear(&message);
                }
                () = self.wanted.changed() => self.adjust(&connection.client).await?,
                _ = pulse.tick() => {
                    self.within_limit(connection.client.simple_query("")).await?;
                    let names: Vec<_> = self.channels.keys().cloned().collect();
                    self.mark(&names).await?;
                    unused = if names.is_empty() { unused + PULSE } else { Duration::ZERO };
                }
            }
            if unused >= UNUSED {
                return Ok(());
            }
        }
    }

    /// Follows and stops following names as asked.
    async fn adjust(&mut self, client: &Client) -> Result<(), Failure> {
        let new = self.wanted.take_changes().new;
        let followed = self.wanted.followed().iter();
        let wanted: BTreeSet<_> = followed.map(|topic| topic.name()).collect();
        let mut old = Vec::new();
        self.channels.retain(|name, channel| {
            let is_wanted = wanted.contains(name);
            if !is_wanted {
                old.push(format!("UNLISTEN {channel}"));
            }
            is_wanted
        });
        if !old.is_empty() {
            self.within_limit(client.batch_execute(&old.join(";")))
                .await?;
        }
        let names: BTreeSet<_> = new.iter().map(|topic| topic.name().clone()).collect();
        self.follow(client, names).await?;
        // Each name may have been freed after its client checked and before the server listened for it.
        new.into_iter()
            .for_each(|topic| self.wanted.tell(topic.first_hint()));
        Ok(())
    }

    /// Marks names and listens to their channels.
    async fn follow(&mut self, client: &Client, names: BTreeSet<Name>) -> Result<(), Failure> {
        let names: Vec<_> = names.into_iter().collect();
        let channels = self.mark(&names).await?;
        // The channels are hexadecimal digits, which need no quotes.
        let listen: Vec<_> = channels
            .iter()
            .map(|channel| format!("LISTEN {channel}"))
            .collect();
        if !listen.is_empty() {
            self.within_limit(client.batch_execute(&listen.join(";")))
                .await?;
        }
        self.channels.extend(names.into_iter().zip(channels));
        Ok(())
    }

    /// Subscribes to notices of these names. Returns their channels.
    async fn mark(&self, names: &[Name]) -> Result<Vec<String>, Failure> {
        let mut channels = Vec::with_capacity(names.len());
        for part in names.chunks(AT_ONCE) {
            let texts: Vec<_> = part.iter().map(Name::as_str).collect();
            let call = Query {
                statement: &self.statements.wait,
                arguments: &[(&texts, Type::TEXT_ARRAY)],
            };
            let until = Boottime.now().after(self.limit);
            let rows = self.lanes.request(call, until, REPLACE_EVERY).await?;
            channels.extend(reply::channels(&rows, part.len())?);
        }
        Ok(channels)
    }

    fn hear(&self, message: &str) {
        if let Some((topic, notice)) = read(message)
            && self.wanted.followed().contains(&topic)
        {
            self.wanted.tell(notice);
        }
    }

    /// Connects, and waits for a notice that it sends itself.
    async fn connect(&self) -> Result<Option<ListeningConnection>, Failure> {
        let has_others = self.address.has_several_hosts();
        let config = self.address.config(self.limit);
        let handshake = self.address.handshake().await?;
        let made = timeout(self.limit, config.connect(handshake)).await;
        let made = made.map_err(|_| Failure::NotReached)?;
        let (client, mut connection) = made.map_err(|error| Failure::unmade(&error, has_others))?;
        let (sender, mut heard) = mpsc::channel(HEARD);
        // The task ends with the client, or when its receiver is dropped.
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message
                    && sender.send(notification.payload().into()).await.is_err()
                {
                    return;
                }
            }
        });
        let own = format!("lh_own_{:016x}", fastrand::u64(..));
        self.within_limit(client.batch_execute(&format!("LISTEN {own}")))
            .await?;
        let call = Query {
            statement: "SELECT pg_notify($1, $1)",
            arguments: &[(&own, Type::TEXT)],
        };
        let until = Boottime.now().after(self.limit);
        self.lanes.request(call, until, REPLACE_EVERY).await?;
        match timeout(OWN_NOTICE, heard.recv()).await {
            Ok(Some(payload)) if payload == own => {}
            Ok(None) => return Err(Failure::Silent),
            _ => return Ok(None),
        }
        self.within_limit(client.batch_execute(&format!("UNLISTEN {own}")))
            .await?;
        Ok(Some(ListeningConnection { client, heard }))
    }

    /// Connects and subscribes again to all topics, however long it takes.
    async fn reconnect(&mut self) -> ListeningConnection {
        let mut pauses = Pauses::new();
        loop {
            if let Ok(Some(connection)) = self.connect().await {
                let names = self
                    .wanted
                    .followed()
                    .iter()
                    .map(|topic| topic.name().clone())
                    .collect();
                if self.follow(&connection.client, names).await.is_ok() {
                    return connection;
                }
            }
            pauses.pass().await;
        }
    }

    async fn within_limit<T>(
        &self,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        match timeout(self.limit, request).await {
            Ok(outcome) => outcome.map_err(|error| Failure::of_request(&error, false, false)),
            Err(_) => Err(Failure::Silent),
        }
    }
}

/// Parses a message of `tell_1`: which topic it is for, and the hint.
fn read(message: &str) -> Option<(Topic, Notice)> {
    let (kind, rest) = message.split_once(' ')?;
    if kind == "f" {
        let topic = Topic::Freed(Name::new(rest).ok()?);
        let notice = topic.first_hint();
        return Some((topic, notice));
    }
    let (client, rest) = rest.split_once(' ')?;
    let client = ClientId::from_u128(u128::from_str_radix(client, 16).ok()?);
    match kind {
        "t" => {
            let topic = Topic::Turn(Name::new(rest).ok()?, client);
            let notice = topic.first_hint();
            Some((topic, notice))
        }
        "n" => {
            let (ms, name) = rest.split_once(' ')?;
            let left = Duration::from_millis(ms.parse().ok()?);
            let name = Name::new(name).ok()?;
            Some((Topic::Turn(name.clone(), client), Notice::Next(name, left)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_for_whom_it_is_meant() {
        let client = ClientId::from_u128(7);
        let name = Name::new("a b/é").expect("a name");
        let turns = Topic::Turn(name.clone(), client);
        assert_eq!(
            read("f a b/é"),
            Some((Topic::Freed(name.clone()), Notice::Freed(name.clone())))
        );
        assert_eq!(
            read(&format!("t {client} a b/é")),
            Some((turns.clone(), Notice::Turn(name.clone())))
        );
        assert_eq!(
            read(&format!("n {client} 250 a b/é")),
            Some((turns, Notice::Next(name, Duration::from_millis(250))))
        );
        for odd in ["", "f", "f ", "t x a", "n x 1 a", "z a", "n 7 a"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
