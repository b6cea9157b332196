//! Leases on Redis or Valkey, for many machines: on one server, on the master of a group that Sentinels watch, or on a
//! cluster.
//!
//! Every operation is one script call, on a connection that all requests of a runtime share. `README.md` in this
//! folder describes the layout of the keys, the scripts and their rules, for clients in other languages as well.
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
//! `redis://[USER:PASSWORD@]HOST[:PORT][/DB][?PARAMETERS]`, `rediss://` for TLS, and `redis+unix:///PATH[?PARAMETERS]`
//! for a socket; [below](#sentinel-and-cluster) are those of Sentinels and clusters. Special characters are written as
//! `%XX`. The parameters:
//!
//! - `max_ttl`: the longest ttl that is accepted, such as `60s`; a server that lost its data, or was promoted, grants
//!   nothing for this long (default: off; not for a cluster). [`Builder::max_ttl`] has what it costs.
//! - `alone`: `yes`, with `max_ttl`, if the server never has a replica and no other one takes its address; see
//!   [`Builder::alone`].
//! - `acknowledged_by`: how many replicas must have a grant or a renewal before it counts (default: 0, at most 8); see
//!   [`Builder::acknowledged_by`].
//! - `prefix`: what all keys begin with (default: `leasehold`); leases under different prefixes are unrelated.
//! - `reach`: `HOST:PORT=HOST:PORT`, or a list of these with commas: how to reach a server that Sentinels or the nodes
//!   of a cluster name, as behind NAT; see [`Builder::address_map`].
//! - `sentinel_username`, `sentinel_password`: the credentials of the Sentinels.
//! - `ca`, `cert`, `key`, `server_name`: with TLS, as in the next section.
//! - `db`, `user`, `pass`: the database and the credentials, for a socket.
//!
//! # TLS
//! `?ca=FILE` (or `ca=system`), `?cert=FILE&key=FILE` and `?server_name=NAME` set the trusted certificates, the
//! client's own certificate, and the name that the server must have; [`Tls`](super::Tls) describes them, and the
//! builder and the environment can set them too. The files are read again for each connection. If a file cannot be read
//! then, the request fails with `Unavailable`.
//!
//! The cryptography is that of the provider that the program has installed (`CryptoProvider::install_default`), or else
//! `ring`.
//!
//! # What it promises beyond the contract
//! After a server was down, the next request connects to it again. A connection whose answer is overdue is replaced. No
//! password appears in any output, including errors and their sources.
//!
//! A connection to a server that has become a replica (`READONLY`, `MASTERDOWN`) is replaced, and the request is sent
//! again. So the store follows a failover behind one address, by a virtual IP, a proxy or DNS, although neither side
//! closes the old connections. Until the address leads to a master again, requests fail with `Unavailable`: renewals
//! are retried, and waiting clients wait. Then they listen to the new one. A store that has not written at this address
//! yet fails with `Misconfigured` instead, because then the URL probably names a replica.
//!
//! At a server that has no room for another client (`maxclients`), holders come first: they remake their connection for
//! renewals as soon as it breaks, while others retry at growing pauses of up to 30 s, and return to a server that was
//! down one to two seconds after they find it up. A waiting client has three connections, and keeps those that it has
//! while the server refuses the next: if few are left, a freed name can stay idle as long as they are taken. Leave room
//! for three connections per client.
//!
//! # What it leaves to others
//! A request is sent again only if its connection was found closed, or after a replica's answer. Otherwise the store
//! retries nothing by itself, because the caller must know how many requests were sent.
//! [`hazards`](super::Store::hazards) reports what a failover or a flush can break.

#![doc = include_str!("deployments.md")]

mod address;
mod builder;
mod connection;
mod failure;
mod fleet;
mod hazards;
mod list;
mod members;
mod notices;
mod protocol;
#[cfg(feature = "_remote")]
mod remote;
mod renewals;
mod setup;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::Pool;
use deadpool_redis::redis::{Cmd, RedisWrite};

pub use self::builder::Builder;
pub(super) use self::protocol::scripts::Script;
pub(super) use self::setup::{init, init_script};
#[cfg(feature = "_remote")]
pub(super) use self::{
    hazards::tokens::lead, protocol::reply::number, protocol::reply::tagged, protocol::reply::text,
    protocol::scripts::Program, protocol::value::read_info, target::each_server,
};
use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::token::Token;

use self::failure::{Failure, FailureCause};
use self::fleet::{Fleet, OF_ONE};
use self::notices::Listener;
use self::protocol::keys::Keys;
use self::protocol::reply;
use self::protocol::scripts::SCRIPTS;
use self::protocol::slot::slot_of;
use super::kit::backend::Backend;
use super::kit::budget::{Budget, millis};
use super::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, Member, Notices, Purpose, Release, Renewal,
    Renewed,
};
use crate::telemetry::ConnectionPurpose;

/// The label of this kind of store in metrics.
const KIND: &str = "redis";
/// Longest pause between two replacements of a connection, for requests of long leases: a tenth of a ttl of one hour
/// would keep them from a new master for six minutes.
const REPLACE_AT_LEAST_EVERY: Duration = Duration::from_secs(3);

