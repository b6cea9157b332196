//! The meanings of the servers' answers, for stores and fences alike: one table per server.

#[cfg(any(feature = "mysql", feature = "mysql_async"))]
pub(crate) mod mysql;
#[cfg(any(feature = "postgres", feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "rusqlite", feature = "sqlite"))]
pub(crate) mod sqlite;
