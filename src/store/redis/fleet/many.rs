//! Several servers: each call goes to the one that serves its slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::Value;
use futures_util::future::{FutureExt as _, select_ok};
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::address::Address;
use super::super::connection::budget::Budget;
use super::super::connection::connections::Connections;
use super::super::connection::open::Request;
use super::super::connection::server::Server;
use super::super::failure::{Failure, Redirect};
use super::look::{AT_MOST_EVERY, LOOK_EVERY, Looks};
use super::map::{self, HostPort, Map, Range};
use super::nodes;
use super::sentinels::Sentinels;
use super::template::Template;
use crate::clock::{Boottime, Clock, Instant};
use crate::telemetry::LaneUse;

/// After how long without an answer a call looks whether another server has taken over.
const PATIENCE: Duration = Duration::from_millis(100);
/// The pause before a call that no server takes at the moment is tried again.
const PAUSE: Duration = Duration::from_millis(25);

/// Says how many redirections a call follows without a pause: servers that disagree may send it to and fro.
const AT_ONCE: u32 = 3;

/// Servers of which each serves its slots.
#[derive(Debug)]
pub(in super::super) struct Many {
    pub(super) source: Arc<Discovery>,
    pub(super) template: Template,
    purpose: Option<LaneUse>,
    map: Arc<watch::Sender<Map>>,
    looks: Looks,
    servers: Mutex<Servers>,
}

/// The means by which the servers are found.
#[derive(Debug)]
pub(in super::super) enum Discovery {
    Sentinels(Sentinels),
    /// The nodes of the cluster to begin with.
    Nodes(Vec<HostPort>),
}

#[derive(Debug, Default)]
struct Servers {
    by_place: HashMap<HostPort, Arc<Server>>,
    is_closed: bool,
}

impl Many {
    pub(in super::super) fn new(source: Discovery, template: Template) -> Self {
        Self {
            source: Arc::new(source),
            template,
            purpose: Some(LaneUse::Requests),
            map: Arc::new(watch::Sender::new(Map::default())),
            looks: Looks::new(),
            servers: Mutex::default(),
        }
    }

    /// Returns the same servers on connections of their own, with the same map.
    pub(super) fn beside(&self, purpose: Option<LaneUse>) -> Self {
        let source = match &*self.source {
            Discovery::Sentinels(sentinels) => Discovery::Sentinels(sentinels.beside()),
            Discovery::Nodes(seeds) => Discovery::Nodes(seeds.clone()),
        };
        Self {
            source: Arc::new(source),
            template: self.template.clone(),
            purpose,
            map: self.map.clone(),
            looks: Looks::new(),
            servers: Mutex::default(),
        }
    }

    pub(in super::super) fn is_cluster(&self) -> bool {
        matches!(*self.source, Discovery::Nodes(_))
    }

    pub(super) fn shard(&self, slot: u16) -> u32 {
        match self.is_cluster() {
            true => self.map.borrow().shard(slot),
            false => 0,
        }
    }

    /// Calls a script on the server of this slot.
    ///
    /// A call that was refused without being carried out is repeated within the budget, because another server may take
    /// it: the slot has moved or is moving, or the server is a replica by now. A call that waits for its server is
    /// given up when another one has taken over: what the first would answer then is not worth anything.
    pub(super) async fn run(
        self: &Arc<Self>,
        slot: u16,
        call: Request<'_>,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        // The server that alone may take the next call, and that call only, of a slot that is moving.
        let mut asked = None;
        let mut redirections = 0;
        let mut is_sent_before = false;
        let failed = |failure: Failure, is_sent_before| match is_sent_before {
            true => failure.after_another_try(),
            false => failure,
        };
        loop {
            let place = self.owner(slot, budget).await;
            let place = place.map_err(|failure| failed(failure, is_sent_before))?;
            let answering = asked.take();
            let outcome = match &answering {
                None => {
                    let server = self.server(&place)?;
                    let answer = server.run(call, budget, replace_every);
                    self.watched(
                        &place,
                        |map| map.owner(slot) == Some(&place),
                        budget,
                        answer,
                    )
                    .await
                }
                Some(importing) => {
                    let server = self.server(importing)?;
                    server.run_asking(call, budget, replace_every).await
                }
            };
            let failure = match outcome {
                Ok(value) => return Ok(value),
                Err(failure) => failed(failure, is_sent_before),
            };
            is_sent_before = failure.is_after_another_try();
            let answering = answering.as_ref().unwrap_or(&place);
            match failure.redirect() {
                Some(Redirect::Moved(address)) => self.note_moved(slot, &address, answering),
                Some(Redirect::Asked(address)) => asked = self.redirected(&address, answering),
                Some(Redirect::Later) => self.look_again(budget).await,
                Some(Redirect::Again) => {}
                None => {
                    self.note_failure(&failure);
                    return Err(failure);
                }
            }
            redirections += 1;
            if redirections > AT_ONCE {
                sleep(PAUSE.min(budget.left())).await;
            }
            if budget.left() <= PAUSE {
                return Err(failure.not_serving());
            }
        }
    }

