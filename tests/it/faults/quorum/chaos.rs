//! Processes contend for a few names on a quorum, while its members are killed and come back empty or with an old copy, are
//! flushed, promoted and stopped, their clocks are set back, each process is cut off from another member, requests come late, twice or not at all, and the
//! processes themselves are stopped and killed.
//!
//! It takes 20 seconds. `LEASEHOLD_CHAOS_SECONDS` sets another time, `LEASEHOLD_TEST_SEED` repeats a run's faults.

use std::time::Duration;

use leasehold::clock::Instant;

use super::way::{Met, Way};
use crate::faults::contender::take_turns;
use crate::faults::journal::{Journal, Wrongs};
use crate::harness::redis_quorum::{RedisQuorum, Watch};
use crate::harness::redis_server::Setup;
use crate::harness::subprocess::Subprocess;
use crate::harness::wait::{at, now};

const CONTENDERS: usize = 5;
/// The ttl of the leases, and the longest of the quorum.
const TTL: Duration = Duration::from_secs(1);
const MEMBERS: usize = 3;
const SECONDS: u64 = 20;
/// Maximum time that a server or a process stands still: more than two ttls.
const LONGEST_STOP: u64 = 3_000;
/// Of 1,000 requests, how many come two ttls late, and how many twice.
const SHARES: [u32; 2] = [4, 60];
/// How long all may take until each process has a lease again once there are no more faults.
const HEALED_WITHIN: Duration = Duration::from_secs(60);

/// What was done to the servers, the networks and the processes.
#[derive(Debug, Default)]
struct Done {
    emptied: usize,
    emptied_together: usize,
    set_back: usize,
    flushed: usize,
    promoted: usize,
    set_back_clocks: usize,
    servers_stopped: usize,
    blinded: usize,
    kills: usize,
    stops: usize,
}

