//! A bucket of a server that speaks S3, behind a network that passes bytes. The server is the one that answers several
//! requests at a time: on moto a run has a handful of writes.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use super::{Ground, pass_only, pause};
use crate::fault::Fault;
use crate::harness::bucket_server::{BucketServer, Program};
use crate::harness::relay::{Passing, Relay};

pub(super) struct BucketGround {
    server: BucketServer,
    relay: Relay,
}

impl BucketGround {
    pub(super) async fn start() -> Self {
        let server = BucketServer::start(Program::Versitygw).await;
        let relay = Relay::before_port(server.port()).await;
        Self { server, relay }
    }
}

#[async_trait(?Send)]
impl Ground for BucketGround {
    fn url(&self) -> String {
        self.server.leases_url_by("campaign", self.relay.port())
    }

    fn direct_url(&self) -> String {
        self.server.leases_url("campaign")
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerStopped,
            Fault::Cut,
            Fault::BlackHole,
            Fault::OneWay,
        ]
    }

    /// Nothing tells a waiting client that the name is free: it looks each second.
    fn grants_late_by(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, _: &mut Rng) {
        match fault {
            Fault::ServerStopped => {
                self.server.process.pause();
                pause(hold).await;
                self.server.process.resume();
            }
            Fault::Cut => self.relay.cut(),
            Fault::OneWay => pass_only(&self.relay, Passing::Requests, hold).await,
            _ => pass_only(&self.relay, Passing::Nothing, hold).await,
        }
    }
}
