//! Opens a store by its URL.

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(feature = "sqlite"))]
use super::absent::open_sqlite;
#[cfg(not(feature = "zookeeper"))]
use super::absent::open_zookeeper;
#[cfg(not(feature = "postgres"))]
use super::absent::{init_postgres, open_postgres, postgres_sql};
#[cfg(not(feature = "redis"))]
use super::absent::{open_quorum, open_redis};
use super::memory::Memory;
#[cfg(feature = "postgres")]
use super::postgres::{init_postgres, open_url as open_postgres, postgres_sql};
#[cfg(feature = "redis")]
use super::quorum::open_url as open_quorum;
#[cfg(feature = "redis")]
use super::redis::open_url as open_redis;
#[cfg(feature = "sqlite")]
use super::sqlite::open_url as open_sqlite;
#[cfg(feature = "zookeeper")]
use super::zookeeper::open_url as open_zookeeper;
use super::{Error, Store, TableSettings};

/// Makes the tables and functions of the store at this URL, if its kind needs them: `postgres://`. When it is run
/// again, it repairs what is missing and changes only what the settings name.
///
/// # Errors
/// `Invalid` for a URL of a store that needs no tables, or that was not compiled in; otherwise the errors of the
/// store's requests.
///
/// # Cancel safety
/// Dropping the future leaves the outcome unknown. The function is idempotent: run it again.
pub async fn init(url: &str, settings: TableSettings, limit: Duration) -> Result<(), Error> {
    needs_tables(url)?;
    init_postgres(url, settings, limit).await
}

/// Returns the SQL that [`init`] would run, for a database administrator to run.
///
/// # Errors
/// The same as those of [`init`].
pub fn init_sql(url: &str, settings: TableSettings) -> Result<String, Error> {
    needs_tables(url)?;
    postgres_sql(url, settings)
}

/// Returns the scheme of one server and the kind of several, `sentinel`, `cluster` or `quorum`, where a scheme of Redis
/// names several.
pub(super) fn several_servers(scheme: &str) -> Option<(&str, &str)> {
    let (of_one, several) = scheme.split_once(['+', '-'])?;
    let is_known = ["redis", "rediss", "valkey", "valkeys"].contains(&of_one)
        && ["sentinel", "cluster", "quorum"].contains(&several);
    is_known.then_some((of_one, several))
}

fn needs_tables(url: &str) -> Result<(), Error> {
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => Ok(()),
        _ => Err(Error::invalid(
            "init refused: only a store in Postgres has tables to be made; expected postgres://",
        )),
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
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix" => open_redis(url),
        _ if several_servers(scheme).is_some_and(|(_, kind)| kind == "quorum") => open_quorum(url),
        _ if several_servers(scheme).is_some() => open_redis(url),
        "postgres" | "postgresql" => open_postgres(url),
        "zookeeper" => open_zookeeper(url),
        // The URL is not shown: if its scheme was forgotten, a password may be in it.
        _ => Err(Error::invalid(
            "store URL refused: unknown scheme; expected redis://, rediss://, redis+unix:, redis+sentinel://, redis+cluster://, redis+quorum://, postgres://, zookeeper://, sqlite:PATH or memory:",
        )),
    }
}
