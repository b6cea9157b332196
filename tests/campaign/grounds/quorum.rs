//! A quorum of three servers that know nothing of each other, each behind a network that passes bytes. Most faults strike
//! one of them, which the seed draws.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use super::redis::{left_for_ever, strike_server};
use super::{Ground, pass_only, pause};
use crate::fault::Fault;
use crate::harness::redis_quorum::{RedisQuorum, Watch};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::relay::{Passing, Relay};
use crate::history::Promise;

const MEMBERS: usize = 3;
/// The tool's ttl, the longest of a campaign: for that long a member keeps out that came back without its data.
const MAX_TTL: Duration = Duration::from_secs(4);

pub(super) struct QuorumGround {
    quorum: RedisQuorum,
    /// Takes members in that lost their data: all others reach them through the relays.
    _watch: Watch,
    relays: Vec<Relay>,
    /// A snapshot of each, of a while ago.
    old: Vec<Vec<u8>>,
}

impl QuorumGround {
    pub(super) async fn start() -> Self {
        let setup = || Setup::default().with_clock();
        let quorum = RedisQuorum::with(MEMBERS, setup, MAX_TTL).await;
        let (mut relays, mut old) = (Vec::new(), Vec::new());
        for server in &quorum.servers {
            relays.push(Relay::before(&server.socket()).await);
            old.push(server.snapshot().await);
        }
        Self {
            _watch: quorum.watch(),
            quorum,
            relays,
            old,
        }
    }

    /// Stops these members, and lets them go on.
    async fn stop(members: &[RedisServer], hold: Duration) {
        members.iter().for_each(RedisServer::pause);
        pause(hold).await;
        members.iter().for_each(RedisServer::resume);
    }

    /// Cuts off these members, and connects them again.
    async fn cut_off(relays: &[Relay], hold: Duration) {
        relays.iter().for_each(|relay| relay.pass(Passing::Nothing));
        pause(hold).await;
        relays.iter().for_each(|relay| relay.pass(Passing::All));
    }
}

#[async_trait(?Send)]
impl Ground for QuorumGround {
    fn url(&self) -> String {
        let servers = self.relays.iter();
        let servers: Vec<_> = servers
            .map(|relay| format!("127.0.0.1:{}", relay.port()))
            .collect();
        format!("redis+quorum://{}?max_ttl=4s", servers.join(","))
    }

    fn direct_url(&self) -> String {
        format!("{}?max_ttl=4s", self.quorum.url())
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::ServerStopped,
            Fault::ServerKilled,
            Fault::RestartedEmpty,
            Fault::RestartedOld,
            Fault::Flushed,
            Fault::Full,
            Fault::ClockAhead,
            Fault::ClockBehind,
            Fault::FlushedBehind,
            Fault::ScriptsFlushed,
            Fault::Busy,
            Fault::Cut,
            Fault::OneWay,
            Fault::MajorityStopped,
            Fault::MinorityCutOff,
            Fault::MajorityCutOff,
        ]
    }

    /// A member that was restarted keeps out, and no token rests on a clock as long as a majority is in. One clock that gains more
    /// than the margin within a ttl can give the name away too early; a clock that was behind gains when it is set right.
    fn suspends(&self, fault: Fault) -> Vec<Promise> {
        match fault {
            Fault::RestartedEmpty | Fault::RestartedOld | Fault::Flushed => Vec::new(),
            Fault::ClockAhead | Fault::ClockBehind => vec![Promise::Exclusion],
            _ => fault.suspends(),
        }
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, random: &mut Rng) {
        let one = random.usize(..MEMBERS);
        let two = match random.bool() {
            true => 0..2,
            false => 1..3,
        };
        match fault {
            Fault::ServerStopped => {
                Self::stop(&self.quorum.servers[one..=one], hold).await;
            }
            Fault::MajorityStopped => Self::stop(&self.quorum.servers[two], hold).await,
            Fault::Cut => self.relays[one].cut(),
            Fault::OneWay => pass_only(&self.relays[one], Passing::Requests, hold).await,
            Fault::MinorityCutOff => Self::cut_off(&self.relays[one..=one], hold).await,
            Fault::MajorityCutOff => Self::cut_off(&self.relays[two], hold).await,
            _ => {
                let (server, old) = (&mut self.quorum.servers[one], &mut self.old[one]);
                strike_server(server, old, fault, hold).await;
            }
        }
    }

    async fn left_for_ever(&self) -> Vec<String> {
        let mut left = Vec::new();
        for server in &self.quorum.servers {
            left.extend(left_for_ever(server).await);
        }
        left
    }
}
