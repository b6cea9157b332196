//! Three ZooKeeper servers.

use std::time::Duration;

use fastrand::Rng;

use super::{Ground, LocalBoxFuture, pause};
use crate::fault::Fault;
use crate::harness::zookeeper_server::{ZookeeperEnsemble, ZookeeperServer};

pub(super) struct EnsembleGround {
    ensemble: ZookeeperEnsemble,
}

impl EnsembleGround {
    pub(super) async fn start() -> Self {
        let ensemble = ZookeeperEnsemble::start(Duration::from_millis(500)).await;
        Self { ensemble }
    }

    async fn stop(servers: &[ZookeeperServer], hold: Duration) {
        servers.iter().for_each(ZookeeperServer::pause);
        pause(hold).await;
        servers.iter().for_each(ZookeeperServer::resume);
    }
}

impl Ground for EnsembleGround {
    fn url(&self) -> String {
        self.ensemble.url("")
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerKilled,
            Fault::ServerStopped,
            Fault::MinorityStopped,
            Fault::MajorityStopped,
        ]
    }

    fn strike<'a>(
        &'a mut self,
        fault: Fault,
        hold: Duration,
        random: &'a mut Rng,
    ) -> LocalBoxFuture<'a, ()> {
        Box::pin(async move {
            let servers = &self.ensemble.servers;
            match fault {
                Fault::ServerKilled => {
                    let leader = self.ensemble.leader();
                    leader.kill();
                    pause(hold).await;
                    leader.run();
                }
                Fault::ServerStopped => {
                    let leader = self.ensemble.leader();
                    leader.pause();
                    pause(hold).await;
                    leader.resume();
                }
                Fault::MinorityStopped => {
                    let one = random.usize(..3);
                    Self::stop(&servers[one..=one], hold).await;
                }
                _ => Self::stop(&servers[1..], hold).await,
            }
            self.ensemble.serving().await;
        })
    }
}
