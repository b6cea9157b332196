//! The store on Redis under everything that servers, networks and operators do to it.

use std::sync::Arc;

use leasehold::Error;
use leasehold::store::Store;
use leasehold::store::redis::Redis;

mod batches;
mod errors;
mod holder;
mod lost_replies;
mod rights;
mod scripts;
mod tokens;
mod weather;
mod wire;

/// The store at this URL, or why it cannot be opened.
fn try_open(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(Redis::open(url)?))
}

/// The store at a URL that is in order.
fn open(url: &str) -> Arc<dyn Store> {
    try_open(url).expect("a URL in order")
}
