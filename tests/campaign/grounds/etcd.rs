//! Three members of etcd, each behind a network of its own that passes bytes to clients.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use super::{Ground, pass_only, pause};
use crate::fault::Fault;
use crate::harness::etcd_server::{EtcdCluster, EtcdServer};
use crate::harness::relay::{Passing, Relay};

const PREFIX: &str = "campaign";

pub(super) struct EtcdGround {
    cluster: EtcdCluster,
    relays: Vec<Relay>,
}

impl EtcdGround {
    pub(super) async fn start() -> Self {
        let cluster = EtcdCluster::start().await;
        let mut relays = Vec::new();
        for server in &cluster.servers {
            relays.push(Relay::before_port(server.port()).await);
        }
        Self { cluster, relays }
    }

    fn url_of(ports: impl Iterator<Item = u16>) -> String {
        let servers = ports.map(|port| format!("127.0.0.1:{port}"));
        let servers = servers.collect::<Vec<_>>().join(",");
        format!("etcd://{servers}?prefix={PREFIX}")
    }

    async fn stop(servers: &[EtcdServer], hold: Duration) {
        servers.iter().for_each(EtcdServer::pause);
        pause(hold).await;
        servers.iter().for_each(EtcdServer::resume);
    }
}

#[async_trait(?Send)]
impl Ground for EtcdGround {
    fn url(&self) -> String {
        Self::url_of(self.relays.iter().map(Relay::port))
    }

    fn direct_url(&self) -> String {
        Self::url_of(self.cluster.servers.iter().map(EtcdServer::port))
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerStopped,
            Fault::ServerKilled,
            Fault::Cut,
            Fault::BlackHole,
            Fault::OneWay,
            Fault::MinorityStopped,
            Fault::MajorityStopped,
        ]
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, random: &mut Rng) {
        let one = random.usize(..3);
        match fault {
            Fault::Cut => self.relays.iter().for_each(Relay::cut),
            // Each client has the others to go to.
            Fault::BlackHole => pass_only(&self.relays[one], Passing::Nothing, hold).await,
            Fault::OneWay => pass_only(&self.relays[one], Passing::Requests, hold).await,
            Fault::ServerKilled => {
                let leader = self.cluster.leader().await;
                self.cluster.servers[leader].kill();
                pause(hold).await;
                self.cluster.servers[leader].run();
            }
            Fault::ServerStopped => {
                let leader = self.cluster.leader().await;
                Self::stop(&self.cluster.servers[leader..=leader], hold).await;
            }
            Fault::MinorityStopped => Self::stop(&self.cluster.servers[one..=one], hold).await,
            _ => Self::stop(&self.cluster.servers[1..], hold).await,
        }
        self.cluster.leader().await;
    }

    /// Nothing but the marks, which have the last tokens.
    async fn left_for_ever(&self) -> Vec<String> {
        let keys = self.cluster.servers[0].keys(&format!("{PREFIX}/")).await;
        let left = keys.into_iter().filter(|(key, lease)| {
            !key.starts_with(&format!("{PREFIX}/{{mark}}/")) && lease.is_empty()
        });
        left.map(|(key, _)| key).collect()
    }
}