    /// Waits for the answer of the server at this place as long as it is the right one, and looks for another one when
    /// it is slow. The answer counts only if the server is still the right one after it.
    pub(super) async fn watched<T>(
        self: &Arc<Self>,
        place: &HostPort,
        is_right: impl Fn(&Map) -> bool,
        budget: Budget,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let began_at = Boottime.now();
        if !self.is_cluster() {
            self.look(LOOK_EVERY);
        }
        let deposed = async {
            let mut map = self.map.subscribe();
            // The sender is ours.
            let _ = map.wait_for(|map| !is_right(map)).await;
        };
        let impatient = async {
            loop {
                sleep(PATIENCE).await;
                self.look(LOOK_EVERY);
            }
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer?,
            () = deposed => {
                tracing::debug!(server = %place, "another server has taken over");
                return Err(Failure::Deposed);
            }
            () = impatient => unreachable!("it looks for ever"),
        };
        self.confirm(began_at, budget).await;
        match is_right(&self.map.borrow()) {
            true => Ok(answer),
            false => Err(Failure::Deposed),
        }
    }

    /// Waits for a look that confirms an answer to a call that began at this moment, but not for long: while no
    /// Sentinel answers, the servers go on.
    ///
    /// A server that was slow to answer may have been stopped, and replaced, when it answered: then the look must be
    /// younger than the answer. Otherwise the Sentinels are asked every [`LOOK_EVERY`], and the nodes of a cluster
    /// redirect by themselves.
    async fn confirm(self: &Arc<Self>, began_at: Instant, budget: Budget) {
        let now = Boottime.now();
        let since = if now.since(began_at) > PATIENCE {
            self.look(AT_MOST_EVERY);
            now.before(AT_MOST_EVERY)
        } else if self.is_cluster() {
            return;
        } else {
            began_at.before(LOOK_EVERY)
        };
        self.looks.confirmed_since(since, budget.left()).await;
    }

