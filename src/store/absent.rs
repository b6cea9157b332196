//! Answers for a URL of a store that was not compiled in: an error that names the feature.

use std::sync::Arc;
use std::time::Duration;

use super::{Error, Store};

#[cfg_attr(feature = "sqlite", expect(dead_code, reason = "the store is there"))]
pub(super) async fn open_sqlite(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("sqlite"))
}

#[cfg_attr(feature = "postgres", expect(dead_code, reason = "the store is there"))]
pub(super) fn open_postgres(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("postgres"))
}

#[cfg_attr(feature = "postgres", expect(dead_code, reason = "the store is there"))]
pub(super) async fn init_postgres(_: &str, _: Option<Duration>, _: Duration) -> Result<(), Error> {
    Err(absent("postgres"))
}

#[cfg_attr(feature = "postgres", expect(dead_code, reason = "the store is there"))]
pub(super) fn postgres_sql(_: &str, _: Option<Duration>) -> Result<String, Error> {
    Err(absent("postgres"))
}

#[cfg_attr(feature = "redis", expect(dead_code, reason = "the store is there"))]
pub(super) fn open_redis(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("redis"))
}

#[cfg_attr(
    feature = "zookeeper",
    expect(dead_code, reason = "the store is there")
)]
pub(super) fn open_zookeeper(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("zookeeper"))
}

fn absent(feature: &str) -> Error {
    Error::invalid(format!(
        "store URL refused: this store is not compiled in; expected the feature {feature:?}"
    ))
}
