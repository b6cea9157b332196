//! The scripts of a member do what the member in memory does, step by step: the model and the simulator run that one.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::store::quorum::{AHEAD, LocalNode, Proposal, Purpose, Rules, TakenBack, Vote};
use leasehold::store::{Eviction, Info, Renewal};
use leasehold::{ClientId, Holder, Name, Token};

use super::member::{Kept, KeptCounter, RawMember};
use crate::harness::redis_server::{RedisServer, Setup};

/// A whole second, as all moments of the clock are. The ttls end between them: a server counts in milliseconds, and the two
/// need not agree on the very instant of an end.
const BEGIN_US: u64 = 1_795_000_000_000_000;
/// What the clock is moved by, in seconds. All are multiples of seven, because no multiple is the hour for which a counter is
/// remembered.
const STEPS_S: [u64; 6] = [7, 7, 14, 63, 3_605, 10_801];
const TTLS: [Duration; 2] = [Duration::from_millis(10_500), Duration::from_millis(50_500)];

/// Both members, under one clock that stands still.
struct Pair {
    local: LocalNode,
    raw: RawMember,
    server: RedisServer,
    now_us: u64,
    rng: Rng,
    /// Some tokens that were proposed.
    proposed: Vec<u64>,
    log: Vec<String>,
    /// The kinds of votes that were given.
    voted: HashSet<Discriminant<Vote>>,
}

impl Pair {
    async fn start(rules: Rules, seed: u64) -> Self {
        let server = Setup::default().with_clock().start().await;
        server.stop_clock_at(BEGIN_US).await;
        let connection = server.connect().await.expect("it is up");
        Self {
            local: LocalNode::new(rules),
            raw: RawMember {
                connection,
                rules,
                run: 0,
            },
            server,
            now_us: BEGIN_US,
            rng: Rng::with_seed(seed),
            proposed: vec![BEGIN_US],
            log: Vec::new(),
            voted: HashSet::new(),
        }
    }

    fn name(&mut self) -> Name {
        let name = if self.rng.bool() { "a" } else { "b" };
        Name::new(name).expect("a valid name")
    }

    fn holder(&mut self) -> Holder {
        Holder::new(ClientId::from_u128(7), self.rng.u64(1..4))
    }

    /// One that was proposed before, or one near it, or one near the clock or its limit.
    fn token(&mut self) -> Token {
        let near = match self.rng.u8(0..10) {
            0..4 => *self.rng.choice(&self.proposed).expect("one at least"),
            4..7 => self.now_us,
            7 => self.now_us + 20_003,
            8 => self.now_us + u64::try_from(AHEAD.as_micros()).expect("two hours"),
            _ => self.proposed.iter().copied().max().expect("one at least"),
        };
        let token = near + self.rng.u64(0..3);
        self.proposed.push(token);
        if self.proposed.len() > 12 {
            self.proposed.swap_remove(0);
        }
        Token::new(token).expect("a token")
    }

    fn proposal(&mut self) -> Proposal {
        Proposal {
            holder: self.holder(),
            token: self.token(),
            ttl: *self.rng.choice(TTLS).get_or_insert(TTLS[0]),
            purpose: match self.rng.u8(0..4) {
                0 => Purpose::Repair,
                _ => Purpose::Claim,
            },
        }
    }

