//! What a URL of a store that was not compiled in gets: an answer that says so.

use std::sync::Arc;

use super::{Error, Store};

#[cfg_attr(feature = "sqlite", expect(dead_code, reason = "the store is there"))]
pub(super) async fn open_sqlite(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("sqlite"))
}

#[cfg_attr(feature = "redis", expect(dead_code, reason = "the store is there"))]
pub(super) fn open_redis(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("redis"))
}

fn absent(feature: &str) -> Error {
    Error::invalid(format!(
        "store URL refused: this build has no such store; expected the feature {feature:?} to be on"
    ))
}
