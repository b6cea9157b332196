//! The servers of a store: one, or several of which each serves its slots.
//!
//! ```text
//!   run(slot, call) --> map: slot to place --> server at that place --> answer, which counts if the place is still
//!   right
//!                        ^
//!                        +-- look: the Sentinels or the cluster's nodes are asked in the background; refusals correct
//!                        it
//! ```
//!
//! The clients and the watchdog of a store share one map, so both give up a server at the same moment. Each looks on
//! its own connections, because a runtime that is blocked must not keep the other from looking.

mod calls;
mod look;
mod map;
mod nodes;
mod sentinels;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, select_ok};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

pub(super) use self::calls::Call;
use self::look::{AT_MOST_EVERY, LOOK_EVERY, Looks};
use self::map::Map;
use super::address::{Address, AddressMap};
use super::connection::Connector;
use super::connection::server::Server;
use super::failure::{Failure, FailureCause};
use super::protocol::slot::slot_of;
use super::target::{SentinelGroup, UrlServers};
use crate::clock::{Boottime, Clock, Instant};
use crate::error::ErrorKind;
use crate::name::Name;
use crate::store::Sent;
use crate::store::budget::Budget;
use crate::store::connection::most_telling;
use crate::store::server_url::HostPort;
use crate::telemetry::LaneUse;

/// The pause before a call that no server takes at the moment is tried again.
const PAUSE: Duration = Duration::from_millis(25);

/// The servers of a store.
#[derive(Debug)]
pub(super) struct Fleet {
    /// As the URL names them.
    pub(super) named: UrlServers,
    /// The only server, where there is one. Its map never changes.
    only: Option<Arc<Server>>,
    /// The settings of the connections to any server that others name.
    pub(super) settings: Connector,
    pub(super) address_map: AddressMap,
    purpose: Option<LaneUse>,
    map: Arc<watch::Sender<Map>>,
    looks: Looks,
    servers: Mutex<Servers>,
}

/// Those to which there are connections, the Sentinels among them.
#[derive(Debug, Default)]
struct Servers {
    by_place: HashMap<HostPort, Arc<Server>>,
    is_closed: bool,
}

impl Fleet {
    pub(super) fn new(
        named: UrlServers,
        settings: Connector,
        address_map: AddressMap,
        purpose: Option<LaneUse>,
    ) -> Self {
        let (mut map, mut servers) = (Map::default(), Servers::default());
        let only = matches!(named, UrlServers::One).then(|| {
            let server = Arc::new(Server::new(settings.clone(), purpose));
            let place = settings.address.place.clone();
            map.set_master(place.clone(), 0);
            servers.by_place.insert(place, server.clone());
            server
        });
        Self {
            named,
            only,
            settings,
            address_map,
            purpose,
            map: Arc::new(watch::Sender::new(map)),
            looks: Looks::default(),
            servers: Mutex::new(servers),
        }
    }

    /// Returns the same servers on connections of their own, with the same map. No other user of a pool can take those
    /// connections.
    pub(super) fn beside(&self, purpose: Option<LaneUse>) -> Self {
        let settings = Connector {
            pool: None,
            ..self.settings.clone()
        };
        let (named, address_map) = (self.named.clone(), self.address_map.clone());
        Self {
            map: self.map.clone(),
            ..Self::new(named, settings, address_map, purpose)
        }
    }

    /// Returns the only server, where there is one.
    pub(super) const fn only(&self) -> Option<&Arc<Server>> {
        self.only.as_ref()
    }

