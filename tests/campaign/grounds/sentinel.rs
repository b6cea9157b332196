//! A master and two replicas under three Sentinels.

use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use leasehold::clock::Instant;

use super::redis::{busy, left_for_ever};
use super::{Ground, eventually, pause};
use crate::fault::Fault;
use crate::harness::redis_group::{GROUP, RedisGroup};
use crate::harness::times::PATIENCE;
use crate::harness::wait::{at, now};

/// A busy machine keeps a master silent for seconds, and its replacement would be a fault that none drew.
const PATIENT: Duration = Duration::from_secs(60);
/// While a master is to be replaced.
const IMPATIENT: Duration = Duration::from_secs(1);

pub(super) struct SentinelGround {
    group: RedisGroup,
    master: usize,
    failed_over_at: Instant,
    /// When the servers were last told whom to follow.
    followed_at: Instant,
}

impl SentinelGround {
    pub(super) async fn start() -> Self {
        let group = RedisGroup::start().await;
        let master = group.master().await;
        let ground = Self {
            group,
            master,
            failed_over_at: Instant::ZERO,
            followed_at: Instant::ZERO,
        };
        ground.set_patience(PATIENT).await;
        ground
    }

    /// Sets after which silence of the master the first Sentinel begins a failover; the others only vote.
    async fn set_patience(&self, time: Duration) {
        let ms = time.as_millis();
        let set = format!("SENTINEL SET {GROUP} down-after-milliseconds {ms}");
        let () = self.group.sentinels[0].told(&set).await;
    }

    /// Orders a failover, and again if the Sentinels gave it up: they do while they take no replica for well, and when a
    /// replica that they promote does not become a master in time.
    async fn order_until_replaced(&mut self, old: usize) {
        while self.group.master().await == old {
            self.roles_known().await;
            let ordered = self.group.sentinels[0].ask::<String>(&["FAILOVER", GROUP]);
            let _ = ordered.await;
            let end = now().after(PATIENCE);
            while self.group.master().await == old && now() < end {
                pause(Duration::from_millis(20)).await;
            }
        }
        self.replaced(old).await;
    }

    /// Waits until no Sentinel undoes the next failover. The roles that [`Self::followed`] gave are news to them.
    async fn roles_known(&self) {
        eventually("each Sentinel knows the roles", async || {
            let is_so = self.group.roles_are_known_since(self.followed_at).await;
            is_so.then_some(())
        })
        .await;
    }

    /// Waits for a master other than this one.
    async fn replaced(&mut self, old: usize) {
        let group = &self.group;
        self.master = eventually("a new master", async || {
            let master = group.master().await;
            let info = group.servers[master]
                .ask::<String>("INFO replication")
                .await;
            let is_new = master != old && info.is_ok_and(|info| info.contains("role:master"));
            is_new.then_some(master)
        })
        .await;
    }

    /// Has the others follow the master. Sentinels would, but an old master only after eight seconds or more.
    async fn followed(&mut self) {
        let servers = &self.group.servers;
        for (index, replica) in servers.iter().enumerate() {
            if index != self.master {
                replica.follow(&servers[self.master]).await;
            }
        }
        self.followed_at = now();
    }

    async fn fail_over(&mut self, fault: Fault, hold: Duration) {
        // Sentinels begin no failover within twice the failover-timeout of the last one.
        at(self.failed_over_at.after(Duration::from_secs(7))).await;
        self.roles_known().await;
        self.fail_over_now(fault, hold).await;
        self.failed_over_at = now();
    }

    async fn fail_over_now(&mut self, fault: Fault, hold: Duration) {
        let old = self.master;
        if fault != Fault::FailoverOrdered {
            self.set_patience(IMPATIENT).await;
        }
        match fault {
            Fault::FailoverOrdered => {
                self.order_until_replaced(old).await;
                self.followed().await;
            }
            Fault::FailoverByDeath => {
                self.group.servers[old].kill();
                self.replaced(old).await;
                self.set_patience(PATIENT).await;
                pause(hold).await;
                self.group.servers[old].start_again().await;
                self.followed().await;
            }
            _ => {
                self.group.servers[old].pause();
                self.replaced(old).await;
                self.set_patience(PATIENT).await;
                pause(hold).await;
                self.group.servers[old].resume();
                pause(hold).await;
                self.followed().await;
            }
        }
    }
}

#[async_trait(?Send)]
impl Ground for SentinelGround {
    fn url(&self) -> String {
        self.group.url()
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            Fault::FailoverOrdered,
            Fault::FailoverByDeath,
            Fault::OldPrimaryWakes,
            Fault::Flushed,
            Fault::ScriptsFlushed,
            Fault::Busy,
        ]
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, _: &mut Rng) {
        // Sentinels replace a master that a busy machine keeps silent for long enough.
        self.master = self.group.master().await;
        let master = &self.group.servers[self.master];
        match fault {
            Fault::Flushed => master.told("FLUSHALL").await,
            Fault::ScriptsFlushed => master.told("SCRIPT FLUSH").await,
            // Less than the Sentinels wait for a master that is silent.
            Fault::Busy => busy(master, Duration::from_millis(500)).await,
            _ => self.fail_over(fault, hold).await,
        }
    }

    async fn left_for_ever(&self) -> Vec<String> {
        left_for_ever(&self.group.servers[self.master]).await
    }
}
