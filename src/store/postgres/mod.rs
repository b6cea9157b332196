//! Leases in a Postgres database, for teams that already have one.
//!
//! Every operation is one call of a function in the database, on a few connections that all requests share. Tables and
//! functions are made once, by `leasehold init --store URL` or by [`Postgres::init`]; `README.md` in this folder
//! describes them, for clients in other languages as well. The lease and the fence can be in one database.
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
//! - `schema`: the schema that has the tables (default: `leasehold`); leases in different schemas are unrelated.
//! - `sslmode`: `disable`, `require` or `verify-full`. The last two mean the same: the certificate's chain and name are
//!   always checked. Default: `disable` on this machine, and `require` elsewhere.
//! - `ca` or `sslrootcert`, `cert` and `key` or `sslcert` and `sslkey`, `server_name`: what is trusted, what is shown,
//!   and which name the server must have; see [`Tls`](super::Tls). The builder and the environment can set them too.
//! - `host`, `port`, `user`, `password`: the same as the parts before the question mark; a host that begins with `/` is
//!   the folder of a socket. Several are separated by commas; one port is that of all hosts.
//! - `notices`: `off`, so that waiting clients only check again after some time.
//! - `connections`: the greatest number of connections for requests (default: 10). Another one is opened only when the
//!   first is busy; unused ones are closed after ten seconds. The watchdog has one more, from its first renewal on;
//!   clients that wait listen on one of these.
//!
//! Of several hosts, and of several addresses of a host, the first one that accepts writes is used. The one that
//! answered last is tried first, and the next one as well after 300 ms; `connect_timeout` limits each handshake.
//!
//! Where the URL has no password, it is taken from `PGPASSWORD`. Nothing else of libpq's environment is read, and no
//! `.pgpass`: a secret that must not be in the environment goes into a file with the whole URL (`--store-file`), or
//! comes from the program's own configuration.
//!
//! The certificate files are read again for each
//! connection; if one cannot be read then, the request fails with `Unavailable`. A server that asks for a certificate
//! that it does not get refuses with SQLSTATE 28000, which is `Denied`.
//!
//! # What it promises in each fault
//! *Kept by the clock* means: the counter is lost or stale, and tokens rise under the assumption that
//! [the contract](super) makes about the clock. *Kept by keep-out* means: nothing is granted for the longest ttl.
//!
//! | fault | tokens rise | told in time | nothing left behind |
//! |---|---|---|---|
//! | a client is killed or paused | kept | kept | kept |
//! | the connection breaks, the server restarts or crashes | kept | kept | kept |
//! | a synchronous standby is promoted | kept | kept | kept |
//! | a lagging standby is promoted; recovery to a point in time | kept by the clock | kept by keep-out | kept |
//! | a dump is restored, into another server or in place | kept by the clock | kept by keep-out | kept |
//! | the rows of a dump alone are restored in place | kept by the clock | only the fence protects | kept |
//! | the disk is restored from a snapshot without a recovery | kept by the clock | only the fence protects | kept |
//! | two primaries at once | by each one's clock | only the fence protects | kept |
//! | `synchronous_commit = off` for the role or the server | kept: each grant turns it on for itself | kept | kept |
//! | tables that an operator made UNLOGGED, and a crash | kept by the clock | only the fence protects | kept |
//! | another transaction locks the row or the table | kept | kept: the holder is cancelled by its own deadline | kept |
//!
//! Each grant of a new name removes rows of names that are no longer used, an hour after their lease ended (later if
//! the longest ttl is longer). If there are no later grants the last rows stay.
//!
//! # Poolers
//! PgBouncer and similar poolers may be between client and server, also in transaction mode: the store sets nothing on
//! the session and prepares no statement by name. Notices do not pass a transaction pooler; the client detects that,
//! and waiting clients only check again after some time. Keep the pooler's own waiting time (`query_wait_timeout`)
//! below a third of the ttl, and set PgBouncer's `server_login_retry` to 1: by default it refuses everything for 15 s
//! after one failed login, also once the server is back.
//!
//! # What it leaves to others
//! A request that conflicted with another transaction is retried within its limit; nothing else is retried. What a
//! server or a pooler answers while it restarts, fails over, is full, or is asked too early, is `Unavailable`;
//! `README.md` in this folder has the list. [`hazards`](super::Store::hazards) reports what weakens the promises in the
//! server's set-up.

