//! A bucket of a server that speaks S3, behind a network that passes bytes.

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
        let server = BucketServer::start(Program::Moto).await;
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
