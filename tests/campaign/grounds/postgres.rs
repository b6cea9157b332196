//! One Postgres server, behind a network that passes bytes.

use std::time::Duration;

use fastrand::Rng;
use leasehold::store;
use leasehold::store::TableSettings;

use super::{Ground, LocalBoxFuture, pass_only, pause};
use crate::fault::Fault;
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::PATIENCE;

pub(super) struct PostgresGround {
    server: PostgresServer,
    database: Database,
    relay: Relay,
}

impl PostgresGround {
    pub(super) async fn start() -> Self {
        let server = PostgresServer::start(&["fsync=off", "max_connections=100"]).await;
        let database = server.database_named("postgres");
        let settings = TableSettings::default();
        let made = store::init(&database.url(), settings, PATIENCE).await;
        made.expect("it is up");
        let relay = Relay::before(&database.socket()).await;
        Self {
            server,
            database,
            relay,
        }
    }

    async fn restart(&self, signal: &str, hold: Duration) {
        self.server.end(signal).await;
        pause(hold).await;
        self.server.start_again().await;
    }
}

impl Ground for PostgresGround {
    fn url(&self) -> String {
        let port = self.relay.port();
        format!("postgres://postgres@127.0.0.1:{port}/postgres")
    }

    fn direct_url(&self) -> String {
        self.database.url()
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerKilled,
            Fault::ServerRestarted,
            Fault::Flushed,
            Fault::Busy,
            Fault::Cut,
            Fault::BlackHole,
            Fault::OneWay,
        ]
    }

    fn strike<'a>(
        &'a mut self,
        fault: Fault,
        hold: Duration,
        _: &'a mut Rng,
    ) -> LocalBoxFuture<'a, ()> {
        Box::pin(async move {
            match fault {
                Fault::ServerKilled => self.restart("QUIT", hold).await,
                Fault::ServerRestarted => self.restart("INT", hold).await,
                Fault::Cut => self.relay.cut(),
                Fault::BlackHole => pass_only(&self.relay, Passing::Nothing, hold).await,
                Fault::OneWay => pass_only(&self.relay, Passing::Requests, hold).await,
                Fault::Flushed => {
                    let stranger = self.database.connect().await;
                    let deleted = stranger.batch_execute("DELETE FROM leasehold.lease").await;
                    deleted.expect("deleted");
                }
                _ => {
                    let stranger = self.database.connect().await;
                    let busy = format!(
                        "BEGIN; LOCK TABLE leasehold.lease; SELECT pg_sleep({}); ROLLBACK",
                        hold.as_secs_f64()
                    );
                    stranger.batch_execute(&busy).await.expect("locked");
                }
            }
        })
    }
}
