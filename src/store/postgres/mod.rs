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
//! `README.md` in this folder has the list. [`hazards`](Store::hazards) reports what weakens the promises in the
//! server's set-up.

mod address;
mod builder;
mod connection;
mod failure;
mod hazards;
mod max_ttl;
mod notices;
mod protocol;
mod renewals;
mod requests;
mod setup;
mod watchdog;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use self::builder::Builder;
pub(super) use self::setup::{init_postgres, postgres_sql};

use self::address::Address;
use self::connection::connections::Connections;
use self::max_ttl::MaxTtl;
use self::protocol::reply;
use self::watchdog::RenewalLane;
use super::budget::{self, Budget};
use super::{Error, Store};
use crate::telemetry::Sink;

/// The label of this kind of store in metrics.
const KIND: &str = "postgres";

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
    /// That of the thread that leaves queues.
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
}

/// Returns where this kind of store is counted.
fn counts() -> &'static Sink {
    Sink::of_store(KIND)
}

/// Opens the store at a URL whose scheme is ours.
pub(super) fn open_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(Postgres::open(url)?))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(budget::millis(duration)).unwrap_or(i64::MAX)
}

/// Returns this budget for a request about a lease: a silent connection is replaced once in ttl/10, however many
/// requests fail on it.
fn replacing(budget: Budget, ttl: Duration) -> Budget {
    budget.replacing_every(ttl / 10)
}
