//! From a URL to an open store.

use std::sync::Arc;

#[cfg(not(feature = "redis"))]
use super::absent::open_redis;
#[cfg(not(feature = "sqlite"))]
use super::absent::open_sqlite;
use super::memory::Memory;
#[cfg(feature = "redis")]
use super::redis::open_url as open_redis;
#[cfg(feature = "sqlite")]
use super::sqlite::open_url as open_sqlite;
use super::{Error, Store};

/// Opens the store at this URL: `redis://`, `rediss://`, `redis+unix:`, `sqlite:PATH` or `memory:`.
///
/// # Errors
/// `Invalid` for a URL of another scheme, or of a store that was not compiled in; otherwise as the store's opening. The
/// URL's secrets are not in the message.
///
/// # Cancel safety
/// Dropping it leaves nothing behind.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" => Ok(Arc::new(Memory::new())),
        "sqlite" => open_sqlite(rest).await,
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix" => open_redis(url),
        // Not shown: where the scheme was forgotten, a password stands there.
        _ => Err(Error::invalid(
            "store URL refused: unknown scheme; expected redis://, rediss://, redis+unix:, sqlite:PATH or memory:",
        )),
    }
}