mod address;
mod builder;
mod connection;
mod failure;
mod hazards;
mod max_ttl;
mod members;
mod notices;
mod protocol;
mod renewals;
mod setup;
mod watchdog;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::types::Type;

pub use self::builder::Builder;
pub(super) use self::setup::init_script;

use self::address::Address;
use self::connection::Arguments;
use self::connection::connections::Connections;
use self::failure::Failure;
use self::hazards::CHECKS;
use self::max_ttl::MaxTtl;
use self::protocol::reply;
use self::watchdog::RenewalLane;
use super::kit::backend::Backend;
use super::kit::budget::{self, Budget};
use super::kit::check::judge;
use super::kit::connection::Unconnected;
use super::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, Member, Notices, Purpose, Release, Renewal,
    Renewed,
};
use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::telemetry::Sink;
use crate::token::Token;

/// The label of this kind of store in metrics.
const KIND: &str = "postgres";

/// The longest time that a call spends on the notices that follow it.
const TELLING: Duration = Duration::from_millis(500);

/// A store in a Postgres database.
///
/// It is made without I/O: the first request connects.
#[derive(Debug)]
pub struct Postgres {
    address: Arc<Address>,
    connections: Arc<Connections>,
    side: Side,
    connect_timeout: Duration,
    has_told_of_pooler: Arc<AtomicBool>,
    max_ttl: Arc<MaxTtl>,
}

/// Whose store this is. All share the connections for requests: what waits for a lock there delays no renewal, and a
/// client that only waits needs no other one.
#[derive(Debug)]
enum Side {
    /// The client's, with whose end the connections end.
    All,
    /// The watchdog's.
    Watchdog(RenewalLane),
    /// That of the clients that wait.
    Waiting,
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
}

impl Postgres {
    /// The connections for requests; those of the watchdog, once the client has closed them.
    fn connections(&self) -> &Connections {
        match &self.side {
            Side::Watchdog(watchdog) if self.connections.is_closed() => &watchdog.own,
            _ => &self.connections,
        }
    }

    /// Sends the notices of a name that was freed and not granted, if the reply says that clients wait for it: never in
    /// the transaction that freed it, whose commit it would serialize with all others of the server. If a notice is
    /// lost, the waiting client checks again after some time.
    async fn tell(&self, is_awaited: bool, name: &Name, budget: Budget) {
        if !is_awaited {
            return;
        }
        let budget = budget.at_most(TELLING);
        let names = vec![name.as_str()];
        let arguments: Arguments<'_> = &[(&names, Type::TEXT_ARRAY)];
        if let Err(failure) = self.connections().call("tell_1", arguments, budget).await {
            tracing::debug!(%name, %failure, "notice not sent");
        }
    }
}

impl Backend for Postgres {
    type Failure = Failure;

    fn own_facts(&self) -> Facts {
        let facts = Facts::new(KIND)
            .with_queue()
            .with_notices()
            .with_trusted_notices(true);
        // The server's set-up has it. As long as it is not known, only the server refuses longer ones.
        match self.max_ttl.known() {
            Some(max_ttl) => facts.with_max_ttl(max_ttl),
            None => facts,
        }
    }

