//! The store in Postgres, and the functions that are its protocol, under what servers, poolers and other transactions do.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::postgres::Postgres;
use leasehold::store::{self, Store, TableSettings};

use crate::harness::postgres_server::{Database, PostgresServer};

mod connections;
pub(crate) mod crowds;
mod errors;
pub(crate) mod functions;
mod hazards;
pub(crate) mod hosts;
mod init;
mod notices;
mod outages;
mod pooled;
mod queue;
mod renewals;
mod rules;
mod strangers;
mod tls;
mod tokens;
mod upgrade;

/// Makes the tables behind this URL.
pub(crate) async fn set_up(url: &str) {
    let made = store::init(url, TableSettings::default(), Duration::from_secs(10));
    made.await.expect("the tables are made");
}

/// The settings of tables with this longest ttl.
pub(crate) fn with_max_ttl(max_ttl: Duration) -> TableSettings {
    let mut settings = TableSettings::default();
    settings.max_ttl = Some(max_ttl);
    settings
}

/// The store at a URL that is in order.
pub(crate) fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(Postgres::open(url).expect("a URL in order"))
}

/// A server that only this test has, with the tables in its database.
pub(crate) async fn own_server() -> (PostgresServer, Database) {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    (server, database)
}

/// A fresh database with the tables in it.
async fn database() -> Database {
    let database = PostgresServer::database().await;
    set_up(&database.url()).await;
    database
}

/// A store in a fresh database.
async fn store() -> (Database, Arc<dyn Store>) {
    let database = database().await;
    let store = open(&database.url());
    (database, store)
}
