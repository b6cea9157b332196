//! One Redis server, behind a network that parses its requests.

use std::time::Duration;

use async_trait::async_trait;
use deadpool_redis::redis;
use fastrand::Rng;

use super::{Ground, eventually, pause};
use crate::fault::Fault;
use crate::harness::proxy::{self, Proxy, Request};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::history::Promise;

pub(super) struct RedisGround {
    server: RedisServer,
    proxy: Proxy,
    /// A snapshot of a while ago.
    old: Vec<u8>,
    keeps_out: bool,
}

impl RedisGround {
    pub(super) async fn start(keeps_out: bool, io_threads: &str) -> Self {
        let setup = Setup::default().with_clock();
        let server = setup.with(["--io-threads", io_threads]).start().await;
        let proxy = server.proxy().await;
        let old = server.snapshot().await;
        Self {
            server,
            proxy,
            old,
            keeps_out,
        }
    }

    async fn strike_network(&self, fault: Fault, hold: Duration, random: &mut Rng) {
        let proxy = &self.proxy;
        match fault {
            Fault::Cut => return proxy.cut(),
            Fault::BlackHole => proxy.stall(),
            Fault::HalfOpen => proxy.set(|_| Some(proxy::Fault::HoldRequest)),
            Fault::OneWay => proxy.set(|_| Some(proxy::Fault::HoldReply)),
            _ => {
                let mut random = random.fork();
                proxy.set(move |_: &Request| {
                    let late = Duration::from_millis(random.u64(0..400));
                    Some(proxy::Fault::DelayRequest(late))
                });
            }
        }
        pause(hold).await;
        proxy.flow();
        proxy.set(|_| None);
    }
}

/// Makes a fault of one server happen, and heals it. `old` is a snapshot of it, of a while ago.
pub(super) async fn strike_server(
    server: &mut RedisServer,
    old: &mut Vec<u8>,
    fault: Fault,
    hold: Duration,
) {
    match fault {
        Fault::ServerStopped => {
            server.pause();
            pause(hold).await;
            server.resume();
        }
        Fault::ServerKilled => {
            // No write is acknowledged after the snapshot.
            let () = server.told("CLIENT PAUSE 60000 WRITE").await;
            let all = server.snapshot().await;
            server.kill();
            pause(hold).await;
            server.restart_from(&all).await;
        }
        Fault::RestartedEmpty => server.restart_empty().await,
        Fault::RestartedOld => {
            let old = std::mem::replace(old, server.snapshot().await);
            server.restart_from(&old).await;
        }
        Fault::Flushed => server.told("FLUSHALL").await,
        Fault::ScriptsFlushed => server.told("SCRIPT FLUSH").await,
        Fault::Full => {
            let () = server.told("CONFIG SET maxmemory 1").await;
            pause(hold).await;
            let () = server.told("CONFIG SET maxmemory 0").await;
        }
        Fault::Busy => busy(server, hold).await,
        _ => strike_clock(server, fault, hold).await,
    }
}

/// Steps the wall clock of a server, and back.
async fn strike_clock(server: &RedisServer, fault: Fault, hold: Duration) {
    server.step_clock(fault.step_ms()).await;
    if fault == Fault::FlushedBehind {
        let () = server.told("FLUSHALL").await;
    }
    pause(hold).await;
    server.step_clock(-fault.step_ms()).await;
}

/// Keeps a server busy with a script for that long. It answers `BUSY` to all others meanwhile, after a first silence.
pub(super) async fn busy(server: &RedisServer, hold: Duration) {
    let () = server.told("CONFIG SET lua-time-limit 50").await;
    let mut connection = server.connect().await.expect("it is up");
    let running = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg(0);
        let _ = script.query_async::<()>(&mut connection).await;
    });
    pause(hold).await;
    eventually("the end of the script", async || {
        let _ = server.ask::<()>("SCRIPT KILL").await;
        let is_well = server.ask::<String>("PING").await.is_ok();
        (is_well && running.is_finished()).then_some(())
    })
    .await;
}

#[async_trait(?Send)]
impl Ground for RedisGround {
    fn url(&self) -> String {
        let url = self.proxy.url();
        match self.keeps_out {
            // The tool's ttl, the longest of a campaign.
            true => format!("{url}?max_ttl=4s"),
            false => url,
        }
    }

    fn direct_url(&self) -> String {
        self.server.url()
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
            Fault::BlackHole,
            Fault::Delayed,
            Fault::HalfOpen,
            Fault::OneWay,
        ]
    }

    fn suspends(&self, fault: Fault) -> Vec<Promise> {
        match fault {
            Fault::RestartedEmpty | Fault::RestartedOld | Fault::Flushed if self.keeps_out => {
                Vec::new()
            }
            _ => fault.suspends(),
        }
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, random: &mut Rng) {
        match fault {
            Fault::Cut | Fault::BlackHole | Fault::Delayed | Fault::HalfOpen | Fault::OneWay => {
                self.strike_network(fault, hold, random).await
            }
            _ => strike_server(&mut self.server, &mut self.old, fault, hold).await,
        }
    }

    async fn left_for_ever(&self) -> Vec<String> {
        left_for_ever(&self.server).await
    }
}

/// The keys without an expiry, except the marks of the highest tokens and the note of the server's last loss of data.
pub(super) async fn left_for_ever(server: &RedisServer) -> Vec<String> {
    let mut connection = server.connect().await.expect("it is up");
    let mut left = Vec::new();
    for key in server.keys().await {
        let mut ask = redis::cmd("PTTL");
        let ttl: i64 = ask
            .arg(&key)
            .query_async(&mut connection)
            .await
            .expect("answered");
        // -2: it expired since the scan.
        if ttl == -1 && !key.ends_with("}:mark") && !key.ends_with(":node") {
            left.push(key);
        }
    }
    left
}
