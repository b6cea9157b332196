//! One ZooKeeper server, behind a network that passes bytes.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use leasehold::clock::Instant;
use tempfile::TempDir;

use super::{Ground, eventually, pass_only, pause};
use crate::fault::Fault;
use crate::harness::full_disk::Full;
use crate::harness::relay::{Passing, Relay};
use crate::harness::wait::now;
use crate::harness::zookeeper_server::ZookeeperServer;
use crate::history::Promise;

pub(super) struct ZookeeperGround {
    server: ZookeeperServer,
    relay: Relay,
    /// What it remembered a while ago.
    old: Option<TempDir>,
    /// When it last lost data.
    lost_at: Option<Instant>,
    /// Until when tokens can be behind the last one, if that is lost.
    stepped_until: Option<Instant>,
}

/// A loss of data and a step of the clock within this time belong together: a client knows the clock by its last write, and
/// waits for seconds without one.
const TOGETHER: Duration = Fault::STEP.saturating_mul(3);
/// A client that knows the clock of before a loss of data mints by it for a minute, also once that is stepped.
const AFTER_LOSS: Duration = Duration::from_secs(60).saturating_add(Fault::STEP);

impl ZookeeperGround {
    pub(super) async fn start() -> Self {
        let server = ZookeeperServer::start_on_own_machine(Duration::from_millis(500)).await;
        let relay = Relay::before_port(server.port()).await;
        Self {
            server,
            relay,
            old: None,
            lost_at: None,
            stepped_until: None,
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
        if fault != Fault::ServerKilled {
            self.lost_at = Some(now());
            if self.is_unsure_of_time() {
                self.stepped_until = Some(now().after(AFTER_LOSS));
            }
        }
        self.server.run();
        self.server.serving().await;
    }

    fn has_lost_within(&self, time: Duration) -> bool {
        self.lost_at.is_some_and(|at| now().since(at) < time)
    }

    /// Whether tokens that rest on the clock can fall: it, or what a client knows of it, can be behind the clock that minted the
    /// last ones.
    fn is_unsure_of_time(&self) -> bool {
        self.stepped_until.is_some_and(|until| now() < until)
    }

    /// Leaves its disk without room. The server ends itself at the first write that needs some, and is started again once
    /// there is room.
    async fn fill_disk(&self, hold: Duration) {
        self.server.fill_disk(Full::Data);
        eventually("the end of the server", async || {
            self.server.has_ended().then_some(())
        })
        .await;
        pause(hold).await;
        self.server.fill_disk(Full::Nothing);
        self.server.remove_empty_log();
        self.server.run();
        self.server.serving().await;
    }
}

/// Steps the wall clock of a server. It stays so until it is stepped the other way, because the one step suspends a promise
/// and the other does not.
pub(super) fn step_clock(server: &ZookeeperServer, fault: Fault) {
    server.step_clock(fault.step_ms());
}

#[async_trait(?Send)]
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
            Fault::Full,
            Fault::ClockAhead,
            Fault::ClockBehind,
            Fault::Cut,
            Fault::BlackHole,
            Fault::OneWay,
        ]
    }

    /// A step forward of the leader's clock ends terms too early. Tokens are above the last one, whatever the clock; but where
    /// the last one is lost, they rest on the clock.
    fn suspends(&self, fault: Fault) -> Vec<Promise> {
        match fault {
            Fault::RestartedEmpty | Fault::RestartedOld if self.is_unsure_of_time() => {
                vec![Promise::Exclusion, Promise::Tokens]
            }
            Fault::ClockAhead => vec![Promise::Exclusion],
            Fault::ClockBehind if self.has_lost_within(TOGETHER) => vec![Promise::Tokens],
            Fault::ClockBehind => Vec::new(),
            _ => fault.suspends(),
        }
    }

    /// What a step has done to a lease it has done at once.
    fn echo(&self, _: Fault) -> Duration {
        Duration::ZERO
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, _: &mut Rng) {
        match fault {
            Fault::Cut => self.relay.cut(),
            Fault::BlackHole => pass_only(&self.relay, Passing::Nothing, hold).await,
            Fault::OneWay => pass_only(&self.relay, Passing::Requests, hold).await,
            Fault::ServerStopped => {
                self.server.pause();
                pause(hold).await;
                self.server.resume();
            }
            Fault::Full => self.fill_disk(hold).await,
            Fault::ClockAhead | Fault::ClockBehind => {
                step_clock(&self.server, fault);
                let time = match self.has_lost_within(AFTER_LOSS) {
                    true => AFTER_LOSS,
                    false => TOGETHER,
                };
                self.stepped_until = self.stepped_until.max(Some(now().after(time)));
            }
            _ => self.restart(fault, hold).await,
        }
    }
}