    fn own_location(&self) -> &dyn Display {
        &*self.address
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let info = serde_json::to_string(&*claim.info).expect("text and numbers become JSON");
        let floor = ask.floor.map_or(0, Token::get);
        let term = ask.queued.map(|queued| millis(queued.term));
        let arguments: Arguments<'_> = &[
            (&claim.name.as_str(), Type::TEXT),
            (&claim.holder.to_string(), Type::TEXT),
            (&millis(claim.ttl), Type::INT8),
            (&info, Type::TEXT),
            (&i64::try_from(floor).unwrap_or(i64::MAX), Type::INT8),
            (&term, Type::INT8),
        ];
        let replacing = replacing(budget, claim.ttl);
        let rows = self.connections().call("acquire_1", arguments, replacing);
        let rows = rows.await?;
        let answered = reply::acquired(&rows, &claim.name);
        if let Err(Failure::TooLong { max_ttl_ms, .. }) = answered {
            self.max_ttl.learn(Duration::from_millis(max_ttl_ms));
        }
        if let Ok(Answer::Granted(_)) = answered {
            self.connections.room().need_for(claim.ttl);
        }
        answered
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let arguments: Arguments<'_> = &[
            (&name.as_str(), Type::TEXT),
            (&holder.to_string(), Type::TEXT),
            (&keep_for.map_or(0, millis), Type::INT8),
        ];
        let rows = self
            .connections()
            .call("release_1", arguments, budget)
            .await?;
        let (release, is_awaited) = reply::released(&rows)?;
        self.tell(is_awaited, name, budget).await;
        Ok(release)
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let how = match how {
            Eviction::Marked => "marked",
            Eviction::Now => "now",
        };
        let arguments: Arguments<'_> = &[(&name.as_str(), Type::TEXT), (&how, Type::TEXT)];
        let rows = self
            .connections()
            .call("evict_1", arguments, budget)
            .await?;
        let (was_held, is_awaited) = reply::evicted(&rows)?;
        self.tell(is_awaited, name, budget).await;
        Ok(was_held)
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        let arguments: Arguments<'_> = &[(&name.as_str(), Type::TEXT)];
        let rows = self
            .connections()
            .call("inspect_1", arguments, budget)
            .await?;
        reply::inspected(&rows, name)
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        let arguments: Arguments<'_> = &[(&prefix, Type::TEXT)];
        let rows = self.connections().call("list_1", arguments, budget).await?;
        reply::listed(&rows)
    }

    async fn try_renew(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        self.renew_batch(batch, budget).await
    }

    async fn try_notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        if !self.address.has_notices {
            return Ok(None);
        }
        let limit = self.connect_timeout;
        let subscribed = notices::subscribe(&self.address, &self.connections, limit).await?;
        if subscribed.is_none() && !self.has_told_of_pooler.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                store = %self.address,
                "notices do not arrive, as behind a transaction pooler; waiting clients only check again after some time"
            );
        }
        Ok(subscribed.map(|subscription| Box::new(subscription) as Box<dyn Notices>))
    }

    async fn try_hazards(&self, budget: Budget) -> Result<Vec<Hazard>, Failure> {
        let facts = self.survey(&self.connections, budget).await?;
        Ok(judge(CHECKS, &facts))
    }

    async fn try_members(&self, budget: Budget) -> Result<Vec<Member>, Failure> {
        members::ask_each(self, budget).await
    }

    async fn try_own_connection(&self, purpose: Purpose) -> Result<Self, Failure> {
        if self.connections.is_closed() {
            return Err(Unconnected::Closed.into());
        }
        Ok(Self {
            address: self.address.clone(),
            connections: self.connections.clone(),
            side: match purpose {
                Purpose::Watchdog => Side::Watchdog(RenewalLane::start(self)),
                Purpose::Waiting => Side::Waiting,
            },
            connect_timeout: self.connect_timeout,
            has_told_of_pooler: self.has_told_of_pooler.clone(),
            max_ttl: self.max_ttl.clone(),
        })
    }

    async fn own_close(&self) {
        match &self.side {
            Side::All => self.connections.close(),
            Side::Watchdog(watchdog) => watchdog.own.close(),
            Side::Waiting => {}
        }
    }
}

/// Returns where this kind of store is counted.
fn counts() -> &'static Sink {
    Sink::of_store(KIND)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(budget::millis(duration)).unwrap_or(i64::MAX)
}

/// Returns this budget for a request about a lease: a silent connection is replaced once in ttl/10, however many
/// requests fail on it.
fn replacing(budget: Budget, ttl: Duration) -> Budget {
    budget.replacing_every(ttl / 10)
}
