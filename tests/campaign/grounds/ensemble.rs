//! Three ZooKeeper servers, with networks between them.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use super::zookeeper::step_clock;
use super::{Ground, eventually, pause};
use crate::fault::Fault;
use crate::harness::relay::Passing;
use crate::harness::zookeeper_server::peers::PeerNetwork;
use crate::harness::zookeeper_server::{ZookeeperEnsemble, ZookeeperServer};
use crate::history::Promise;

const TICK: Duration = Duration::from_millis(500);
/// How long a leader waits for the majority before it gives up: its `syncLimit`, and some more.
const SYNC_LIMIT: Duration = TICK.saturating_mul(6);

pub(super) struct EnsembleGround {
    ensemble: ZookeeperEnsemble,
    between: PeerNetwork,
}

impl EnsembleGround {
    pub(super) async fn start() -> Self {
        let (ensemble, between) = PeerNetwork::start(TICK).await;
        Self { ensemble, between }
    }

    /// Cuts these servers off from the others, and connects them again. Clients still reach all of them.
    async fn cut_off(&self, servers: &[usize], hold: Duration) {
        self.between.pass(servers, Passing::Nothing);
        pause(SYNC_LIMIT + hold).await;
        self.between.pass(servers, Passing::All);
    }

    /// On a busy machine one can be elected that no fault made necessary.
    async fn leader(&self) -> &ZookeeperServer {
        eventually("a leader", async || self.ensemble.elected()).await
    }

    async fn stop(servers: &[ZookeeperServer], hold: Duration) {
        servers.iter().for_each(ZookeeperServer::pause);
        pause(hold).await;
        servers.iter().for_each(ZookeeperServer::resume);
    }
}

#[async_trait(?Send)]
impl Ground for EnsembleGround {
    fn url(&self) -> String {
        self.ensemble.url("")
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerKilled,
            Fault::ServerStopped,
            Fault::ClockAhead,
            Fault::ClockBehind,
            Fault::MinorityStopped,
            Fault::MajorityStopped,
            Fault::MinorityCutOff,
            Fault::MajorityCutOff,
        ]
    }

    /// A step forward of the leader's clock ends terms too early. No data is lost here, so no token rests on a clock.
    fn suspends(&self, fault: Fault) -> Vec<Promise> {
        match fault {
            Fault::ClockAhead => vec![Promise::Exclusion],
            Fault::ClockBehind => Vec::new(),
            _ => fault.suspends(),
        }
    }

    /// What a step has done to a lease it has done at once.
    fn echo(&self, _: Fault) -> Duration {
        Duration::ZERO
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, random: &mut Rng) {
        let servers = &self.ensemble.servers;
        match fault {
            Fault::ServerKilled => {
                let leader = self.leader().await;
                leader.kill();
                pause(hold).await;
                leader.run();
            }
            Fault::ServerStopped => {
                let leader = self.leader().await;
                leader.pause();
                pause(hold).await;
                leader.resume();
            }
            Fault::ClockAhead | Fault::ClockBehind => {
                step_clock(self.leader().await, fault);
            }
            Fault::MinorityStopped => {
                let one = random.usize(..3);
                Self::stop(&servers[one..=one], hold).await;
            }
            Fault::MajorityStopped => Self::stop(&servers[1..], hold).await,
            Fault::MinorityCutOff => self.cut_off(&[random.usize(..3)], hold).await,
            _ => self.cut_off(&[1, 2], hold).await,
        }
        self.ensemble.serving().await;
    }
}