    /// Does the same to both, and compares what they answer.
    async fn step(&mut self) {
        let name = self.name();
        let now = self.now_us;
        match self.rng.u8(0..40) {
            0..18 => {
                let proposal = self.proposal();
                self.log.push(format!("{now} {name} {proposal:?}"));
                let vote = self
                    .local
                    .hold(&name, &proposal, &Arc::new(Info::default()), now);
                assert_eq!(
                    self.raw.hold(&name, &proposal).await,
                    vote,
                    "{}",
                    self.told()
                );
                self.voted.insert(discriminant(&vote));
                if let Vote::Low { floor, .. } = vote {
                    self.proposed.push(floor);
                }
            }
            18..23 => {
                let (holder, token) = (self.holder(), self.token());
                let above = self.rng.bool().then(|| self.token());
                let taken = TakenBack { token, above };
                self.log.push(format!("{now} {name} {holder} {taken:?}"));
                let freed = self.local.take_back(&name, holder, taken, now);
                assert_eq!(
                    self.raw.take_back(&name, holder, taken).await,
                    freed,
                    "{}",
                    self.told()
                );
            }
            23..27 => {
                let holder = self.holder();
                let keep = self.rng.bool().then_some(TTLS[0]);
                self.log
                    .push(format!("{now} {name} release {holder} {keep:?}"));
                let freed = self.local.release(&name, holder, keep, now);
                assert_eq!(
                    self.raw.release(&name, holder, keep).await,
                    freed,
                    "{}",
                    self.told()
                );
            }
            27..31 => {
                let holder = self.holder();
                let kept = self.local.inspect(&name, now);
                let token = match kept {
                    Some((tenure, _)) if self.rng.bool() => tenure.token,
                    _ => self.token(),
                };
                let renewal = Renewal::new(name.clone(), holder, token, TTLS[1]);
                self.log.push(format!("{now} {renewal:?}"));
                let extended = self.local.renew(std::slice::from_ref(&renewal), now);
                assert_eq!(
                    [self.raw.renew(&renewal).await],
                    extended[..],
                    "{}",
                    self.told()
                );
            }
            31..33 => {
                let how = match self.rng.bool() {
                    true => Eviction::Marked,
                    false => Eviction::Now,
                };
                self.log.push(format!("{now} {name} {how:?}"));
                let evicted = self.local.evict(&name, how, now);
                assert_eq!(self.raw.evict(&name, how).await, evicted, "{}", self.told());
            }
            33..39 => {
                self.now_us += self.rng.choice(STEPS_S).expect("there are some") * 1_000_000;
                self.server.stop_clock_at(self.now_us).await;
            }
            _ => self.restart().await,
        }
        self.compare(&name).await;
    }

    /// Starts the process again, with or without its data, or flushes it.
    async fn restart(&mut self) {
        let (is_restarted, is_emptied) = match self.rng.u8(0..3) {
            0 => (true, false),
            1 => (true, true),
            _ => (false, true),
        };
        self.log
            .push(format!("restarted={is_restarted} emptied={is_emptied}"));
        match (is_restarted, is_emptied) {
            (true, false) => self.local.restart(),
            (true, true) => self.local.restart_empty(),
            _ => self.local.flush(),
        }
        self.raw.run += u64::from(is_restarted);
        if is_emptied {
            let () = self.server.told("FLUSHALL").await;
        }
    }

    /// Compares what both keep of the name.
    async fn compare(&mut self, name: &Name) {
        let register = self.local.register(name);
        let counter = register.counter(self.now_us);
        let kept = Kept {
            tenure: register.tenure(self.now_us),
            counter: counter.map(|counter| KeptCounter {
                token: counter.token,
                by: counter.by,
                last: counter.last,
                forget_at_ms: counter.forget_at_us.div_ceil(1_000),
            }),
        };
        assert_eq!(
            self.raw.kept(name, self.now_us).await,
            kept,
            "{}",
            self.told()
        );
    }

    /// The last steps, for the message.
    fn told(&self) -> String {
        let from = self.log.len().saturating_sub(12);
        self.log[from..].join("\n")
    }
}

/// Compares the two over so many random steps.
async fn agree(rules: Rules, steps: usize) {
    let seed = std::env::var("LEASEHOLD_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("LEASEHOLD_TEST_SEED={seed}");
    let mut pair = Pair::start(rules, seed).await;
    for _ in 0..steps {
        pair.step().await;
    }
    // All but a mismatch: these clients have the same longest ttl.
    assert_eq!(pair.voted.len(), 5);
}

#[tokio::test]
async fn the_scripts_of_a_member_do_what_the_member_in_memory_does() {
    agree(Rules::default(), 4_000).await;
}

#[tokio::test]
async fn the_scripts_of_a_trusted_member_do_what_the_member_in_memory_does() {
    let rules = Rules {
        is_trusted: true,
        ..Rules::default()
    };
    agree(rules, 4_000).await;
}
