//! Notices that names were freed: one subscription for all names, while clients wait. It is on one of the connections
//! for requests: a client that only waits needs no other.
//!
//! A release sends a notice only if the name's row says that a client waits for it. So the listener marks each name
//! before it listens, and again every few seconds: it marks, listens, then checks. A name whose row is locked is marked
//! a moment later, and delays no other. The listener reconnects by itself, subscribes again to all topics, and then
//! gives `Reconnected`.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_postgres::types::Type;

use super::address::Address;
use super::connection::connect::longest;
use super::connection::connections::Connections;
use super::connection::{Arguments, Connector, OpenConnection, Query};
use super::failure::Failure;
use super::reply;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::{Connection, Unconnected};
use crate::store::kit::subscription::{Subscription, Wanted};
use crate::store::{Handover, Notice, Topic};
use crate::telemetry::{ConnectionGauge, ConnectionPurpose};
use crate::token::Token;

/// Number of names that one statement marks.
const AT_ONCE: usize = 256;
/// Interval at which names are marked again and the connection is probed. A mark lasts for three times as long.
const PULSE: Duration = Duration::from_secs(5);
/// The pause before a name is marked again whose row was locked.
const AGAIN: Duration = Duration::from_millis(100);
/// The channel of the connection's own notice: the same for all clients, so that a pooler that keeps what LISTEN has
/// set on a connection of its own keeps one at most.
const OWN_CHANNEL: &str = "lh_own";
/// The longest time that the connection's own notice may take. A transaction pooler drops LISTEN without an error.
const OWN_NOTICE: Duration = Duration::from_secs(2);
/// How long the connection is kept while no client waits.
const UNUSED: Duration = Duration::from_secs(30);
/// The first pause before a connection that broke is made again, and as much again at random: those who hold leases are
/// first at a server that has just started. Each further one is twice as long.
const HOLDERS_FIRST: Duration = Duration::from_millis(500);
/// The longest of them. Meanwhile waiting clients check again after some time.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The task that listens.
struct Listener {
    address: Arc<Address>,
    connections: Arc<Connections>,
    /// The one of them on which it listens.
    lane: Arc<Connection<Connector>>,
    /// The limit of each single request to the server.
    limit: Duration,
    wanted: Wanted,
    /// The names of the topics, with the channels that are listened to; none for a name that was not marked yet.
    channels: BTreeMap<Name, Option<String>>,
    gauge: Arc<ConnectionGauge>,
}

/// A connection that listens, and carries requests.
struct ListeningConnection {
    /// Gone once it was given up.
    open: Weak<OpenConnection>,
    heard: mpsc::Receiver<String>,
}

