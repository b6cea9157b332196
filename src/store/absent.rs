//! Answers for a URL of a store that was not compiled in: an error that names the feature.

use std::sync::Arc;
use std::time::Duration;

use super::{Error, Store, TableSettings};

#[cfg_attr(
    all(feature = "sqlite", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) async fn open_sqlite(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("sqlite"))
}

#[cfg_attr(
    all(feature = "postgres", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) fn open_postgres(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("postgres"))
}

#[cfg_attr(
    all(feature = "postgres", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) async fn init_postgres(_: &str, _: TableSettings, _: Duration) -> Result<(), Error> {
    Err(absent("postgres"))
}

#[cfg_attr(
    all(feature = "postgres", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) fn postgres_sql(_: &str, _: TableSettings) -> Result<String, Error> {
    Err(absent("postgres"))
}

#[cfg_attr(
    all(feature = "redis", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) async fn init_redis(_: &str, _: TableSettings, _: Duration) -> Result<(), Error> {
    Err(absent("redis"))
}

#[cfg_attr(
    all(feature = "redis", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) fn redis_script(_: &str, _: TableSettings) -> Result<String, Error> {
    Err(absent("redis"))
}

#[cfg_attr(
    all(feature = "redis", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) fn open_redis(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("redis"))
}

#[cfg_attr(
    all(feature = "quorum", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) fn open_quorum(_: &str) -> Result<Arc<dyn Store>, Error> {
    Err(absent("quorum"))
}

#[cfg_attr(
    all(feature = "quorum", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) async fn init_quorum(_: &str, _: TableSettings, _: Duration) -> Result<(), Error> {
    Err(absent("quorum"))
}

#[cfg_attr(
    all(feature = "quorum", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) async fn replace_quorum(_: &str, _: &str, _: bool, _: Duration) -> Result<(), Error> {
    Err(absent("quorum"))
}

#[cfg_attr(
    all(feature = "quorum", not(test)),
    expect(dead_code, reason = "the store is there")
)]
pub(super) fn quorum_plan(_: &str, _: Option<&str>, _: TableSettings) -> Result<String, Error> {
    Err(absent("quorum"))
}

#[cfg_attr(
    all(feature = "zookeeper", not(test)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[tokio::test]
    async fn a_store_that_is_not_compiled_in_names_its_feature() {
        let limit = Duration::from_secs(1);
        let settings = TableSettings::default();
        for (error, feature) in [
            (open_sqlite("/a").await.err(), "sqlite"),
            (open_redis("redis://a").err(), "redis"),
            (open_quorum("redis+quorum://a,b,c").err(), "quorum"),
            (
                init_quorum("redis+quorum://a,b,c", settings, limit)
                    .await
                    .err(),
                "quorum",
            ),
            (replace_quorum("", "", false, limit).await.err(), "quorum"),
            (quorum_plan("", None, settings).err(), "quorum"),
            (open_postgres("postgres://a/b").err(), "postgres"),
            (
                init_postgres("postgres://a/b", settings, limit).await.err(),
                "postgres",
            ),
            (postgres_sql("postgres://a/b", settings).err(), "postgres"),
            (
                init_redis("redis://a", settings, limit).await.err(),
                "redis",
            ),
            (redis_script("redis://a", settings).err(), "redis"),
            (open_zookeeper("zookeeper://a").err(), "zookeeper"),
        ] {
            let error = error.expect("refused");
            // The tool exits with 64.
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let feature = format!("expected the feature {feature:?}");
            assert!(error.to_string().contains(&feature), "{error}");
        }
    }
}
