//! A server of MariaDB, behind a network that passes bytes to clients.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use super::{Ground, pass_only, pause};
use crate::fault::Fault;
use crate::harness::mysql_server::{MysqlServer, set_up, url_by};
use crate::harness::relay::{Passing, Relay};

const DATABASE: &str = "campaign";

pub(super) struct MysqlGround {
    server: MysqlServer,
    relay: Relay,
}

impl MysqlGround {
    pub(super) async fn start() -> Self {
        let server = MysqlServer::start().await;
        server.sql(&["CREATE DATABASE campaign"]).await;
        set_up(&server.url_as("root", DATABASE)).await;
        let relay = Relay::before_port(server.port()).await;
        Self { server, relay }
    }
}

#[async_trait(?Send)]
impl Ground for MysqlGround {
    fn url(&self) -> String {
        url_by(self.relay.port(), "root", DATABASE)
    }

    fn direct_url(&self) -> String {
        self.server.url_as("root", DATABASE)
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerStopped,
            Fault::ServerKilled,
            Fault::Cut,
            Fault::BlackHole,
            Fault::OneWay,
        ]
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, _: &mut Rng) {
        match fault {
            Fault::Cut => self.relay.cut(),
            Fault::BlackHole => pass_only(&self.relay, Passing::Nothing, hold).await,
            Fault::OneWay => pass_only(&self.relay, Passing::Requests, hold).await,
            Fault::ServerKilled => {
                self.server.kill();
                pause(hold).await;
                self.server.run();
                assert!(self.server.is_ready().await, "it starts again");
            }
            _ => {
                self.server.pause();
                pause(hold).await;
                self.server.resume();
            }
        }
    }
}
