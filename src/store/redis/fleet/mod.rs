//! The servers of a store: one server, or several with slots of their own.
//!
//! ```text
//!   run(slot, call) --> map: slot to endpoint --> server --> answer, which counts if the endpoint is still right
//!                        ^
//!                        +-- discovery asks the Sentinels or cluster nodes in the background; refusals correct it
//! ```
//!
//! The clients and the watchdog of a store share one map, so both give up a server at the same moment. Each discovers
//! the servers on its own connections, because a runtime that is blocked must not keep the other from it.

mod calls;
mod discovery;
mod map;
mod nodes;
mod sentinels;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::{FutureExt as _, select_ok};
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::watch;

pub(super) use self::calls::{Call, OF_MANY, OF_ONE};
use self::discovery::{DISCOVER_EVERY, SharedDiscovery};
use self::map::Map;
use super::address::{Address, AddressMap};
use super::connection::Connector;
use super::connection::server::Server;
use super::failure::{Failure, FailureCause};
use super::target::{SentinelGroup, UrlServers};
use crate::store::kit::budget::Budget;
use crate::store::kit::server_url::HostPort;
use crate::telemetry::ConnectionPurpose;

/// The servers of a store.
pub(super) struct Fleet {
    /// As the URL names them.
    pub(super) named: UrlServers,
    /// The settings of the connections to any server.
    pub(super) settings: Connector,
    pub(super) address_map: AddressMap,
    purpose: Option<ConnectionPurpose>,
    map: Arc<watch::Sender<Map>>,
    last_discovery: Mutex<Option<SharedDiscovery>>,
    /// The last finished discovery got an answer.
    has_answer: AtomicBool,
    servers: Mutex<Servers>,
}

/// The servers with connections, including Sentinels.
#[derive(Default)]
struct Servers {
    by_endpoint: HashMap<(HostPort, runtime::Id), Arc<Server>>,
    is_closed: bool,
}

impl Fleet {
    pub(super) fn new(
        named: UrlServers,
        settings: Connector,
        address_map: AddressMap,
        purpose: Option<ConnectionPurpose>,
    ) -> Self {
        let mut map = Map::default();
        if let UrlServers::One = named {
            map.set_master(settings.address.endpoint.clone(), 0);
        }
        Self {
            named,
            settings,
            address_map,
            purpose,
            map: Arc::new(watch::Sender::new(map)),
            last_discovery: Mutex::default(),
            has_answer: AtomicBool::new(true),
            servers: Mutex::default(),
        }
    }

    /// Returns the same servers on separate connections, with the same map. No other user of a pool can take those
    /// connections.
    pub(super) fn beside(&self, purpose: Option<ConnectionPurpose>) -> Self {
        let settings = Connector {
            pool: None,
            is_of_watchdog: purpose == Some(ConnectionPurpose::Watchdog),
            ..self.settings.clone()
        };
        let (named, address_map) = (self.named.clone(), self.address_map.clone());
        Self {
            map: self.map.clone(),
            ..Self::new(named, settings, address_map, purpose)
        }
    }

    /// Returns the first server that the URL names.
    pub(super) fn first(&self) -> Result<Arc<Server>, Failure> {
        self.server(&self.settings.address.endpoint)
    }

    /// Returns whether these are the servers of a cluster: there a script takes names of one slot only.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.named, UrlServers::Cluster(_))
    }

    /// Returns whether Sentinels say which of the servers counts.
    pub(super) fn has_sentinels(&self) -> bool {
        matches!(self.named, UrlServers::Sentinels(_))
    }

    pub(super) fn shard_of(&self, slot: u16) -> u32 {
        match self.is_cluster() {
            true => self.map.borrow().shard(slot),
            false => 0,
        }
    }

    /// Makes the connections of the calling runtime now. Returns with the first one that is made: the others go on, and
    /// a server that hangs delays only its own names.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Failure> {
        let budget = Budget::new(self.settings.connect_timeout);
        let servers = self.servers(budget).await?;
        let made = servers.iter().map(|server| server.connect(budget).boxed());
        match servers.is_empty() {
            // The claims report slots without a server.
            true => Ok(()),
            false => select_ok(made).await.map(drop),
        }
    }

    /// Returns each server that grants leases. Discovers them first if none is known.
    pub(super) async fn servers(
        self: &Arc<Self>,
        budget: Budget,
    ) -> Result<Vec<Arc<Server>>, Failure> {
        self.find(budget).await?;
        let endpoints = self.map.borrow().owners();
        endpoints
            .iter()
            .map(|endpoint| self.server(endpoint))
            .collect()
    }

    /// Returns a server that passes on notices: in a cluster any, because a node passes what is published to all
    /// others.
    pub(super) async fn listening(self: &Arc<Self>, budget: Budget) -> Result<Connector, Failure> {
        // The caller may ask because the last server broke its connection.
        self.discover(DISCOVER_EVERY);
        let servers = self.servers(budget).await?;
        let server = fastrand::choice(&servers).ok_or(FailureCause::Silent)?;
        Ok(server.connector().clone())
    }

    /// Returns once there is a better server to listen to than the one at this address, which serves no slot any more.
    pub(super) async fn left(&self, address: &Address) {
        let mut map = self.map.subscribe();
        // This store owns the sender.
        let _ = map.wait_for(|map| !map.serves(&address.endpoint)).await;
    }

    pub(super) fn close(&self) {
        let servers = {
            let mut servers = self.servers.lock();
            servers.is_closed = true;
            std::mem::take(&mut servers.by_endpoint)
        };
        for server in servers.into_values() {
            server.close();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.servers.lock().is_closed
    }

    /// Returns the server at this endpoint.
    fn server(&self, endpoint: &HostPort) -> Result<Arc<Server>, Failure> {
        self.known_or(endpoint, || {
            Server::at(self.settings.at(endpoint), self.purpose)
        })
    }

    /// Returns the Sentinel at this endpoint.
    pub(super) fn sentinel(
        &self,
        group: &SentinelGroup,
        endpoint: &HostPort,
    ) -> Result<Arc<Server>, Failure> {
        self.known_or(endpoint, || {
            let connector = Connector {
                address: group.address.at(endpoint),
                is_of_watchdog: false,
                refusals: Arc::default(),
                ..self.settings.clone()
            };
            Server::at(connector, None)
        })
    }

    /// Returns the server at this endpoint, as the calling runtime uses it, or else this one. Closes servers that no
    /// longer serve any slot, and forgets those of other runtimes that are down, because these runtimes may have ended.
    fn known_or(
        &self,
        endpoint: &HostPort,
        new: impl FnOnce() -> Server,
    ) -> Result<Arc<Server>, Failure> {
        let mut servers = self.servers.lock();
        if servers.is_closed {
            return Err(FailureCause::Closed.into());
        }
        let key = (endpoint.clone(), Handle::current().id());
        if let Some(server) = servers.by_endpoint.get(&key) {
            return Ok(server.clone());
        }
        let map = self.map.borrow();
        servers.by_endpoint.retain(|(known, runtime), server| {
            let is_sentinel =
                matches!(&self.named, UrlServers::Sentinels(group) if group.endpoints.contains(known));
            let has_ended = *runtime != key.1 && server.is_down();
            let is_needed = (is_sentinel || map.serves(known)) && !has_ended;
            let is_kept = is_needed || Arc::strong_count(server) > 1;
            if !is_kept {
                server.close();
            }
            is_kept
        });
        let server = Arc::new(new());
        servers.by_endpoint.insert(key, server.clone());
        Ok(server)
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