struct Chaos {
    dice: fastrand::Rng,
    quorum: RedisQuorum,
    _watch: Watch,
    ways: Vec<Way>,
    contenders: Vec<Subprocess>,
    journal: Journal,
    done: Done,
    /// An old copy of each member's data.
    copies: Vec<Option<Vec<u8>>>,
    /// Until when each server, process and network stands still.
    servers: Vec<Option<Instant>>,
    stopped: Vec<Option<Instant>>,
    blind: Option<Instant>,
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_at_once_and_tokens_rise_whatever_becomes_of_the_members() {
    let seed = number_from("LEASEHOLD_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    let time = Duration::from_secs(number_from("LEASEHOLD_CHAOS_SECONDS").unwrap_or(SECONDS));
    println!("LEASEHOLD_TEST_SEED={seed}");
    let mut chaos = Chaos::begin(seed).await;
    let (end, mut next) = (now().after(time), now());
    while now() < end {
        chaos.listen();
        if now() >= next {
            chaos.fault().await;
            next = now().after(Duration::from_millis(chaos.dice.u64(300..2_500)));
        }
        at(now().after(Duration::from_millis(20))).await;
    }
    chaos.heal().await;
    chaos.end(time);
}

impl Chaos {
    async fn begin(seed: u64) -> Self {
        let quorum = RedisQuorum::with(MEMBERS, || Setup::default().with_clock(), TTL).await;
        let mut dice = fastrand::Rng::with_seed(seed);
        let (mut ways, mut contenders) = (Vec::new(), Vec::new());
        for _ in 0..CONTENDERS {
            let way = Way::to(&quorum).await;
            way.storm(dice.u64(..), TTL * 2, SHARES);
            contenders.push(take_turns(&way.url(TTL), TTL, dice.u64(..)));
            ways.push(way);
        }
        Self {
            dice,
            _watch: quorum.watch(),
            quorum,
            ways,
            contenders,
            journal: Journal::default(),
            done: Done::default(),
            copies: vec![None; MEMBERS],
            servers: vec![None; MEMBERS],
            stopped: vec![None; CONTENDERS],
            blind: None,
        }
    }

    /// Records what the processes say, and lets go on whoever has stood still for long enough.
    fn listen(&mut self) {
        let is_over =
            |until: &mut Option<Instant>| until.take_if(|until| now() >= *until).is_some();
        for (contender, until) in self.contenders.iter().zip(&mut self.stopped) {
            while let Some(said) = contender.answered() {
                self.journal.note(&said);
            }
            if is_over(until) {
                contender.resume();
            }
        }
        for (server, until) in self.quorum.servers.iter().zip(&mut self.servers) {
            if is_over(until) {
                server.resume();
            }
        }
        if is_over(&mut self.blind) {
            self.see();
        }
    }

    fn see(&self) {
        let proxies = self.ways.iter().flat_map(|way| &way.0);
        proxies.for_each(|proxy| proxy.flow());
    }

    async fn fault(&mut self) {
        let (which, member) = (self.dice.usize(..CONTENDERS), self.dice.usize(..MEMBERS));
        let until = now().after(Duration::from_millis(self.dice.u64(100..LONGEST_STOP)));
        match self.dice.u32(..46) {
            0..7 => {
                self.done.emptied += 1;
                self.restart(member, None).await;
            }
            7..10 => {
                self.done.emptied_together += 1;
                // Both are dead before one of them is back.
                let other = (member + 1) % MEMBERS;
                self.quorum.servers[other].kill();
                self.restart(member, None).await;
                self.restart(other, None).await;
            }
            10..14 if self.servers[member].is_none() => match self.copies[member].take() {
                Some(copy) => {
                    self.done.set_back += 1;
                    self.restart(member, Some(copy)).await;
                }
                None => {
                    let copy = self.quorum.servers[member].snapshot().await;
                    self.copies[member] = Some(copy);
                }
            },
            14..16 if self.servers[member].is_none() => {
                self.done.flushed += 1;
                let () = self.quorum.servers[member].told("FLUSHALL").await;
            }
            16..21 => self.stop_server(member, until),
            21..23 => {
                self.stop_server(member, until);
                self.stop_server((member + 1) % MEMBERS, until);
            }
            23..28 if self.blind.is_none() => {
                self.done.blinded += 1;
                for (way, index) in self.ways.iter().zip(member..) {
                    way.0[index % MEMBERS].stall();
                }
                self.blind = Some(until);
            }
            28..32 => {
                self.done.kills += 1;
                self.journal.finish(&mut self.contenders[which]);
                let url = self.ways[which].url(TTL);
                self.contenders[which] = take_turns(&url, TTL, self.dice.u64(..));
                self.stopped[which] = None;
            }
            40..43 if self.servers[member].is_none() => {
                self.done.promoted += 1;
                let server = &self.quorum.servers[member];
                let () = server.told("REPLICAOF 127.0.0.1 1").await;
                let () = server.told("REPLICAOF NO ONE").await;
            }
            // A clock that is set forward ends leases early: that is a limit of the quorum.
            43..46 if self.servers[member].is_none() => {
                self.done.set_back_clocks += 1;
                let by = self.dice.i64(1_000..2_500);
                self.quorum.servers[member].step_clock(-by).await;
            }
            _ if self.stopped[which].is_none() => {
                self.done.stops += 1;
                self.contenders[which].pause();
                self.stopped[which] = Some(until);
            }
            _ => {}
        }
    }

    fn stop_server(&mut self, member: usize, until: Instant) {
        if self.servers[member].is_none() {
            self.done.servers_stopped += 1;
            self.quorum.servers[member].pause();
            self.servers[member] = Some(until);
        }
    }

    /// Kills a member, and starts it again with this copy of its data, or with none.
    async fn restart(&mut self, member: usize, copy: Option<Vec<u8>>) {
        let server = &mut self.quorum.servers[member];
        match copy {
            Some(copy) => server.restart_from(&copy).await,
            None => server.restart_empty().await,
        }
        self.servers[member] = None;
    }

    /// Ends all faults, and waits until each process has had a lease again.
    async fn heal(&mut self) {
        self.see();
        self.ways.iter().for_each(Way::calm);
        for (server, until) in self.quorum.servers.iter().zip(&mut self.servers) {
            if until.take().is_some() {
                server.resume();
            }
        }
        for (contender, until) in self.contenders.iter().zip(&mut self.stopped) {
            if until.take().is_some() {
                contender.resume();
            }
        }
        let healed_at = now();
        let mut is_granted = [false; CONTENDERS];
        while is_granted != [true; CONTENDERS] {
            let left = HEALED_WITHIN.saturating_sub(now().since(healed_at));
            assert!(!left.is_zero(), "no lease after the faults: {is_granted:?}");
            for (contender, is_granted) in self.contenders.iter().zip(&mut is_granted) {
                while let Some(said) = contender.answered() {
                    self.journal.note(&said);
                    // What was granted before may be said late; what is held now is not.
                    let moment = said
                        .strip_prefix("held ")
                        .and_then(|said| said.split(' ').nth(2));
                    let moment = moment.map(|moment| moment.parse().expect("a number"));
                    *is_granted |= moment.is_some_and(|moment: u64| moment > healed_at.as_nanos());
                }
            }
            at(now().after(Duration::from_millis(20))).await;
        }
    }

    fn end(mut self, time: Duration) {
        for contender in &mut self.contenders {
            self.journal.finish(contender);
        }
        let met = self.ways.iter().map(Way::met);
        let met = met.fold(Met::default(), |sum, met| Met {
            late: sum.late + met.late,
            doubled: sum.doubled + met.doubled,
            lost: sum.lost + met.lost,
        });
        let (journal, wrongs) = (&self.journal, self.journal.wrongs());
        println!(
            "{CONTENDERS} processes on {MEMBERS} members for {time:?}: grants={} losses={} {:?} {met:?} longest_gap={:.1?} {wrongs}",
            journal.grants,
            journal.losses,
            self.done,
            journal.longest_gap(),
        );
        assert_eq!(wrongs, Wrongs::default());
        assert!(journal.grants > CONTENDERS, "{} grants", journal.grants);
    }
}