/// Connects and begins to listen, on the calling runtime. `None`: its own notice does not arrive.
pub(super) async fn subscribe(
    address: &Arc<Address>,
    connections: &Arc<Connections>,
    limit: Duration,
) -> Result<Option<Subscription>, Failure> {
    if connections.is_closed() {
        return Err(Unconnected::Closed.into());
    }
    let started = Subscription::start(async |wanted| {
        let listener = Listener {
            address: address.clone(),
            connections: connections.clone(),
            lane: connections.for_listener(),
            limit,
            wanted,
            channels: BTreeMap::new(),
            gauge: super::counts().connection(Some(ConnectionPurpose::Notices)),
        };
        let connection = listener.connect().await.map_err(Some)?;
        // Without its own notice there is nothing to listen to.
        let connection = connection.ok_or(None)?;
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
            self.gauge.made();
            let is_lost = self.listen(&mut connection).await.is_err();
            drop(connection);
            if is_lost {
                self.gauge.lost();
            } else {
                self.gauge.closed();
                self.wanted.changed().await;
            }
            connection = self.reconnect(is_lost).await;
            if is_lost {
                self.wanted.tell(Notice::Reconnected);
            }
        }
    }

    /// Passes notices on until the connection is unusable, or no client has waited for a while.
    async fn listen(&mut self, connection: &mut ListeningConnection) -> Result<(), Failure> {
        let ListeningConnection { open, heard } = connection;
        let mut pulse = interval(PULSE);
        pulse.tick().await;
        let mut again = interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unused = Duration::ZERO;
        while unused < UNUSED {
            let has_unmarked = self.channels.values().any(Option::is_none);
            tokio::select! {
                message = heard.recv() => self.hear(&message.ok_or(Failure::Silent)?),
                () = self.wanted.changed() => self.adjust(open).await?,
                _ = again.tick(), if has_unmarked => self.follow_and_notify(open).await?,
                _ = pulse.tick() => {
                    self.order(open, "").await?;
                    let names: Vec<_> = self.channels.keys().cloned().collect();
                    // A name that is not marked again now is still marked at the next pulse.
                    self.mark(&names).await;
                    unused = if names.is_empty() { unused + PULSE } else { Duration::ZERO };
                }
            }
        }
        Ok(())
    }

    /// Follows and stops following names as asked.
    async fn adjust(&mut self, open: &Weak<OpenConnection>) -> Result<(), Failure> {
        let new = self.wanted.take_changes().new;
        let followed = self.wanted.followed().iter();
        let wanted: BTreeSet<_> = followed.map(Topic::name).collect();
        let mut old = Vec::new();
        self.channels.retain(|name, channel| {
            let is_wanted = wanted.contains(name);
            if !is_wanted {
                old.extend(channel.take());
            }
            is_wanted
        });
        self.send("UNLISTEN", open, &old).await?;
        for topic in new {
            match self.channels.get(topic.name()) {
                // Another topic of this name is followed already.
                Some(Some(_)) => self.wanted.tell(topic.first_notice()),
                _ => drop(self.channels.insert(topic.name().clone(), None)),
            }
        }
        self.follow_and_notify(open).await
    }

    async fn follow_and_notify(&mut self, open: &Weak<OpenConnection>) -> Result<(), Failure> {
        let new = self.follow(open).await?;
        // Each name may have been freed after its client checked and before the server listened for it.
        for topic in self.wanted.followed() {
            if new.contains(topic.name()) {
                self.wanted.tell(topic.first_notice());
            }
        }
        Ok(())
    }

    /// Marks the names that are not marked, and listens to their channels. A name whose row is locked stays unmarked.
    /// Returns the others.
    async fn follow(&mut self, open: &Weak<OpenConnection>) -> Result<BTreeSet<Name>, Failure> {
        let unmarked = self.channels.iter().filter(|(_, known)| known.is_none());
        let names: Vec<_> = unmarked.map(|(name, _)| name.clone()).collect();
        let channels = self.mark(&names).await;
        let listened: Vec<_> = channels.iter().flatten().cloned().collect();
        self.send("LISTEN", open, &listened).await?;
        let mut new = BTreeSet::new();
        for (name, channel) in names.into_iter().zip(channels) {
            if channel.is_some() {
                self.channels.insert(name.clone(), channel);
                new.insert(name);
            }
        }
        Ok(new)
    }

    /// Subscribes to notices of these names. Returns their channels; none for a name whose row is locked, or that could
    /// not be asked about.
    async fn mark(&self, names: &[Name]) -> Vec<Option<String>> {
        let mut channels = Vec::with_capacity(names.len());
        for part in names.chunks(AT_ONCE) {
            let texts: Vec<_> = part.iter().map(Name::as_str).collect();
            let arguments: Arguments<'_> = &[(&texts, Type::TEXT_ARRAY)];
            let budget = Budget::new(self.limit);
            let marked = self.connections.call("await_1", arguments, budget).await;
            match marked.and_then(|rows| reply::channels(&rows, part.len())) {
                Ok(found) => channels.extend(found),
                Err(failure) => {
                    tracing::debug!(%failure, "names were not marked for notices");
                    channels.extend(part.iter().map(|_| None));
                }
            }
        }
        channels
    }

    /// Sends a statement for each of these channels, whose names need no quotes.
    async fn send(
        &self,
        statement: &str,
        open: &Weak<OpenConnection>,
        channels: &[String],
    ) -> Result<(), Failure> {
        let statements = channels.iter().map(|name| format!("{statement} {name};"));
        match statements.collect::<String>() {
            none if none.is_empty() => Ok(()),
            all => self.order(open, &all).await,
        }
    }

    fn hear(&self, message: &str) {
        if let Some((topic, notice)) = read(message)
            && self.wanted.followed().contains(&topic)
        {
            self.wanted.tell(notice);
        }
    }

    /// Connects, and waits for a notice that it sends itself, unless notices were seen to arrive before.
    async fn connect(&self) -> Result<Option<ListeningConnection>, Failure> {
        let open = self
            .lane
            .open(Budget::new(longest(&self.address, self.limit)));
        let open = open.await?;
        let mut connection = ListeningConnection {
            heard: open.listen(),
            open: Arc::downgrade(&open),
        };
        drop(open);
        let has_notices = &self.connections.room().has_notices;
        if !has_notices.load(Ordering::Relaxed) {
            if !self.hears_itself(&mut connection).await? {
                return Ok(None);
            }
            has_notices.store(true, Ordering::Relaxed);
        }
        Ok(Some(connection))
    }

    /// Returns whether a notice arrives that is sent over another connection: over its own a pooler might hand it back.
    async fn hears_itself(&self, listening: &mut ListeningConnection) -> Result<bool, Failure> {
        let own_channel = [OWN_CHANNEL.into()];
        self.send("LISTEN", &listening.open, &own_channel).await?;
        let own = format!("{:016x}", fastrand::u64(..));
        let query = Query {
            statement: "SELECT pg_catalog.pg_notify($1, $2)",
            arguments: &[(&OWN_CHANNEL, Type::TEXT), (&own, Type::TEXT)],
        };
        let sent = async {
            let other = Connections::connected(&self.address, self.limit).await?;
            other.request(query, Budget::new(self.limit)).await
        };
        let arrived = match sent.await {
            Ok(_) => timeout(OWN_NOTICE, arrives(&mut listening.heard, &own)).await,
            Err(failure) => Ok(Err(failure)),
        };
        // A transaction pooler may send this on another connection of its own, but mostly takes the last one again.
        self.send("UNLISTEN", &listening.open, &own_channel).await?;
        match arrived {
            Ok(arrived) => arrived.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Connects and subscribes again to all topics, however long it takes.
    async fn reconnect(&mut self, mut has_failed: bool) -> ListeningConnection {
        let mut pause = HOLDERS_FIRST;
        loop {
            if has_failed {
                sleep(pause.mul_f64(1.0 + fastrand::f64())).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            has_failed = true;
            if let Ok(Some(connection)) = self.connect().await {
                self.channels
                    .values_mut()
                    .for_each(|channel| *channel = None);
                if self.follow(&connection.open).await.is_ok() {
                    return connection;
                }
            }
        }
    }

    /// Sends statements on the connection that listens.
    async fn order(&self, open: &Weak<OpenConnection>, statements: &str) -> Result<(), Failure> {
        let open = open.upgrade().ok_or(Failure::Ended)?;
        match timeout(self.limit, open.order(statements)).await {
            Ok(sent) => sent,
            Err(_) => {
                self.lane.give_up(&open);
                Err(Failure::Silent)
            }
        }
    }
}

/// Returns once this message is heard. Others may try at the same time.
async fn arrives(heard: &mut mpsc::Receiver<String>, own: &str) -> Result<(), Failure> {
    while heard.recv().await.ok_or(Failure::Silent)? != own {}
    Ok(())
}

/// Parses a message: which topic it is for, and the notice.
fn read(message: &str) -> Option<(Topic, Notice)> {
    let (kind, rest) = message.split_once(' ')?;
    let topic = match kind {
        "f" => Topic::Freed(Name::new(rest).ok()?),
        "l" => {
            let (client, name) = rest.split_once(' ')?;
            let client = ClientId::from_u128(u128::from_str_radix(client, 16).ok()?);
            Topic::Queue(Name::new(name).ok()?, client)
        }
        "g" => {
            let (holder, rest) = rest.split_once(' ')?;
            let (token, name) = rest.split_once(' ')?;
            let (name, holder) = (Name::new(name).ok()?, Holder::from_str(holder).ok()?);
            let token = Token::new(token.parse().ok()?).ok()?;
            let handover = Handover::new(name.clone(), holder, token);
            let topic = Topic::Queue(name, holder.client());
            return Some((topic, Notice::Granted(Box::new(handover))));
        }
        _ => return None,
    };
    let notice = topic.first_notice();
    Some((topic, notice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_for_whom_it_is_meant() {
        let client = ClientId::from_u128(7);
        let name = Name::new("a b/é").expect("a name");
        let place = Topic::Queue(name.clone(), client);
        assert_eq!(
            read("f a b/é"),
            Some((Topic::Freed(name.clone()), Notice::Freed(name.clone())))
        );
        assert_eq!(
            read(&format!("l {client} a b/é")),
            Some((place.clone(), Notice::Freed(name.clone())))
        );
        let holder = Holder::new(client, 9);
        let handover = Handover::new(name, holder, Token::new(250).expect("a token"));
        assert_eq!(
            read(&format!("g {holder} 250 a b/é")),
            Some((place, Notice::Granted(Box::new(handover))))
        );
        for odd in [
            "",
            "f",
            "f ",
            "l x a",
            "z a",
            "l 7 ",
            "g h 250 a",
            "t 7 a",
            &format!("g {holder} 0 a"),
            &format!("g {holder} x a"),
            &format!("g {holder} 250"),
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
