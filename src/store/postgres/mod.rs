//! Leases in a Postgres database, for teams that already have one.
//!
//! Every operation is one call of a function in the database, on a few connections that all requests share. Tables and
//! functions are made once, by `leasehold init --store URL` or by [`Setup`]; `README.md` beside this file describes
//! them, for clients in other languages as well. The lease and the fence can be in one database.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::store::postgres::Postgres;
//!
//! let store = Postgres::open("postgres://me:secret@db.example/jobs")?;
//! # Ok(())
//! # }
//! ```
//!
//! # URLs
//! `postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST2...][/DATABASE][?PARAMETERS]`, or `postgresql://`. Special
//! characters are written as `%XX`. The parameters:
//!
//! | parameter | meaning |
//! |---|---|
//! | `schema` | the schema that has the tables (default: `leasehold`); leases in different schemas are unrelated |
//! | `sslmode` | `disable`, `require` or `verify-full`. The last two mean the same: the certificate's chain and name are always checked. Default: `disable` on this machine, and `require` elsewhere |
//! | `ca` or `sslrootcert`, `cert` and `key` or `sslcert` and `sslkey`, `server_name` | what is trusted, what is shown, and which name the server must have: see [`Tls`](super::Tls); the builder and the environment can set them too |
//! | `host`, `port`, `user`, `password` | the same as the parts before the question mark; a host that begins with `/` is the folder of a socket. Several are separated by commas; one port is that of all hosts |
//! | `notices` | `off`: waiting clients only check again after some time |
//! | `lanes` | the greatest number of connections for requests (default: 4) |
//!
//! Of several hosts, the first one that accepts writes is used. The certificate files are read again for each
//! connection; if one cannot be read then, the request fails with `Unavailable`. A server that asks for a certificate
//! that it does not get refuses with SQLSTATE 28000, which is `Denied`.
//!
//! # What it promises in each fault
//! *Kept by the clock* means: the counter is lost or stale, and tokens rise under the assumption that
//! [the contract](super) makes about the clock.
//!
//! | fault | tokens rise | told in time | nothing left behind |
//! |---|---|---|---|
//! | a client is killed or paused | kept | kept | kept |
//! | the connection breaks, the server restarts or crashes | kept | kept | kept |
//! | a synchronous standby is promoted | kept | kept | kept |
//! | a lagging standby is promoted; recovery to a point in time; a dump restored into another server | kept by the clock | kept: for the longest ttl nothing is granted | kept |
//! | the disk is restored from a snapshot without a recovery | kept by the clock | only the fence protects | kept |
//! | two primaries at once | by each one's clock | only the fence protects | kept |
//! | `synchronous_commit = off` for the role or the server | kept: each grant turns it on for itself | kept | kept |
//! | tables made UNLOGGED by `leasehold init --unlogged`, and a crash | kept by the clock | kept: for the longest ttl nothing is granted | kept |
//! | another transaction locks the row or the table | kept | kept: the holder is cancelled by its own deadline | kept |
//!
//! Later grants remove the rows of names that are no longer used, an hour after their lease ended. If there are no
//! later grants the last rows stay.
//!
//! # Poolers
//! PgBouncer and similar poolers may be between client and server, also in transaction mode: the store sets nothing on
//! the session and prepares no statement by name. Notices do not pass a transaction pooler; the client detects that,
//! and waiting clients only check again after some time. Keep the pooler's own waiting time (`query_wait_timeout`)
//! below a third of the ttl.
//!
//! # What it leaves to others
//! A request that conflicted with another transaction is retried within its limit; nothing else is retried.
//! [`hazards`](Store::hazards) reports what weakens the promises in the server's set-up.

mod address;
mod builder;
mod failure;
mod hazards;
mod lane;
mod lanes;
mod max_ttl;
mod notices;
mod renewals;
mod reply;
mod requests;
mod schema;
mod setup;
mod survey;
mod tls;
mod upkeep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::Builder;
pub use self::setup::Setup;
pub(super) use self::setup::{init_postgres, postgres_sql};

use self::address::Address;
use self::failure::Failure;
use self::lanes::Lanes;
use self::max_ttl::MaxTtl;
use self::schema::Statements;
use self::upkeep::Upkeep;
use super::{
    Answer, Ask, Claim, Clock, Error, Eviction, Facts, Failed, Hazard, Held, Holder, Lane, Member,
    Name, Notices, Release, Renewal, Renewed, Store,
};
use crate::clock::Boottime;
use crate::future::BoxFuture;
use crate::holder::ClientId;
use crate::telemetry::{LaneUse, StoreCounts};

