//! One ZooKeeper server, behind a network that passes bytes.

use std::time::Duration;

use fastrand::Rng;
use tempfile::TempDir;

use super::{Ground, LocalBoxFuture, pass_only, pause};
use crate::fault::Fault;
use crate::harness::relay::{Passing, Relay};
use crate::harness::zookeeper_server::ZookeeperServer;

pub(super) struct ZookeeperGround {
    server: ZookeeperServer,
    relay: Relay,
    /// What it remembered a while ago.
    old: Option<TempDir>,
}

impl ZookeeperGround {
    pub(super) async fn start() -> Self {
        let server = ZookeeperServer::start(Duration::from_millis(500)).await;
        let relay = Relay::before_port(server.port()).await;
        Self {
            server,
            relay,
            old: None,
        }
    }

    async fn restart(&mut self, fault: Fault, hold: Duration) {
        self.server.kill();
        match fault {
            Fault::RestartedEmpty => self.server.empty(),
            Fault::RestartedOld => {
                let old = self.old.replace(self.server.snapshot());
                if let Some(old) = old {
                    self.server.restore(&old);
                }
            }
            _ => pause(hold).await,
        }
        self.server.run();
        self.server.serving().await;
    }
}

impl Ground for ZookeeperGround {
    fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}", self.relay.port())
    }

    fn direct_url(&self) -> String {
        self.server.url("")
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerStopped,
            Fault::ServerKilled,
            Fault::RestartedEmpty,
            Fault::RestartedOld,
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
                Fault::Cut => self.relay.cut(),
                Fault::BlackHole => pass_only(&self.relay, Passing::Nothing, hold).await,
                Fault::OneWay => pass_only(&self.relay, Passing::Requests, hold).await,
                Fault::ServerStopped => {
                    self.server.pause();
                    pause(hold).await;
                    self.server.resume();
                }
                _ => self.restart(fault, hold).await,
            }
        })
    }
}
