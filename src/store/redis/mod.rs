//! Leases on Redis or Valkey, for many machines: on one server, on the master of a group that Sentinels watch, or on a
//! cluster.
//!
//! Every operation is one script call, on a connection that all requests of a runtime share. `README.md` beside this
//! file describes the layout of the keys, the scripts and their rules, for clients in other languages as well.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::redis::Redis};
//!
//! let store = Redis::open("redis://:secret@localhost/0")?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly-report").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # URLs
//! `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `rediss://` for TLS, and
//! `redis+unix:///PATH[?db=DB&user=USER&pass=PASSWORD]` for a socket. Special characters are written as `%XX`.
//!
//! # TLS
//! `?ca=FILE` (or `ca=system`), `?cert=FILE&key=FILE` and `?server_name=NAME` say what is trusted, which certificate is
//! shown, and which name the server must have; [`Tls`](super::Tls) describes them, and the builder and the environment
//! can set them too. The files are read again for each connection. If a file cannot be read then, the request fails with
//! `Unavailable`.
//!
//! rustls needs one cryptography provider for the whole process. If the program has installed none when the store first
//! connects, the store installs `ring`. A program that wants another provider installs it before that
//! (`CryptoProvider::install_default`), because the choice cannot be changed.
//!
//! # What it promises beyond the contract
//! After a server was down, the next request connects to it again. A connection whose answer is overdue is replaced. No
//! password appears in any output, including errors and their sources.
//!
//! A connection to a server that has become a replica (`READONLY`, `MASTERDOWN`) is replaced, and the request is sent
//! again. So the store follows a failover behind one address, by a virtual IP, a proxy or DNS, although neither side
//! closes the old connections. Until the address leads to a master again, requests fail with `Unavailable`: renewals
//! are retried, and waiting clients wait. A store that has not written at this address yet fails with `Misconfigured`
//! instead, because then the URL probably names a replica.
//!
//! # What it leaves to others
//! A request is sent again only if its connection was found closed, or after a replica's answer. Otherwise the store
//! retries nothing by itself, because the caller must know how many requests were sent. [`hazards`](Store::hazards)
//! reports what a failover or a flush can break.

#![doc = include_str!("deployments.md")]

mod acks;
mod address;
mod budget;
mod builder;
mod connector;
mod failure;
mod fleet;
mod hazards;
mod keys;
mod lane;
mod link;
mod list;
mod member;
mod notices;
mod renewals;
mod reply;
mod run;
mod runtime_lanes;
mod scripts;
mod server;
mod slot;
mod target;
mod tls;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::Pool;

pub use self::builder::Builder;
pub(super) use self::member::{RedisMember, Voted};
pub(super) use self::run::MemberClock;
pub(super) use self::target::members_of;
use crate::future::BoxFuture;
use crate::holder::ClientId;

use self::budget::{Budget, replace_every};
use self::failure::Failure;
use self::fleet::Fleet;
use self::keys::Keys;
use self::link::Request;
use self::runtime_lanes::counts;
use self::scripts::SCRIPTS;
use super::{
    Answer, Ask, Claim, Clock, Error, Eviction, Facts, Failed, Hazard, Held, Holder, Lane, Member,
    Name, Notices, Queued, Release, Renewal, Renewed, Store, Token,
};
use crate::clock::Boottime;
use crate::telemetry::LaneUse;

/// The label of this kind of store in metrics.
const KIND: &str = "redis";
/// The command that publishes a release. Sharded channels would need another one.
const PUBLISH: &str = "PUBLISH";
/// How often a silent connection is replaced, for requests without a ttl.
const REPLACE_EVERY: Duration = Duration::from_millis(500);

/// A store on Redis or Valkey.
///
/// It is made without I/O: the first request connects. The requests of each tokio runtime share one connection, so one
/// store serves callers on several runtimes, even if one of them is blocked or ends.
pub struct Redis {
    fleet: Fleet,
    keys: Keys,
    max_ttl: Option<Duration>,
    connect_timeout: Duration,
    /// The pool that is closed with this store.
    own_pool: Option<Pool>,
    /// Where the servers are, without secrets.
    place: Arc<str>,
}

