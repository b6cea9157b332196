//! An API server of Kubernetes of its own, behind a network that passes bytes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use super::{Ground, pass_only, pause};
use crate::fault::Fault;
use crate::harness::kubernetes_server::{KubernetesServer, Namespace};
use crate::harness::relay::{Passing, Relay};

pub(super) struct KubernetesGround {
    namespace: Namespace,
    relay: Relay,
}

impl KubernetesGround {
    pub(super) async fn start() -> Self {
        let server = Arc::new(KubernetesServer::start().await);
        let namespace = Namespace::on(server).await;
        let relay = Relay::before_port(namespace.port()).await;
        Self { namespace, relay }
    }
}

#[async_trait(?Send)]
impl Ground for KubernetesGround {
    fn url(&self) -> String {
        let host_port = format!("127.0.0.1:{}", self.relay.port());
        self.namespace.url_at("administrator", &host_port)
    }

    fn direct_url(&self) -> String {
        self.namespace.url()
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerStopped,
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
            _ => {
                self.namespace.server.process.pause();
                pause(hold).await;
                self.namespace.server.process.resume();
            }
        }
    }
}