    /// Returns whether these are the servers of a cluster: there a script takes names of one slot only.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.named, UrlServers::Cluster(_))
    }

    pub(super) fn shard(&self, name: &Name) -> u32 {
        match self.is_cluster() {
            true => self.map.borrow().shard(slot_of(name.as_str())),
            false => 0,
        }
    }

    /// Notes that a write was carried out. Of several servers the map says who takes writes.
    pub(super) fn note_write(&self) {
        if let Some(server) = self.only() {
            server.connector.note_write();
        }
    }

    /// Makes the connections of the calling runtime now. Returns with the first one that is made: the others go on, and
    /// a server that hangs delays only its own names.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Failure> {
        let budget = Budget::new(self.settings.connect_timeout);
        let servers = self.servers(budget).await?;
        let made = servers.iter().map(|server| server.connect().boxed());
        match servers.is_empty() {
            // The claims say which slots nobody serves.
            true => Ok(()),
            false => select_ok(made).await.map(drop),
        }
    }

    /// Returns each server that grants leases. Looks first if none is known.
    pub(super) async fn servers(
        self: &Arc<Self>,
        budget: Budget,
    ) -> Result<Vec<Arc<Server>>, Failure> {
        self.find(budget).await?;
        let places = self.map.borrow().owners();
        places.iter().map(|place| self.server(place)).collect()
    }

    /// Looks for the servers, while nothing at all is known.
    async fn find(self: &Arc<Self>, budget: Budget) -> Result<(), Failure> {
        if !self.map.borrow().is_known() {
            // Which slot does not matter: any answer fills the map, even if nobody serves this one.
            let found = self.owner(0, budget).await;
            if !self.map.borrow().is_known() {
                found?;
            }
        }
        Ok(())
    }

    /// Returns the address of a server that passes notices on: of a cluster any, since a node passes what is published
    /// to all the others.
    pub(super) async fn listening_address(
        self: &Arc<Self>,
        budget: Budget,
    ) -> Result<Address, Failure> {
        // It may be asked because the last one broke its connection.
        self.look(LOOK_EVERY);
        let servers = self.servers(budget).await?;
        let server = fastrand::choice(&servers).ok_or(FailureCause::Silent)?;
        Ok(server.connector.address.clone())
    }

    /// Returns once there is a better server to listen to than the one at this address, which serves no slot any more.
    pub(super) async fn left(&self, address: &Address) {
        let mut map = self.map.subscribe();
        // The sender is ours.
        let _ = map.wait_for(|map| !map.serves(&address.place)).await;
    }

    pub(super) fn close(&self) {
        let servers = {
            let mut servers = self.servers.lock();
            servers.is_closed = true;
            std::mem::take(&mut servers.by_place)
        };
        servers.values().for_each(|server| server.close());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.servers.lock().is_closed
    }

    /// Returns the server at this place.
    fn server(&self, place: &HostPort) -> Result<Arc<Server>, Failure> {
        self.known_or(place, || Server::new(self.settings.at(place), self.purpose))
    }

    /// Returns the Sentinel at this place.
    pub(super) fn sentinel(
        &self,
        group: &SentinelGroup,
        place: &HostPort,
    ) -> Result<Arc<Server>, Failure> {
        self.known_or(place, || {
            let connector = Connector {
                address: group.address.at(place),
                ..self.settings.at(place)
            };
            Server::new(connector, None)
        })
    }

    /// Returns the server at this place, or else this one, and closes those that serve nothing any more.
    fn known_or(
        &self,
        place: &HostPort,
        new: impl FnOnce() -> Server,
    ) -> Result<Arc<Server>, Failure> {
        let mut servers = self.servers.lock();
        if servers.is_closed {
            return Err(FailureCause::Closed.into());
        }
        if let Some(server) = servers.by_place.get(place) {
            return Ok(server.clone());
        }
        let map = self.map.borrow();
        servers.by_place.retain(|known, server| {
            let is_sentinel =
                matches!(&self.named, UrlServers::Sentinels(group) if group.places.contains(known));
            let is_needed = is_sentinel || map.serves(known) || Arc::strong_count(server) > 1;
            if !is_needed {
                server.close();
            }
            is_needed
        });
        let server = Arc::new(new());
        servers.by_place.insert(place.clone(), server.clone());
        Ok(server)
    }

    /// Returns who serves this slot. If nobody is known, looks.
    async fn owner(self: &Arc<Self>, slot: u16, budget: Budget) -> Result<HostPort, Failure> {
        let mut failure = FailureCause::Silent.into();
        while budget.left() > Duration::ZERO {
            if let Some(place) = self.map.borrow().owner(slot) {
                return Ok(place.clone());
            }
            let before = Boottime.now().before(AT_MOST_EVERY);
            self.look(AT_MOST_EVERY);
            let limit = LOOK_EVERY.min(budget.left());
            match self.looks.ended_since(before, limit).await {
                Some(ended) => match ended.failure {
                    Some(failure) => return Err(failure.before_the_request()),
                    None => failure = unserved(slot),
                },
                None => continue,
            }
            if self.map.borrow().owner(slot).is_none() {
                sleep(PAUSE.min(budget.left())).await;
            }
        }
        Err(failure.before_the_request())
    }

    /// Begins to look for the servers, unless a look began so recently.
    fn look(self: &Arc<Self>, at_most_every: Duration) {
        if let Some(began_at) = self.looks.begin(at_most_every) {
            tokio::spawn(self.clone().look_now(began_at));
        }
    }

    async fn look_now(self: Arc<Self>, began_at: Instant) {
        let failure = self.learn(Budget::new(LOOK_EVERY)).await.err();
        if let Some(failure) = &failure {
            tracing::debug!(error = %failure, "the servers were not found");
        }
        self.looks.end(began_at, failure);
    }

    async fn learn(self: &Arc<Self>, budget: Budget) -> Result<(), Failure> {
        match &self.named {
            UrlServers::One => {}
            UrlServers::Sentinels(group) => {
                let (opinions, failures) = sentinels::ask_all(self, group, budget).await;
                let (sentinels, mut is_settled) = (group.places.len(), false);
                // By the map of this moment: another look may have learned of a failover meanwhile.
                self.change(|map| is_settled = sentinels::settle(&opinions, sentinels, map));
                if !is_settled {
                    return Err(most_telling(failures));
                }
            }
            UrlServers::Cluster(seeds) => {
                let ranges = nodes::look(self, seeds, budget).await?;
                self.change(|map| map.set_ranges(ranges, Boottime.now()));
            }
        }
        Ok(())
    }

    /// Changes the map, and publishes it only if it differs then.
    fn change(&self, change: impl FnOnce(&mut Map)) {
        self.map.send_if_modified(|map| {
            let before = map.clone();
            change(map);
            *map != before
        });
    }
}

/// Makes the failure of a request for a slot that no node of the cluster serves.
fn unserved(slot: u16) -> Failure {
    let words = format!("no node of the cluster serves the slot {slot}");
    Failure::other(ErrorKind::Unavailable, Sent::Never, words)
}