/// A store on Redis or Valkey.
///
/// It is made without I/O: the first request connects. The requests of each tokio runtime share one connection, so one
/// store serves callers on several runtimes, even if one of them is blocked or ends.
pub struct Redis {
    fleet: Arc<Fleet>,
    pub(super) keys: Keys,
    pub(super) max_ttl: Option<Duration>,
    /// Whether the operator declared that the server never has a replica.
    pub(super) is_alone: bool,
    /// Where the servers are, without secrets.
    pub(super) location: Arc<str>,
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
        Builder::new(target::read(url), None)
    }

    /// Returns a builder for a store behind a pool of the caller's, whose one server is at this URL.
    ///
    /// For each runtime that uses it, the store keeps one connection of the pool for itself, or makes one by the URL if
    /// the pool has none to spare; for the watchdog and for notices it always makes its own. A connection that the pool
    /// had already made is driven by the runtime on which it was made. The pool's settings for connections apply to it:
    /// turn the pool's response time-out off or keep it well above the requests' limits, and set TCP_NODELAY.
    pub fn from_pool(pool: Pool, url: &str) -> Builder {
        Builder::new(target::read(url), Some(pool))
    }

    /// Records that a lease of this ttl may be held from now on, whose renewals need a connection.
    pub(super) fn need_for(&self, ttl: Option<Duration>) {
        if let Some(ttl) = ttl {
            self.fleet.settings.need.extend(ttl);
        }
    }

    /// Begins a call of a script that takes or frees this name.
    fn call_of(&self, script: &Script, name: &Name) -> Cmd {
        script.call(self.keys.of_name(name, self.fleet.is_cluster()))
    }

    /// Returns whether what a server publishes proves that it has granted a name: not if it may have been replaced, or
    /// a grant counts only once replicas have it. A server that keeps out grants nothing without a claim.
    fn trusts_notices(&self) -> bool {
        let is_acknowledged = self.fleet.settings.acknowledged_by > 0;
        !self.fleet.has_sentinels() && !is_acknowledged && self.max_ttl.is_none()
    }

    /// Returns the same store on a connection of its own, outside a pool and not connected yet.
    pub(super) fn beside(&self, purpose: Purpose) -> Self {
        let purpose = (purpose == Purpose::Watchdog).then_some(ConnectionPurpose::Watchdog);
        Self {
            fleet: Arc::new(self.fleet.beside(purpose)),
            keys: self.keys.clone(),
            max_ttl: self.max_ttl,
            is_alone: self.is_alone,
            location: self.location.clone(),
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.location).finish()
    }
}

impl Backend for Redis {
    type Failure = Failure;

    fn own_facts(&self) -> Facts {
        Facts {
            max_ttl: self.max_ttl,
            ..Facts::new(KIND)
                .with_queue()
                .with_notices()
                .with_callers_runtime()
                .with_trusted_notices(self.trusts_notices())
        }
    }

    fn own_location(&self) -> &dyn fmt::Display {
        &self.location
    }

    fn own_shard(&self, name: &Name) -> u32 {
        self.fleet.shard_of(slot_of(name.as_str()))
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let mut call = self.call_of(&SCRIPTS.acquire, &claim.name);
        call.write_arg_fmt(claim.holder);
        call.arg(millis(claim.ttl))
            .arg(ask.floor.map_or(0, Token::get));
        serde_json::to_writer(call.writer_for_next_arg(), &*claim.info)
            .expect("text and numbers become JSON");
        if ask.queued.is_some() || self.max_ttl.is_some() {
            call.arg(ask.queued.map_or(0, |queued| millis(queued.term)))
                .arg(u8::from(ask.queued.is_some_and(|queued| queued.listens)));
        }
        call.arg(self.max_ttl.map(millis));
        call.arg(self.is_alone.then_some("alone"));
        let (name, budget) = (&claim.name, of_ttl(budget, claim.ttl));
        let is_written = reply::is_grant;
        let asked = self.fleet.run(name, call, Some(is_written), OF_ONE, budget);
        let reply = asked.await?;
        let answer = reply::acquired(&reply, &claim.name)?;
        // Joining the queue is a write too.
        if !matches!(&answer, Answer::Held(held) if held.place.is_none()) {
            self.fleet.settings.note_write();
        }
        if let Answer::Granted(_) = answer {
            self.need_for(Some(claim.ttl));
        }
        Ok(answer)
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let mut call = self.call_of(&SCRIPTS.release, name);
        call.write_arg_fmt(holder);
        call.arg(keep_for.map_or(0, millis));
        reply::released(&self.fleet.run(name, call, None, OF_ONE, budget).await?)
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let mut call = self.call_of(&SCRIPTS.evict, name);
        call.arg(match how {
            Eviction::Marked => "marked",
            Eviction::Now => "now",
        });
        reply::evicted(&self.fleet.run(name, call, None, OF_ONE, budget).await?)
    }

    async fn try_renew(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        self.renew_in_parts(batch, budget).await
    }

    async fn try_notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        if self.fleet.is_closed() {
            return Err(FailureCause::Closed.into());
        }
        let subscription = Listener::subscribe(self, false).await?;
        Ok(Some(Box::new(subscription)))
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        self.read_one(name, budget).await
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        self.read_all(prefix, budget).await
    }

    async fn try_hazards(&self, budget: Budget) -> Result<Vec<Hazard>, Failure> {
        hazards::find(self, budget).await
    }

    async fn try_members(&self, budget: Budget) -> Result<Vec<Member>, Failure> {
        members::ask_each(self, budget).await
    }

    async fn try_own_connection(&self, purpose: Purpose) -> Result<Self, Failure> {
        if self.fleet.is_closed() {
            return Err(FailureCause::Closed.into());
        }
        let beside = self.beside(purpose);
        beside.fleet.connect().await?;
        Ok(beside)
    }

    async fn own_close(&self) {
        self.fleet.close();
    }
}

/// Returns the budget of a request for leases of this ttl. A connection to a silent server or to a replica is replaced
/// once in ttl/10, however many requests fail on it, and at least as often as for leases of the default ttl.
fn of_ttl(budget: Budget, ttl: Duration) -> Budget {
    budget.replacing_every((ttl / 10).min(REPLACE_AT_LEAST_EVERY))
}