impl Redis {
    /// Makes the store at this URL, with the default settings.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// Returns a builder for the store at this URL.
    pub fn builder(url: &str) -> Builder {
        Builder::from_url(url)
    }

    /// Returns a builder for a store behind a pool of the caller's.
    ///
    /// For each runtime that uses it, the store keeps one connection of the pool for itself, or makes one beside the
    /// pool if the pool has none to spare; for the watchdog it always makes one beside the pool. A connection that the
    /// pool had already made is driven by the runtime on which it was made. The pool's settings for connections apply:
    /// turn its response time-out off or keep it well above the requests' limits, and set TCP_NODELAY.
    ///
    /// A pool does not tell where its server is, and a subscription cannot come from it. So **without
    /// [`notices_from`](Builder::notices_from) waiting clients only check again after some time**, and errors do not
    /// name the server.
    pub fn from_pool(pool: Pool) -> Builder {
        Builder::from_pool(pool)
    }

    fn error(&self, failure: Failure, operation: &str, name: &Name) -> Error {
        failure.during(operation, format_args!("name={name} store={}", self.place))
    }

    /// The same for an operation that concerns no single name.
    fn error_of_all(&self, failure: Failure, operation: &str) -> Error {
        failure.during(operation, format_args!("store={}", self.place))
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        let info = serde_json::to_string(&*claim.info).expect("text and numbers become JSON");
        let keys = &self.keys;
        let keys = keys.of_claim(&claim.name, self.fleet.cluster().is_some());
        let mut call = SCRIPTS.acquire.call(keys);
        call.arg(claim.holder.to_string())
            .arg(millis(claim.ttl))
            .arg(ask.floor.map_or(0, Token::get))
            .arg(info);
        if let Some(queued) = ask.queued {
            call.arg(claim.holder.client().to_string())
                .arg(millis(Queued::PATIENCE))
                .arg(queued.more)
                .arg(millis(Queued::OFFER))
                .arg(PUBLISH);
        }
        let budget = Budget::new(limit);
        let request = Request::Claim(&call);
        let reply = self
            .fleet
            .run(&claim.name, request, budget, replace_every(claim.ttl));
        let answer = reply::acquired(&reply.await?, &claim.name)?;
        // Joining the queue is a write too.
        let is_written = match &answer {
            Answer::Granted(_) => true,
            Answer::Held(held) => held.ahead.is_some(),
        };
        if is_written {
            self.fleet.note_write();
        }
        Ok(answer)
    }

    /// Returns the keys of the scripts that free a name.
    fn queue_keys(&self, name: &Name) -> [String; 3] {
        let keys = &self.keys;
        [keys.lease(name), keys.queue(name), keys.alive(name)]
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> Result<Release, Failure> {
        let mut call = SCRIPTS.release.call(self.queue_keys(name));
        call.arg(holder.to_string())
            .arg(keep_for.map_or(0, millis))
            .arg(PUBLISH)
            .arg(millis(Queued::OFFER));
        let reply = self
            .fleet
            .run(name, Request::One(&call), Budget::new(limit), REPLACE_EVERY);
        reply::released(&reply.await?)
    }

    async fn try_evict(
        &self,
        name: &Name,
        how: Eviction,
        limit: Duration,
    ) -> Result<bool, Failure> {
        let mut call = SCRIPTS.evict.call(self.queue_keys(name));
        call.arg(match how {
            Eviction::Marked => "marked",
            Eviction::Now => "now",
        })
        .arg(PUBLISH)
        .arg(millis(Queued::OFFER));
        let reply = self
            .fleet
            .run(name, Request::One(&call), Budget::new(limit), REPLACE_EVERY);
        reply::evicted(&reply.await?)
    }

    async fn try_leave(
        &self,
        name: &Name,
        client: ClientId,
        limit: Duration,
    ) -> Result<(), Failure> {
        let mut call = SCRIPTS.leave.call(self.queue_keys(name));
        call.arg(client.to_string())
            .arg(PUBLISH)
            .arg(millis(Queued::OFFER));
        let reply = self
            .fleet
            .run(name, Request::One(&call), Budget::new(limit), REPLACE_EVERY);
        reply::left(&reply.await?)
    }

    /// Returns the same store on a connection of its own, beside the pool, which is not made so far.
    fn beside(&self, lane: Lane) -> Self {
        let purpose = (lane == Lane::Watchdog).then_some(LaneUse::Watchdog);
        Self {
            fleet: self.fleet.beside(purpose),
            keys: self.keys.clone(),
            max_ttl: self.max_ttl,
            connect_timeout: self.connect_timeout,
            own_pool: None,
            place: self.place.clone(),
        }
    }

    /// Makes the connections of the calling runtime now.
    async fn connect(&self) -> Result<(), Error> {
        let connected = self.fleet.connect(self.connect_timeout).await;
        connected.map_err(|failure| self.error_of_all(failure, "connect"))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("location", &format_args!("{}", self.place))
            .field("keys", &self.keys)
            .field("fleet", &self.fleet)
            .finish_non_exhaustive()
    }
}

impl Store for Redis {
    fn facts(&self) -> Facts {
        let facts = Facts::new(KIND).with_queue().with_notices();
        match self.max_ttl {
            Some(max_ttl) => facts.with_max_ttl(max_ttl),
            None => facts,
        }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Boottime)
    }

