//! Draws faults from a seed, and makes one after the other happen.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::Name;
use leasehold::store::{self, Eviction, Store};

use crate::crew::{Crew, WorkerProcess};
use crate::fault::Fault;
use crate::grounds::Ground;
use crate::harness::child::GuardedChild;
use crate::harness::wait::{now, pause, until, until_so};
use crate::history::{Facts, Operation, Phase, Scribe, micros};
use crate::register::Storage;
use crate::worker::Order;

/// How long one request of the operator may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What faults happen to.
pub(crate) struct Scene {
    pub(crate) ground: Box<dyn Ground>,
    pub(crate) storage: Storage,
    pub(crate) crew: Crew,
    pub(crate) names: Vec<String>,
    pub(crate) ttl: Duration,
    pub(crate) scribe: Scribe,
}

/// Deals faults so that each comes about as often as the others: one pack after the other, each in an order of its own.
#[derive(Debug)]
pub(crate) struct Pack {
    kinds: Vec<Fault>,
    left: Vec<Fault>,
}

impl Pack {
    pub(crate) fn of(kinds: Vec<Fault>) -> Self {
        assert!(!kinds.is_empty(), "some fault is possible");
        Self {
            kinds,
            left: Vec::new(),
        }
    }

    pub(crate) fn draw(&mut self, random: &mut Rng) -> Fault {
        if self.left.is_empty() {
            self.left = self.kinds.clone();
            random.shuffle(&mut self.left);
        }
        self.left.pop().expect("it was filled")
    }
}

impl Scene {
    /// The faults that can happen here.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let own = self.ground.faults();
        let everywhere = Fault::ALL.into_iter().filter(|fault| {
            let of_tool = [Fault::ToolStopped, Fault::ToolKilled, Fault::JobForkedAway];
            let needs_tool = of_tool.contains(fault);
            fault.is_everywhere() && (!needs_tool || self.crew.tool.is_some())
        });
        everywhere.chain(own.iter().copied()).collect()
    }

    /// Makes this fault happen, and heals it.
    pub(crate) async fn strike(&mut self, fault: Fault, random: &mut Rng) {
        let hold = self.ttl * random.u32(3..25) / 10;
        let victim = random.usize(..self.crew.workers.len());
        // Its next victim may stand still before a write for longer than its turn waited for it.
        self.crew.workers.iter().for_each(WorkerProcess::resume);
        let mut facts = Facts::default().with_detail(fault.title());
        facts.suspends = self.ground.suspends(fault);
        if let Some(name) = self.victim_of(fault, victim) {
            facts.name = name;
        }
        let call = self.scribe.invoke(Operation::Fault, facts.clone());
        match fault {
            Fault::ToolStopped | Fault::ToolKilled => self.strike_tool(fault, hold).await,
            Fault::JobForkedAway => self.fork_job().await,
            Fault::Evicted | Fault::EvictedNow => self.evict(fault, random).await,
            Fault::StorageRestarted => self.storage.restart().await,
            _ if fault.is_everywhere() => self.strike_worker(fault, victim, hold).await,
            _ => self.ground.strike(fault, hold, random).await,
        }
        facts.ttl_us = Some(micros(self.ground.echo(fault)));
        self.scribe
            .end(Operation::Fault, Phase::Answer, call, facts);
    }

    /// The process that a fault of this kind stops.
    fn victim_of(&self, fault: Fault, victim: usize) -> Option<String> {
        let is_of_worker = (fault as u8) <= (Fault::WorkerStarved as u8);
        is_of_worker.then(|| self.crew.workers[victim].name().to_owned())
    }

    async fn strike_worker(&mut self, fault: Fault, victim: usize, hold: Duration) {
        let victim = &mut self.crew.workers[victim];
        match fault {
            Fault::WorkerKilled => victim.replace(&self.scribe),
            Fault::WorkerStopped => {
                victim.pause();
                pause(hold).await;
                victim.resume();
            }
            Fault::WorkerStoppedBeforeWrite => {
                let granted_after = self.ttl + self.ground.grants_late_by();
                victim.order(Order::StopBeforeWrite);
                pause_until_so(3 * granted_after, || victim.stands_still()).await;
                // Past the end of its lease, when another holder has the name.
                pause(granted_after + hold / 2).await;
                victim.resume();
            }
            Fault::WorkerStarved => {
                let end = now().after(hold);
                while now() < end {
                    victim.pause();
                    pause(Duration::from_millis(57)).await;
                    victim.resume();
                    pause(Duration::from_millis(3)).await;
                }
            }
            Fault::WorkerForked => {
                victim.order(Order::Fork);
                pause_until_so(3 * self.ttl, || victim.has_forked_child()).await;
                // It writes after two of its parent's ttls.
                until_so("the end of the forked child", async || {
                    !victim.has_forked_child()
                })
                .await;
            }
            _ => {
                victim.order(Order::Block(hold));
                pause(hold).await;
            }
        }
    }

    async fn strike_tool(&mut self, fault: Fault, hold: Duration) {
        let Some(tool) = &self.crew.tool else {
            return;
        };
        if fault == Fault::ToolKilled {
            return tool.kill();
        }
        tool.with(GuardedChild::pause);
        // Its leases are longer.
        pause(3 * hold).await;
        tool.with(GuardedChild::resume);
    }

    async fn fork_job(&self) {
        let Some(tool) = &self.crew.tool else {
            return;
        };
        tool.fork_job();
        pause_until_so(10 * self.ttl, || !tool.job_forks()).await;
    }

    async fn evict(&self, fault: Fault, random: &mut Rng) {
        let name = &self.names[random.usize(..self.names.len())];
        let name = Name::new(name).expect("valid");
        let how = match fault {
            Fault::Evicted => Eviction::Marked,
            _ => Eviction::Now,
        };
        let operator = operator(&*self.ground).await;
        // It may be free just now.
        let _ = operator.evict(&name, how, LIMIT).await;
        operator.close().await;
    }
}

/// The store as an operator opens it.
pub(crate) async fn operator(ground: &dyn Ground) -> Arc<dyn Store> {
    until("the operator's way to the store", async || {
        store::open(&ground.direct_url()).await.ok()
    })
    .await
}

/// Pauses until it is so, for at most this long: what was ordered may not come about.
async fn pause_until_so(limit: Duration, is_so: impl Fn() -> bool) {
    let end = now().after(limit);
    while !is_so() && now() < end {
        pause(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_deals_the_same_faults_and_each_comes_equally_often() {
        let deal = |seed| {
            let mut random = Rng::with_seed(seed);
            let mut pack = Pack::of(Fault::ALL.to_vec());
            let faults = (0..3 * Fault::ALL.len()).map(|_| pack.draw(&mut random));
            faults.collect::<Vec<_>>()
        };
        assert_eq!(deal(7), deal(7));
        assert_ne!(deal(7), deal(8));
        for fault in Fault::ALL {
            assert_eq!(deal(7).iter().filter(|other| **other == fault).count(), 3);
        }
    }
}
