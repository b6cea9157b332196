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
use self::look::{AT_MOST_EVERY, LOOK_EVERY, Looks, most_telling};
use self::map::{Map, Range};
pub(super) use self::sentinels::{Sentinel, Sentinels};
use super::address::{Address, AddressMap};
use super::connection::Connector;
use super::connection::server::Server;
use super::failure::{Failure, FailureCause};
use super::protocol::slot::slot_of;
use super::target::UrlServers;
use crate::clock::{Boottime, Clock, Instant};
use crate::error::ErrorKind;
use crate::name::Name;
use crate::store::Sent;
use crate::store::budget::Budget;
use crate::store::server_url::HostPort;
use crate::telemetry::LaneUse;

/// The pause before a call that no server takes at the moment is tried again.
const PAUSE: Duration = Duration::from_millis(25);

/// The servers of a store.
#[derive(Debug)]
pub(super) struct Fleet {
    /// As the URL names them.
    named: UrlServers,
    pub(super) discovery: Discovery,
    /// The settings of the connections to any server that others name.
    pub(super) settings: Connector,
    pub(super) address_map: AddressMap,
    purpose: Option<LaneUse>,
    map: Arc<watch::Sender<Map>>,
    looks: Looks,
    servers: Mutex<Servers>,
}

/// The means by which the servers are found.
#[derive(Debug)]
pub(super) enum Discovery {
    /// There is one.
    One(Arc<Server>),
    Sentinels(Sentinels),
    /// The nodes of the cluster to begin with.
    Nodes(Vec<HostPort>),
}

impl Discovery {
    fn of(named: &UrlServers, settings: &Connector, purpose: Option<LaneUse>) -> Self {
        match named {
            UrlServers::One => Self::One(Arc::new(Server::new(settings.clone(), purpose))),
            UrlServers::Cluster(places) => Self::Nodes(places.clone()),
            UrlServers::Sentinels {
                first,
                places,
                name,
            } => {
                let address = (**first).clone();
                let settings = Connector {
                    address,
                    ..settings.clone()
                };
                Self::Sentinels(Sentinels::new(name, places, &settings))
            }
        }
    }
}

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
        Self {
            discovery: Discovery::of(&named, &settings, purpose),
            named,
            settings,
            address_map,
            purpose,
            map: Arc::new(watch::Sender::new(Map::default())),
            looks: Looks::new(),
            servers: Mutex::default(),
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
    pub(super) fn only(&self) -> Option<&Arc<Server>> {
        match &self.discovery {
            Discovery::One(server) => Some(server),
            _ => None,
        }
    }

    /// Returns whether these are the servers of a cluster: there a script takes names of one slot only.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.discovery, Discovery::Nodes(_))
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
        if let Some(server) = self.only() {
            return Ok(vec![server.clone()]);
        }
        let places = self.places(budget).await?;
        places.iter().map(|place| self.server(place)).collect()
    }

    async fn places(self: &Arc<Self>, budget: Budget) -> Result<Vec<HostPort>, Failure> {
        self.find(budget).await?;
        Ok(self.map.borrow().owners())
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
        if let Some(server) = self.only() {
            return Ok(server.connector.address.clone());
        }
        if self.is_closed() {
            return Err(FailureCause::Closed.into());
        }
        // It may be asked because the last one broke its connection.
        self.look(LOOK_EVERY);
        let places = self.places(budget).await?;
        let place = fastrand::choice(&places).ok_or(FailureCause::Silent)?;
        Ok(self.settings.address.at(place))
    }

    /// Returns once there is a better server to listen to than the one at this address, which serves no slot any more.
    pub(super) async fn left(&self, address: &Address) {
        if self.only().is_some() {
            return std::future::pending().await;
        }
        let mut map = self.map.subscribe();
        let is_gone = |map: &Map| !map.serves_any(|place| address.is_at(place));
        // The sender is ours.
        let _ = map.wait_for(is_gone).await;
    }

    pub(super) fn close(&self) {
        let servers = {
            let mut servers = self.servers.lock();
            servers.is_closed = true;
            std::mem::take(&mut servers.by_place)
        };
        servers.values().for_each(|server| server.close());
        match &self.discovery {
            Discovery::One(server) => server.close(),
            Discovery::Sentinels(group) => group.all.iter().for_each(|one| one.server.close()),
            Discovery::Nodes(_) => {}
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.servers.lock().is_closed
    }

    /// Returns the server at this place, and makes its connections if there are none.
    fn server(&self, place: &HostPort) -> Result<Arc<Server>, Failure> {
        let mut servers = self.servers.lock();
        if servers.is_closed {
            return Err(FailureCause::Closed.into());
        }
        if let Some(server) = servers.by_place.get(place) {
            return Ok(server.clone());
        }
        let map = self.map.borrow();
        servers.by_place.retain(|known, server| {
            let is_needed = map.serves(known) || Arc::strong_count(server) > 1;
            if !is_needed {
                server.close();
            }
            is_needed
        });
        let server = Arc::new(Server::new(self.settings.at(place), self.purpose));
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

    /// Looks a little later: a look that began just now may miss what has changed, and the nodes of a cluster learn it
    /// one after the other.
    fn look_later(self: &Arc<Self>) {
        let fleet = self.clone();
        tokio::spawn(async move {
            sleep(LOOK_EVERY).await;
            fleet.look(AT_MOST_EVERY);
        });
    }

    async fn look_now(self: Arc<Self>, began_at: Instant) {
        let failure = self.learn(Budget::new(LOOK_EVERY)).await.err();
        if let Some(failure) = &failure {
            tracing::debug!(error = %failure, "the servers were not found");
        }
        self.looks.end(began_at, failure);
    }

    async fn learn(self: &Arc<Self>, budget: Budget) -> Result<(), Failure> {
        match &self.discovery {
            Discovery::One(_) => {}
            Discovery::Sentinels(sentinels) => {
                let (opinions, failures) = sentinels.ask_all(&self.address_map, budget).await;
                let mut is_settled = false;
                // By the map of this moment: another look may have learned of a failover meanwhile.
                self.change(|map| is_settled = sentinels.settle(&opinions, map));
                if !is_settled {
                    return Err(most_telling(failures));
                }
            }
            Discovery::Nodes(_) => {
                let ranges = self.topology(budget).await?;
                self.change(|map| map.set_ranges(ranges, Boottime.now()));
            }
        }
        Ok(())
    }

    /// Asks which slots each node of the cluster serves, and who its replicas are.
    pub(super) async fn topology(self: &Arc<Self>, budget: Budget) -> Result<Vec<Range>, Failure> {
        match &self.discovery {
            Discovery::Nodes(seeds) => nodes::look(self, seeds, budget).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Changes the map, and tells it only if it differs then. Returns whether it does.
    fn change(&self, change: impl FnOnce(&mut Map)) -> bool {
        self.map.send_if_modified(|map| {
            let before = map.clone();
            change(map);
            *map != before
        })
    }
}

/// Makes the failure of a request for a slot that no node of the cluster serves.
fn unserved(slot: u16) -> Failure {
    let words = format!("no node of the cluster serves the slot {slot}");
    Failure::other(ErrorKind::Unavailable, Sent::Never, words)
}