    /// Returns who serves this slot. If nobody is known, looks.
    pub(super) async fn owner(
        self: &Arc<Self>,
        slot: u16,
        budget: Budget,
    ) -> Result<HostPort, Failure> {
        let mut failure = Failure::Silent;
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
                    None => failure = Failure::Unserved(slot),
                },
                None => continue,
            }
            if self.map.borrow().owner(slot).is_none() {
                sleep(PAUSE.min(budget.left())).await;
            }
        }
        Err(failure.before_the_request())
    }

    /// Returns the server at this place, and makes its connections if there are none.
    pub(super) fn server(&self, place: &HostPort) -> Result<Arc<Server>, Failure> {
        let mut servers = self.servers();
        if servers.is_closed {
            return Err(Failure::Closed);
        }
        if let Some(server) = servers.by_place.get(place) {
            return Ok(server.clone());
        }
        let map = self.map.borrow();
        let is_needed = |known: &HostPort| map.serves(known) || known == place;
        servers.by_place.retain(|known, server| {
            let is_needed = is_needed(known) || Arc::strong_count(server) > 1;
            if !is_needed {
                server.connections.close();
            }
            is_needed
        });
        let address = self.template.address.at(&place.host, place.port);
        let shown = address.to_string().into();
        let connections = Connections::new(self.template.settings(address), self.purpose);
        let server = Arc::new(Server::new(shown, connections));
        servers.by_place.insert(place.clone(), server.clone());
        Ok(server)
    }

    /// Begins to look for the servers, unless a look began so recently.
    pub(super) fn look(self: &Arc<Self>, at_most_every: Duration) {
        if let Some(began_at) = self.looks.begin(at_most_every) {
            tokio::spawn(self.clone().look_now(began_at));
        }
    }

    /// Looks now, and once more a little later: a look that began just before may have missed what has changed, and the
    /// nodes of a cluster learn it one after the other.
    fn look_twice(self: &Arc<Self>) {
        self.look(LOOK_EVERY);
        if let Some(planned) = self.looks.plan() {
            let many = self.clone();
            tokio::spawn(async move {
                sleep(LOOK_EVERY).await;
                if let Some(began_at) = many.looks.begin_planned(planned) {
                    many.look_now(began_at).await;
                }
            });
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
        let known = self.map.borrow().clone();
        match &*self.source {
            Discovery::Sentinels(sentinels) => {
                let (master, epoch) = sentinels.look(&known, budget).await?;
                self.change(|map| map.set_master(master, epoch));
            }
            Discovery::Nodes(seeds) => {
                let ranges = nodes::look(self, seeds, &known, budget).await?;
                self.change(|map| map.set_ranges(ranges, Boottime.now()));
            }
        }
        Ok(())
    }

    /// Changes the map, and tells it only if it differs then.
    fn change(&self, change: impl FnOnce(&mut Map)) {
        self.map.send_if_modified(|map| {
            let before = map.clone();
            change(map);
            *map != before
        });
    }

    /// Returns where the server is reached to which another one redirects.
    pub(super) fn redirected(&self, address: &str, answered: &HostPort) -> Option<HostPort> {
        HostPort::redirected(address, answered, &self.template.address_map)
    }

    /// Parses the reply of a node about its cluster.
    pub(super) fn ranges(&self, reply: &Value, answered: &HostPort) -> Result<Vec<Range>, Failure> {
        map::slots(reply, answered, &self.template.address_map)
    }

    /// Corrects the map by what a server said, and looks for the rest of it.
    pub(super) fn note_moved(self: &Arc<Self>, slot: u16, address: &str, answered: &HostPort) {
        if let Some(place) = self.redirected(address, answered) {
            self.change(|map| map.set_owner(slot, place, Boottime.now()));
        }
        self.look_twice();
    }

    /// Looks if this failure is one that another server would not have.
    pub(super) fn note_failure(self: &Arc<Self>, failure: &Failure) {
        if failure.is_of_connection() {
            self.look(AT_MOST_EVERY);
        }
    }

    /// Looks, and gives the servers a moment: none of them takes the call now.
    pub(super) async fn look_again(self: &Arc<Self>, budget: Budget) {
        self.look(AT_MOST_EVERY);
        sleep(PAUSE.min(budget.left())).await;
    }

    /// Makes the connections of the calling runtime now. Returns with the first one that is made: the others go on, and
    /// a server that hangs delays only its own names.
    pub(super) async fn connect(self: &Arc<Self>, limit: Duration) -> Result<(), Failure> {
        let servers = self.primaries(Budget::new(limit)).await?;
        let made = servers
            .iter()
            .map(|server| server.connections.connect().boxed());
        match servers.is_empty() {
            // The claims say which slots nobody serves.
            true => Ok(()),
            false => select_ok(made).await.map(drop),
        }
    }

    /// Returns each server that serves slots. Looks first if none is known.
    pub(super) async fn primaries(
        self: &Arc<Self>,
        budget: Budget,
    ) -> Result<Vec<Arc<Server>>, Failure> {
        let places = self.places(budget).await?;
        places.iter().map(|place| self.server(place)).collect()
    }

    async fn places(self: &Arc<Self>, budget: Budget) -> Result<Vec<HostPort>, Failure> {
        if !self.map.borrow().is_known() {
            // Which slot does not matter: any answer fills the map, even if nobody serves this one.
            let found = self.owner(0, budget).await;
            if !self.map.borrow().is_known() {
                found?;
            }
        }
        Ok(self.map.borrow().owners())
    }

    /// Returns the address of a server that passes notices on.
    pub(super) async fn any_primary(self: &Arc<Self>, budget: Budget) -> Result<Address, Failure> {
        if self.is_closed() {
            return Err(Failure::Closed);
        }
        // It may be asked because the last one broke its connection.
        self.look(LOOK_EVERY);
        let places = self.places(budget).await?;
        let place = fastrand::choice(&places).ok_or(Failure::Silent)?;
        Ok(self.template.address.at(&place.host, place.port))
    }

    /// Returns once no server at this address serves any slot.
    pub(super) async fn no_primary_at(&self, address: &Address) {
        let mut map = self.map.subscribe();
        let is_gone = |map: &Map| !map.serves_any(|place| address.is_at(&place.host, place.port));
        // The sender is ours.
        let _ = map.wait_for(is_gone).await;
    }

    pub(super) fn map(&self) -> watch::Ref<'_, Map> {
        self.map.borrow()
    }

    pub(super) fn close(&self) {
        let servers = {
            let mut servers = self.servers();
            servers.is_closed = true;
            std::mem::take(&mut servers.by_place)
        };
        servers
            .values()
            .for_each(|server| server.connections.close());
        if let Discovery::Sentinels(sentinels) = &*self.source {
            sentinels
                .all
                .iter()
                .for_each(|sentinel| sentinel.connections.close());
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.servers().is_closed
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
