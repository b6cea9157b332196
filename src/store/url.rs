//! Opens a store by its URL.

use std::sync::Arc;
use std::time::Duration;

use super::memory::Memory;
#[cfg(feature = "quorum")]
use super::quorum::Quorum;
use super::{Error, Store, TableSettings};
use crate::kinds::{self, StoreKind};

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
    let (kind, url) = StoreKind::of(url)?;
    let _ = url;
    match kind.word {
        #[cfg(feature = "quorum")]
        "quorum" => super::quorum::to_set_up(url, settings)?.init(limit).await,
        #[cfg(feature = "redis")]
        "redis" => super::redis::init_redis(url, settings, limit).await,
        #[cfg(feature = "postgres")]
        "postgres" => super::postgres::init_postgres(url, settings, limit).await,
        _ => Err(without_init(kind)),
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
    let (kind, url) = StoreKind::of(url)?;
    let _ = url;
    match kind.word {
        #[cfg(feature = "quorum")]
        "quorum" => {
            let (new, old) = (Quorum::open(url)?, Quorum::open(old)?);
            new.replace(&old, from_clock, limit).await
        }
        _ => Err(without_replace(kind)),
    }
}

/// Returns the SQL, or the Lua script for a server in Redis, that [`init`] would run, for an administrator to run. For
/// a quorum, it says what `init` would do.
///
/// # Errors
/// `Invalid`, as for [`init`].
pub fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    let _ = settings;
    let (kind, url) = StoreKind::of(url)?;
    let _ = url;
    match kind.word {
        #[cfg(feature = "quorum")]
        "quorum" => Ok(super::quorum::to_set_up(url, settings)?.plan(None)),
        #[cfg(feature = "redis")]
        "redis" => super::redis::redis_script(url, settings),
        #[cfg(feature = "postgres")]
        "postgres" => super::postgres::postgres_sql(url, settings),
        _ => Err(without_init(kind)),
    }
}

/// Says what [`replace`] would do: which members it closes, how long it waits, and which it writes. It asks no server.
///
/// # Errors
/// `Invalid`, as for [`replace`].
pub fn replace_script(url: &str, old: &str) -> Result<String, Error> {
    let _ = old;
    let (kind, url) = StoreKind::of(url)?;
    let _ = url;
    match kind.word {
        #[cfg(feature = "quorum")]
        "quorum" => Ok(Quorum::open(url)?.plan(Some(&Quorum::open(old)?))),
        _ => Err(without_replace(kind)),
    }
}

/// Opens the store at this URL: `redis://`, `rediss://`, `redis+unix:`, `redis+sentinel://`, `redis+cluster://`,
/// `redis+quorum://`, `postgres://`, `zookeeper://`, `sqlite:PATH` or `memory:`. White space around it is dropped. The
/// pages of the stores have the parameters; in the path and the parameters of a store on servers all but ASCII letters,
/// digits and `-._~/:` is written as `%XX`.
///
/// # Errors
/// `Invalid` for a URL of another scheme, or of a store that was not compiled in; otherwise the errors of opening the
/// store. The URL's secrets are not in the message.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    let (kind, url) = StoreKind::of(url)?;
    let _ = url;
    match kind.word {
        "memory" => Ok(Arc::new(Memory::new())),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(
            super::sqlite::Sqlite::open(kinds::path_of(url)?).await?,
        )),
        #[cfg(feature = "redis")]
        "redis" => super::redis::open_url(url),
        #[cfg(feature = "quorum")]
        "quorum" => Ok(Arc::new(Quorum::open(url)?)),
        #[cfg(feature = "postgres")]
        "postgres" => super::postgres::open_url(url),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => super::zookeeper::open_url(url),
        _ => Err(kind.absent()),
    }
}

/// Returns a store's URL without white space around it, if other processes can reach the same store. It asks no server
/// and opens no file; what follows the scheme of a store on servers is read by [`open`].
///
/// # Errors
/// `Invalid` for `memory:`, and for a text that [`open`] refuses by its scheme or as that of another program. The
/// message shows nothing of the text.
pub fn shared_url(text: &str) -> Result<&str, Error> {
    let (kind, url) = StoreKind::of(text)?;
    if !kind.is_shared {
        return Err(Error::invalid(format!(
            "store URL \"{}\" refused: no other process would see its leases; expected {}",
            kind.form,
            kinds::forms(|kind| kind.is_shared)
        )));
    }
    if kind.word == "sqlite" {
        kinds::path_of(url)?;
    }
    Ok(url)
}

/// Makes the error for a set-up of a store that needs none, or that is not compiled in.
fn without_init(kind: &StoreKind) -> Error {
    match kind.word {
        "postgres" | "redis" | "quorum" => kind.absent(),
        _ => Error::invalid(
            "init refused: only a store in Postgres, on a Redis server with max_ttl, or on a quorum needs a set-up; \
             expected postgres://, redis://, redis+sentinel:// or redis+quorum://",
        ),
    }
}

/// Makes the error for other servers in place of those of a store that is no quorum, or that is not compiled in.
fn without_replace(kind: &StoreKind) -> Error {
    match kind.word {
        "quorum" => kind.absent(),
        _ => Error::invalid("replace refused: expected the URL of a quorum, redis+quorum://"),
    }
}
