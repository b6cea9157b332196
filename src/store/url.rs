//! Opens a store by its URL.

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(feature = "sqlite"))]
use super::absent::open_sqlite;
#[cfg(not(feature = "zookeeper"))]
use super::absent::open_zookeeper;
#[cfg(not(feature = "postgres"))]
use super::absent::{init_postgres, open_postgres, postgres_sql};
#[cfg(not(feature = "quorum"))]
use super::absent::{init_quorum, open_quorum, quorum_plan, replace_quorum};
#[cfg(not(feature = "redis"))]
use super::absent::{init_redis, open_redis, redis_script};
use super::memory::Memory;
#[cfg(feature = "postgres")]
use super::postgres::{init_postgres, open_url as open_postgres, postgres_sql};
#[cfg(feature = "quorum")]
use super::quorum::{init_quorum, open_url as open_quorum, quorum_plan, replace_quorum};
#[cfg(feature = "redis")]
use super::redis::{init_redis, open_url as open_redis, redis_script};
use super::scheme::{is_of_redis, several_servers};
#[cfg(feature = "sqlite")]
use super::sqlite::open_url as open_sqlite;
#[cfg(feature = "zookeeper")]
use super::zookeeper::open_url as open_zookeeper;
use super::{Error, Store, TableSettings};

/// Sets up the store at this URL, if its kind needs it.
///
/// For `postgres://` this makes the tables and functions. When it is run again, it repairs what is missing and changes
/// only what the settings name. For `redis://` and `redis+sentinel://` with `max_ttl` it notes that the server is new,
/// as `Redis::init` does, and refuses one that is not. For `redis+quorum://` it makes the servers members, as
/// `Quorum::init` does.
///
/// # Errors
/// `Invalid` for a URL of a store that needs no set-up, or that was not compiled in; `Misconfigured` if a server in
/// Redis is not new; otherwise the errors of the store's requests.
///
/// # Cancel safety
/// Dropping the future leaves the outcome unknown: run it again.
pub async fn init(url: &str, settings: TableSettings, limit: Duration) -> Result<(), Error> {
    match kind_to_init(url)? {
        NeedsInit::Quorum => init_quorum(url, settings, limit).await,
        NeedsInit::Redis => init_redis(url, settings, limit).await,
        NeedsInit::Postgres => init_postgres(url, settings, limit).await,
    }
}

/// Makes the servers of the quorum at this URL its members in place of those at the URL `old`, as `Quorum::replace`
/// does.
///
/// # Errors
/// `Invalid` unless both are quorums; otherwise as for [`init`].
///
/// # Cancel safety
/// Dropping the future leaves the outcome unknown: run it again.
pub async fn replace(url: &str, old: &str, from_clock: bool, limit: Duration) -> Result<(), Error> {
    replace_quorum(url, old, from_clock, limit).await
}

/// Returns the SQL, or the Lua script for a server in Redis, that [`init`] would run, for an administrator to run. For
/// a quorum, it says what `init` would do.
///
/// # Errors
/// `Invalid`, as for [`init`].
pub fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    match kind_to_init(url)? {
        NeedsInit::Quorum => quorum_plan(url, None, settings),
        NeedsInit::Redis => redis_script(url, settings),
        NeedsInit::Postgres => postgres_sql(url, settings),
    }
}

/// Says what [`replace`] would do: which members it closes, how long it waits, and which it writes. It asks no server.
///
/// # Errors
/// `Invalid`, as for [`replace`].
pub fn replace_script(url: &str, old: &str) -> Result<String, Error> {
    quorum_plan(url, Some(old), TableSettings::default())
}

/// A kind of store that needs a set-up.
enum NeedsInit {
    Postgres,
    Quorum,
    Redis,
}

fn kind_to_init(url: &str) -> Result<NeedsInit, Error> {
    let scheme = url.split(':').next().unwrap_or_default();
    let of_quorum = several_servers(scheme).is_some_and(|(_, kind)| kind == "quorum");
    let refused = |why| Err(Error::invalid(format!("init refused: {why}")));
    match scheme {
        _ if of_quorum => Ok(NeedsInit::Quorum),
        "postgres" | "postgresql" => Ok(NeedsInit::Postgres),
        _ if is_of_redis(scheme) => Ok(NeedsInit::Redis),
        _ => refused(
            "only a store in Postgres, on a Redis server with max_ttl, or on a quorum needs a set-up; expected postgres://, \
             redis://, redis+sentinel:// or redis+quorum://",
        ),
    }
}

/// Opens the store at this URL: `redis://`, `rediss://`, `redis+unix:`, `redis+sentinel://`, `redis+cluster://`,
/// `redis+quorum://`, `postgres://`, `zookeeper://`, `sqlite:PATH` or `memory:`.
///
/// # Errors
/// `Invalid` for a URL of another scheme, or of a store that was not compiled in; otherwise the errors of opening the
/// store. The URL's secrets are not in the message.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" => Ok(Arc::new(Memory::new())),
        "sqlite" => open_sqlite(rest).await,
        _ if is_of_redis(scheme) => open_redis(url),
        _ if several_servers(scheme).is_some() => open_quorum(url),
        "postgres" | "postgresql" => open_postgres(url),
        "zookeeper" => open_zookeeper(url),
        // The URL is not shown: if its scheme was forgotten, a password may be in it.
        _ => Err(Error::invalid(
            "store URL refused: unknown scheme; expected redis://, rediss://, redis+unix:, redis+sentinel://, redis+cluster://, redis+quorum://, postgres://, zookeeper://, sqlite:PATH or memory:",
        )),
    }
}