    fn location(&self) -> String {
        self.place.to_string()
    }

    fn shard(&self, name: &Name) -> u32 {
        self.fleet.shard(name)
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move {
            let answer = self.try_acquire(claim, ask, limit).await;
            answer.map_err(|failure| Failed {
                sent: failure.sent(),
                error: self.error(failure, "acquire", &claim.name),
            })
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_all(batch, limit))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(async move {
            let release = self.try_release(name, holder, keep_for, limit).await;
            release.map_err(|failure| self.error(failure, "release", name))
        })
    }

    fn leave<'a>(
        &'a self,
        name: &'a Name,
        client: ClientId,
        limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let left = self.try_leave(name, client, limit).await;
            left.map_err(|failure| self.error(failure, "leave the queue", name))
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async move {
            let Some(ear) = self.fleet.ear() else {
                return Ok(None);
            };
            if self.fleet.is_closed() {
                return Err(self.error_of_all(Failure::Closed, "subscribe"));
            }
            let (keys, limit) = (&self.keys, self.connect_timeout);
            match notices::subscribe(ear, keys, counts(false), limit).await {
                Ok(subscription) => Ok(Some(Box::new(subscription) as Box<dyn Notices>)),
                Err(failure) => Err(self.error_of_all(failure, "subscribe")),
            }
        })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async move {
            let names = std::slice::from_ref(name);
            let seen = self.inspect_all(names, Budget::new(limit)).await;
            let seen = seen.and_then(|mut seen| seen.pop().unwrap_or(Ok(None)));
            seen.map_err(|failure| self.error(failure, "inspect", name))
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(async move {
            let list = self.try_list(prefix, limit).await;
            list.map_err(|failure| self.error_of_all(failure, "list"))
        })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            let evicted = self.try_evict(name, how, limit).await;
            evicted.map_err(|failure| self.error(failure, "evict", name))
        })
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(async move {
            let hazards = hazards::look(&self.fleet, Budget::new(limit)).await;
            hazards.map_err(|failure| self.error_of_all(failure, "inspect the store"))
        })
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async move {
            let members = hazards::see(&self.fleet, Budget::new(limit)).await;
            members.map_err(|failure| self.error_of_all(failure, "check the servers"))
        })
    }

    fn on_own_connection(&self, lane: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            if self.fleet.is_closed() {
                return Err(self.error_of_all(Failure::Closed, "connect"));
            }
            let beside = self.beside(lane);
            beside.connect().await?;
            Ok(Arc::new(beside) as Arc<dyn Store>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.fleet.close();
            if let Some(pool) = &self.own_pool {
                pool.close();
            }
        })
    }
}

/// Opens the store at a URL whose scheme is one of ours.
pub(super) fn open_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(Redis::open(url)?))
}

/// Converts to whole milliseconds, rounded up: the server must keep a lease for at least as long as its holder expects.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