/// The label of this kind of store in metrics.
const KIND: &str = "postgres";
/// How often a silent connection is replaced, for requests without a ttl.
const REPLACE_EVERY: Duration = Duration::from_millis(500);

/// A store in a Postgres database.
///
/// It is made without I/O: the first request connects.
pub struct Postgres {
    address: Arc<Address>,
    statements: Arc<Statements>,
    lanes: Arc<Lanes>,
    connect_timeout: Duration,
    token_memory: Duration,
    has_notices: bool,
    upkeep: Arc<Upkeep>,
    max_ttl: Arc<MaxTtl>,
}

impl Postgres {
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

    fn error(&self, failure: Failure, operation: &str, name: &Name) -> Error {
        failure.during(
            operation,
            format_args!("name={name} store={}", self.address),
        )
    }

    /// The same as `error`, for an operation that concerns no single name.
    fn error_of_all(&self, failure: Failure, operation: &str) -> Error {
        failure.during(operation, format_args!("store={}", self.address))
    }

    /// Returns the same store on a connection of its own.
    async fn beside(&self, lane: Lane) -> Result<Arc<dyn Store>, Error> {
        let lanes = if self.lanes.is_closed() {
            Err(Failure::Closed)
        } else {
            let purpose = (lane == Lane::Watchdog).then_some(LaneUse::Watchdog);
            Lanes::connected(&self.address, self.connect_timeout, purpose).await
        };
        let lanes = lanes.map_err(|failure| self.error_of_all(failure, "connect"))?;
        Ok(Arc::new(Self {
            address: self.address.clone(),
            statements: self.statements.clone(),
            lanes: Arc::new(lanes),
            connect_timeout: self.connect_timeout,
            token_memory: self.token_memory,
            has_notices: self.has_notices,
            upkeep: self.upkeep.clone(),
            max_ttl: self.max_ttl.clone(),
        }))
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notices>>, Error> {
        if !self.has_notices {
            return Ok(None);
        }
        let subscribed = notices::subscribe(
            &self.address,
            &self.statements,
            &self.lanes,
            self.connect_timeout,
        );
        match subscribed.await {
            Ok(Some(subscription)) => Ok(Some(Box::new(subscription) as Box<dyn Notices>)),
            Ok(None) => {
                self.upkeep.say_once_that_a_pooler_is_between(&self.address);
                Ok(None)
            }
            Err(failure) => Err(self.error_of_all(failure, "subscribe")),
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("location", &format_args!("{}", self.address))
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

impl Store for Postgres {
    fn facts(&self) -> Facts {
        let facts = Facts::new(KIND).with_queue().with_notices();
        // The server's set-up has it. What was not told so far, the server refuses by itself.
        match self.max_ttl.known() {
            Some(max_ttl) => facts.with_max_ttl(max_ttl),
            None => facts,
        }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Boottime)
    }

    fn location(&self) -> String {
        self.address.to_string()
    }

    fn shard(&self, _: &Name) -> u32 {
        0
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
        Box::pin(self.subscribe())
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async move {
            let held = self.try_inspect(name, limit).await;
            held.map_err(|failure| self.error(failure, "inspect", name))
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
            let hazards = self.look_for_hazards(limit).await;
            hazards.map_err(|failure| self.error_of_all(failure, "inspect the store"))
        })
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async move {
            let members = self.look_at_members(limit).await;
            members.map_err(|failure| self.error_of_all(failure, "check the server"))
        })
    }

    fn on_own_connection(&self, lane: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(self.beside(lane))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.lanes.close() })
    }
}

/// Where this kind of store is counted.
fn counts() -> &'static StoreCounts {
    StoreCounts::of(KIND)
}

/// Opens the store at a URL whose scheme is ours.
pub(super) fn open_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(Postgres::open(url)?))
}

/// Converts to whole milliseconds, rounded up: the server must keep a lease for at least as long as its holder expects.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Returns how often a silent connection is replaced: once in ttl/10, however many requests fail on it.
fn replace_every(ttl: Duration) -> Duration {
    ttl / 10
}
