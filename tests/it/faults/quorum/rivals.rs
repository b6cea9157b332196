//! Holders of some leases and a rival for their names, while members of the quorum die, hang or forget, one or two at once,
//! and while requests come late and twice.
//!
//! In each of these no two hold a name at once, tokens rise, every call ends in time, and afterwards all works again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::way::Way;
use crate::harness::redis_quorum::{RedisQuorum, Watch};
use crate::harness::rivalry::{Ended, Rivalry};
use crate::harness::wait::{at, now, pause};

/// The ttl of the leases, and the longest of the quorum. The caller's limit is a sixth of it.
const TTL: Duration = Duration::from_secs(6);
/// How long a call may take: one and a half times its limit.
const LONGEST_CALL: Duration = Duration::from_millis(1_500);
const NAMES: usize = 12;

/// So many times in one call the machine may be late to wake a task.
const WAKES: u32 = 4;

/// The quorum, and the ways of the holder and of the rival.
struct Stage {
    quorum: RedisQuorum,
    _watch: Watch,
    ways: [Way; 2],
    rivalry: Rivalry,
    /// By how much this machine was late at most to wake a task, in microseconds.
    late_us: Arc<AtomicU64>,
}

impl Stage {
    async fn set() -> Self {
        let quorum = RedisQuorum::start_new(3).await.set_up(TTL).await;
        let ways = [Way::to(&quorum).await, Way::to(&quorum).await];
        let [url, rival_url] = [&ways[0], &ways[1]].map(|way| way.url(TTL));
        let rivalry = Rivalry::begin(&url, &rival_url, NAMES, TTL).await;
        let late_us = Arc::<AtomicU64>::default();
        tokio::spawn(note_lateness(late_us.clone()));
        Self {
            _watch: quorum.watch(),
            quorum,
            ways,
            rivalry,
            late_us,
        }
    }

    /// Whether the first member has this lease as the last one has it.
    async fn is_put_back(&self, index: usize) -> bool {
        let lease = format!("GET leasehold:{{rivalry-{index}}}");
        let mut holders = Vec::new();
        for member in [0, 2] {
            let value: Option<String> = self.quorum.servers[member].told(&lease).await;
            holders.push(value.map(|value| value[..49].to_owned()));
        }
        holders[0].is_some() && holders[0] == holders[1]
    }

    /// Returns what was seen, once calls succeed again.
    async fn end(self) -> Ended {
        self.rivalry.caller_succeeds().await;
        let ended = self.rivalry.end();
        assert!(ended.overlaps.is_empty(), "{ended}");
        let late = Duration::from_micros(self.late_us.load(Ordering::Relaxed));
        let longest = LONGEST_CALL + late * WAKES;
        assert!(ended.calls.worst <= longest, "late={late:?} {ended}");
        ended
    }

    /// The same where every lease must have lasted.
    async fn end_with_all_leases(self) {
        self.rivalry.renewed_or_lost().await;
        let ended = self.end().await;
        assert_eq!((ended.lost, ended.granted), (0, 0), "{ended}");
    }
}

async fn note_lateness(late_us: Arc<AtomicU64>) {
    loop {
        let due = now().after(Duration::from_millis(10));
        at(due).await;
        let late = u64::try_from(now().since(due).as_micros()).unwrap_or(u64::MAX);
        late_us.fetch_max(late, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_that_dies_and_comes_back_empty_costs_no_lease() {
    let mut stage = Stage::set().await;
    stage.quorum.servers[0].kill();
    pause(TTL).await;
    stage.quorum.servers[0].restart_empty().await;
    pause(TTL * 2).await;
    stage.end_with_all_leases().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_empty_has_the_leases_again_when_the_next_one_dies() {
    let mut stage = Stage::set().await;
    stage.quorum.servers[0].restart_empty().await;
    // It takes claims again after the longest ttl, and each lease at one of its next renewals: not while a claim of the
    // rival is there, which is taken back at once.
    let end = now().after(TTL * 8);
    for index in 0..NAMES {
        while !stage.is_put_back(index).await {
            assert!(now() < end, "rivalry-{index} was not put back");
            pause(TTL / 100).await;
        }
    }
    stage.quorum.servers[1].kill();
    pause(TTL * 2).await;
    stage.end_with_all_leases().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_emptied_at_once_end_the_leases_before_a_rival_is_granted() {
    let mut stage = Stage::set().await;
    stage.quorum.servers[1].kill();
    stage.quorum.servers[0].restart_empty().await;
    stage.quorum.servers[1].restart_empty().await;
    stage.rivalry.all_are_lost().await;
    stage.rivalry.rival_has_all().await;
    let ended = stage.end().await;
    assert_eq!((ended.lost, ended.granted), (NAMES, NAMES), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_that_hangs_costs_no_lease() {
    let stage = Stage::set().await;
    stage.quorum.servers[0].pause();
    pause(TTL * 2).await;
    stage.quorum.servers[0].resume();
    stage.end_with_all_leases().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_that_hang_end_the_leases_before_a_rival_is_granted() {
    let stage = Stage::set().await;
    for server in &stage.quorum.servers[..2] {
        server.pause();
    }
    stage.rivalry.all_are_lost().await;
    pause(TTL / 2).await;
    for server in &stage.quorum.servers[..2] {
        server.resume();
    }
    stage.rivalry.rival_has_all().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_are_blind_to_one_member_each_exclude_each_other() {
    let stage = Stage::set().await;
    for (way, member) in stage.ways.iter().zip(0..) {
        way.0[member].stall();
    }
    pause(TTL * 2).await;
    for (way, member) in stage.ways.iter().zip(0..) {
        way.0[member].flow();
    }
    stage.end_with_all_leases().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_two_ttls_late_or_twice_let_no_two_hold() {
    let seed = fastrand::u64(..);
    eprintln!("seed={seed}");
    let stage = Stage::set().await;
    for (way, index) in stage.ways.iter().zip(0..) {
        way.storm(seed ^ (index << 32), TTL * 2, [10, 100]);
    }
    pause(TTL * 3).await;
    stage.ways.iter().for_each(Way::calm);
    // What is late arrives meanwhile.
    pause(TTL * 2).await;
    let met = stage.ways.each_ref().map(Way::met);
    eprintln!("{met:?}");
    assert!(met.iter().all(|met| met.late > 0 && met.doubled > 0));
    stage.end().await;
}
