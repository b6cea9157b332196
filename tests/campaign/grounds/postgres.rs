//! One Postgres server, behind a network that passes bytes.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use leasehold::store;
use leasehold::store::TableSettings;

use super::{Ground, pass_only, pause};
use crate::fault::Fault;
use crate::harness::full_disk::{Full, FullDisk};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::relay::{Passing, Relay};
use crate::harness::server_clock::ServerClock;
use crate::harness::times::PATIENCE;

pub(super) struct PostgresGround {
    server: PostgresServer,
    database: Database,
    relay: Relay,
    clock: ServerClock,
    disk: FullDisk,
}

impl PostgresGround {
    pub(super) async fn start() -> Self {
        let settings = ["fsync=off", "max_connections=100"];
        let (server, clock, disk) = PostgresServer::start_on_own_machine(&settings).await;
        let database = server.database_named("postgres");
        let settings = TableSettings::default();
        let made = store::init(&database.url(), settings, PATIENCE).await;
        made.expect("it is up");
        let relay = Relay::before(&database.socket()).await;
        Self {
            server,
            database,
            relay,
            clock,
            disk,
        }
    }

    async fn flush(&self) {
        let stranger = self.database.connect().await;
        let deleted = stranger.batch_execute("DELETE FROM leasehold.lease").await;
        deleted.expect("deleted");
    }

    async fn restart(&self, signal: &str, hold: Duration) {
        self.server.end(signal).await;
        pause(hold).await;
        self.server.start_again().await;
    }
}

#[async_trait(?Send)]
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
            Fault::Full,
            Fault::ClockAhead,
            Fault::ClockBehind,
            Fault::FlushedBehind,
            Fault::Busy,
            Fault::Cut,
            Fault::BlackHole,
            Fault::OneWay,
        ]
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, _: &mut Rng) {
        match fault {
            Fault::ServerKilled => self.restart("QUIT", hold).await,
            Fault::ServerRestarted => self.restart("INT", hold).await,
            Fault::Cut => self.relay.cut(),
            Fault::BlackHole => pass_only(&self.relay, Passing::Nothing, hold).await,
            Fault::OneWay => pass_only(&self.relay, Passing::Requests, hold).await,
            Fault::Flushed => self.flush().await,
            Fault::Full => {
                self.disk.set(Full::Data);
                pause(hold).await;
                self.disk.set(Full::Nothing);
            }
            Fault::ClockAhead | Fault::ClockBehind | Fault::FlushedBehind => {
                self.clock.step(fault.step_ms());
                if fault == Fault::FlushedBehind {
                    self.flush().await;
                }
                pause(hold).await;
                self.clock.step(-fault.step_ms());
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
    }
}
