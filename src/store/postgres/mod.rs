//! Leases in a Postgres database: for teams whose data is there already.
//!
//! Every operation is one call of a function in the database, on a few connections that all requests share. Tables and
//! functions are made once, by `leasehold init --store URL` or by [`Setup`]; `README.md` beside this file describes them,
//! for clients in other languages as well. Lease and fence can live in one database.
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
//! `postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST2...][/DATABASE][?PARAMETERS]`, or `postgresql://`; special characters are
//! written as `%XX`. The parameters:
//!
//! | parameter | meaning |
//! |---|---|
//! | `schema` | the schema that has the tables, by default `leasehold`: a name space of its own |
//! | `sslmode` | `disable`, `require` or `verify-full`. The last two mean the same: the certificate's chain and name are always checked. By default `disable` on this machine, and `require` elsewhere |
//! | `ca` | a PEM file whose certificates are believed instead of the web's usual roots |
//! | `host`, `port`, `user`, `password` | as in the front; a host that begins with `/` is the folder of a socket |
//! | `notices` | `off`: waiting clients look again by time only |
//! | `lanes` | how many connections requests may use at most, by default 4 |
//!
//! Of several hosts the first that takes writes is used.
//!
//! # What it promises in which fault
//!
//! | fault | tokens rise | told in time | nothing left behind |
//! |---|---|---|---|
//! | a client is killed or paused | kept | kept | kept |
//! | the connection breaks, the server restarts or crashes | kept | kept | kept |
//! | a synchronous standby is promoted | kept | kept | kept |
//! | a lagging standby is promoted; recovery to a point in time; a dump restored into another server | kept by the clock | kept: for the longest ttl nothing is granted | kept |
//! | the disk is restored from a snapshot without a recovery | kept by the clock | only the fence protects | kept |
//! | two primaries at once | by each one's clock | only the fence protects | kept |
//! | `synchronous_commit = off` for the role or the server | kept: it is switched on for each grant | kept | kept |
//! | tables made UNLOGGED, and a crash | kept by the clock | only the fence protects | kept |
//! | another transaction locks the row or the table | kept | kept: the holder is cancelled by its own deadline | kept |
//!
//! Rows of names that nobody uses any more are swept away by later grants, an hour after their lease ended; where nothing
//! is granted any more the last rows stay.
//!
//! # Poolers
//! PgBouncer and its like may be in between, in transaction mode as well: nothing is set on the session and no statement
//! is prepared by name. Notices do not pass a transaction pooler; that is found out, and waiting clients look by time.
//! Keep the pooler's own waiting time (`query_wait_timeout`) under a third of the ttl.
//!
//! # What it leaves to others
//! A request that lost to another transaction is repeated within its limit; nothing else is repeated. What weakens the
//! promises in the server's set-up is told by [`hazards`](Store::hazards).

mod address;
mod builder;
mod failure;
mod hazards;
mod lane;
mod lanes;
mod notices;
mod renewals;
mod reply;
mod requests;
mod schema;
mod setup;
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
use self::schema::Statements;
use self::upkeep::Upkeep;
use super::{
    Answer, Ask, Claim, Clock, Error, Eviction, Facts, Failed, Hazard, Held, Holder, Lane, Member,
    Name, Notices, Release, Renewal, Renewed, Store,
};
use crate::clock::Boottime;
use crate::future::BoxFuture;
use crate::holder::ClientId;

/// How often a silent connection is replaced, for requests that know of no ttl.
const REPLACE_EVERY: Duration = Duration::from_millis(500);

/// A store in a Postgres database.
///
/// Made without I/O: the first request connects, on the runtime it runs on.
pub struct Postgres {
    address: Arc<Address>,
    statements: Arc<Statements>,
    lanes: Arc<Lanes>,
    connect_timeout: Duration,
    token_memory: Duration,
    has_notices: bool,
    upkeep: Arc<Upkeep>,
}

impl Postgres {
    /// The store at this URL, with everything else at its default.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message has no secrets.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// The store at this URL, with settings to come.
    pub fn builder(url: &str) -> Builder {
        Builder::from_url(url)
    }

    fn error(&self, failure: Failure, operation: &str, name: &Name) -> Error {
        failure.during(
            operation,
            format_args!("name={name} store={}", self.address),
        )
    }

    /// As `error`, for what concerns no single name.
    fn error_of_all(&self, failure: Failure, operation: &str) -> Error {
        failure.during(operation, format_args!("store={}", self.address))
    }

    /// The same store on a connection of its own.
    async fn beside(&self) -> Result<Arc<dyn Store>, Error> {
        let lanes = if self.lanes.is_closed() {
            Err(Failure::Closed)
        } else {
            Lanes::connected(&self.address, self.connect_timeout).await
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
        // The longest ttl is the server's to say; it refuses longer ones.
        Facts::new("postgres").with_queue()
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
            let state = self.see(limit).await;
            let state =
                state.map_err(|failure| self.error_of_all(failure, "look at the server"))?;
            Ok(vec![Member::new(self.location(), state)])
        })
    }

    fn on_own_connection(&self, _: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(self.beside())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.lanes.close() })
    }
}

/// The store at a URL whose scheme is ours.
pub(super) fn open_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(Postgres::open(url)?))
}

/// Whole milliseconds, rounded up: the server must keep a lease for no less than its holder counts on.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// How often a silent connection is replaced: once in ttl/10, however many requests fail on it.
fn replace_every(ttl: Duration) -> Duration {
    ttl / 10
}
