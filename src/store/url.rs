//! Opens a store by its URL.

use std::sync::Arc;
use std::time::Duration;

use super::memory::Memory;
#[cfg(feature = "quorum")]
use super::quorum::Quorum;
use super::scheme::{is_of_redis, several_servers};
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
    // They are unused if none of these stores is compiled in.
    let _ = (settings, limit);
    match feature_of(url) {
        #[cfg(feature = "quorum")]
        Some("quorum") => super::quorum::to_set_up(url, settings)?.init(limit).await,
        #[cfg(feature = "redis")]
        Some("redis") => super::redis::init_redis(url, settings, limit).await,
        #[cfg(feature = "postgres")]
        Some("postgres") => super::postgres::init_postgres(url, settings, limit).await,
        feature => Err(without_init(feature)),
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
    let _ = (old, from_clock, limit);
    match feature_of(url) {
        #[cfg(feature = "quorum")]
        Some("quorum") => {
            let (new, old) = (Quorum::open(url)?, Quorum::open(old)?);
            new.replace(&old, from_clock, limit).await
        }
        feature => Err(without_replace(feature)),
    }
}

/// Returns the SQL, or the Lua script for a server in Redis, that [`init`] would run, for an administrator to run. For
/// a quorum, it says what `init` would do.
///
/// # Errors
/// `Invalid`, as for [`init`].
pub fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    let _ = settings;
    match feature_of(url) {
        #[cfg(feature = "quorum")]
        Some("quorum") => Ok(super::quorum::to_set_up(url, settings)?.plan(None)),
        #[cfg(feature = "redis")]
        Some("redis") => super::redis::redis_script(url, settings),
        #[cfg(feature = "postgres")]
        Some("postgres") => super::postgres::postgres_sql(url, settings),
        feature => Err(without_init(feature)),
    }
}

/// Says what [`replace`] would do: which members it closes, how long it waits, and which it writes. It asks no server.
///
/// # Errors
/// `Invalid`, as for [`replace`].
pub fn replace_script(url: &str, old: &str) -> Result<String, Error> {
    let _ = old;
    match feature_of(url) {
        #[cfg(feature = "quorum")]
        Some("quorum") => Ok(Quorum::open(url)?.plan(Some(&Quorum::open(old)?))),
        feature => Err(without_replace(feature)),
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
    match feature_of(url) {
        None if url.split(':').next() == Some("memory") => Ok(Arc::new(Memory::new())),
        // The URL is not shown: if its scheme was forgotten, a password may be in it.
        None => Err(Error::invalid(
            "store URL refused: unknown scheme; expected redis://, rediss://, redis+unix:, redis+sentinel://, redis+cluster://, redis+quorum://, postgres://, zookeeper://, sqlite:PATH or memory:",
        )),
        #[cfg(feature = "sqlite")]
        Some("sqlite") => {
            let (_, path) = url.split_once(':').unwrap_or_default();
            super::sqlite::open_url(path).await
        }
        #[cfg(feature = "redis")]
        Some("redis") => super::redis::open_url(url),
        #[cfg(feature = "quorum")]
        Some("quorum") => Ok(Arc::new(Quorum::open(url)?)),
        #[cfg(feature = "postgres")]
        Some("postgres") => super::postgres::open_url(url),
        #[cfg(feature = "zookeeper")]
        Some("zookeeper") => super::zookeeper::open_url(url),
        Some(feature) => Err(absent(feature)),
    }
}

/// Returns the feature that the store at a URL of this scheme needs, if there is such a store and it needs one.
fn feature_of(url: &str) -> Option<&'static str> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "sqlite" => Some("sqlite"),
        "postgres" | "postgresql" => Some("postgres"),
        "zookeeper" => Some("zookeeper"),
        _ if is_of_redis(scheme) => Some("redis"),
        _ if several_servers(scheme).is_some() => Some("quorum"),
        _ => None,
    }
}

/// Makes the error for the URL of a store that is not compiled in, which needs this feature.
fn absent(feature: &str) -> Error {
    Error::invalid(format!(
        "store URL refused: this store is not compiled in; expected the feature {feature:?}"
    ))
}

/// Makes the error for a set-up of a store that needs none, or that is not compiled in.
fn without_init(feature: Option<&str>) -> Error {
    match feature {
        Some(feature @ ("postgres" | "redis" | "quorum")) => absent(feature),
        _ => Error::invalid(
            "init refused: only a store in Postgres, on a Redis server with max_ttl, or on a quorum needs a set-up; \
             expected postgres://, redis://, redis+sentinel:// or redis+quorum://",
        ),
    }
}

/// Makes the error for other servers in place of those of a store that is no quorum, or that is not compiled in.
fn without_replace(feature: Option<&str>) -> Error {
    match feature {
        Some(feature @ "quorum") => absent(feature),
        _ => Error::invalid("replace refused: expected the URL of a quorum, redis+quorum://"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_store_that_is_not_compiled_in_names_its_feature() {
        for (url, feature) in [
            ("sqlite:/a", "sqlite"),
            ("rediss+cluster://a", "redis"),
            ("redis+quorum://a,b,c", "quorum"),
            ("postgresql://a/b", "postgres"),
            ("zookeeper://a", "zookeeper"),
        ] {
            assert_eq!(feature_of(url), Some(feature));
            let error = absent(feature);
            // The tool exits with 64.
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let feature = format!("expected the feature {feature:?}");
            assert!(error.to_string().contains(&feature), "{error}");
        }
        assert_eq!(feature_of("memory:"), None);
    }
}
