//! Claims that meet: how long it takes until one of many that ask for a free name at once has it. Not a search of all
//! orders but a simulation of seeded ones, in units of a thousandth of a round trip.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::store::quorum::protocol::{Answers, ClaimOutcome, MemberAnswer, MemberId, Rivalry};
use leasehold::{ClientId, Holder, Token};

use super::node::{MemberRecord, MemberRequest, NameState, Node};
use super::node_names::first_at;

const MEMBERS: usize = 3;
const ROUND_TRIP: u64 = 1_000;
const LONG_US: u64 = 1_000_000_000;

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Propose,
    Arrives {
        member: usize,
        token: Token,
    },
    Answers {
        member: usize,
        token: Token,
        answer: MemberAnswer,
    },
    Frees {
        member: usize,
        token: Token,
    },
    IsFreed {
        token: Token,
    },
}

struct Contender {
    round: Option<Answers>,
    token: Option<Token>,
    seen: u64,
    rivalry: Rivalry,
    /// How many members are still to answer the taking back, and the pause after it.
    to_free: usize,
    pause: u64,
    sent_at: u64,
}

/// A claim of `contenders` at once: the time until one is granted, in round trips.
pub(super) fn until_granted(contenders: usize, seed: u64) -> f64 {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut members: Vec<(Node<u8>, NameState)> = (0..MEMBERS).map(member).collect();
    let mut clients: Vec<Contender> = (0..contenders).map(|_| Contender::new()).collect();
    let mut events = BinaryHeap::new();
    let mut order = 0_u64;
    let mut push = |events: &mut BinaryHeap<_>, at: u64, client: usize, event: Event| {
        order += 1;
        events.push(Reverse((at, order, client, event)));
    };
    for client in 0..contenders {
        let at = random.below(ROUND_TRIP / 4);
        push(&mut events, at, client, Event::Propose);
    }
    while let Some(Reverse((now, _, client, event))) = events.pop() {
        if now > 100_000 * ROUND_TRIP {
            break;
        }
        match event {
            Event::Propose => {
                // Clients know the clock to within a quarter of a round trip.
                let clock = LONG_US + now + random.below(ROUND_TRIP / 4);
                let of = &mut clients[client];
                let last = Token::new(of.seen).ok();
                let token = Token::mint(last, of.token, clock).expect("tokens are left");
                of.token = Some(token);
                of.sent_at = now;
                of.round = Some(Answers::new(MEMBERS, Instant::from_nanos(u64::MAX)));
                for member in 0..MEMBERS {
                    let at = now + random.one_way();
                    push(&mut events, at, client, Event::Arrives { member, token });
                }
            }
            Event::Arrives { member, token } => {
                let (node, record) = &mut members[member];
                let answer = node.claim(record, &request_to(member, client, token), &first_at(now));
                let back = now + random.one_way();
                push(
                    &mut events,
                    back,
                    client,
                    Event::Answers {
                        member,
                        token,
                        answer,
                    },
                );
            }
            Event::Frees { member, token } => {
                let (node, record) = &mut members[member];
                let freeing = MemberRequest {
                    ttl_us: 0,
                    ..request_to(member, client, token)
                };
                node.release(record, &freeing, &first_at(now));
                push(
                    &mut events,
                    now + random.one_way(),
                    client,
                    Event::IsFreed { token },
                );
            }
            Event::Answers {
                member,
                token,
                answer,
            } => {
                let of = &mut clients[client];
                let is_awaited = of.token == Some(token);
                let Some(round) = of.round.as_mut().filter(|_| is_awaited) else {
                    continue;
                };
                round.count(member, answer, Instant::ZERO);
                let Some(verdict) = round.verdict() else {
                    continue;
                };
                let above = round.marks().max().unwrap_or(0);
                match verdict {
                    ClaimOutcome::Granted => return now as f64 / ROUND_TRIP as f64,
                    ClaimOutcome::Low => {
                        of.seen = of.seen.max(above);
                        of.round = None;
                        push(&mut events, now, client, Event::Propose);
                    }
                    ClaimOutcome::Split { rivals, .. } => {
                        of.seen = of.seen.max(above);
                        let took = Duration::from_micros(now - of.sent_at);
                        let pause = of.rivalry.pause(rivals, took, random.part());
                        of.pause = u64::try_from(pause.as_micros()).expect("a short pause");
                        let to_free: Vec<usize> = round.to_take_back().collect();
                        of.to_free = to_free.len();
                        of.round = None;
                        if of.to_free == 0 {
                            push(&mut events, now + of.pause, client, Event::Propose);
                        }
                        for member in to_free {
                            let at = now + random.one_way();
                            push(&mut events, at, client, Event::Frees { member, token });
                        }
                    }
                    // Another one has it, and hears of it soon.
                    ClaimOutcome::Held(_) | ClaimOutcome::Absent(_) | ClaimOutcome::Failed => {
                        of.round = None
                    }
                }
            }
            Event::IsFreed { token } => {
                let of = &mut clients[client];
                if of.token == Some(token) && of.to_free > 0 {
                    of.to_free -= 1;
                    if of.to_free == 0 {
                        let at = now + of.pause;
                        push(&mut events, at, client, Event::Propose);
                    }
                }
            }
        }
    }
    f64::INFINITY
}

impl Contender {
    fn new() -> Self {
        Self {
            round: None,
            token: None,
            seen: 0,
            rivalry: Rivalry::default(),
            to_free: 0,
            pause: 0,
            sent_at: 0,
        }
    }
}

fn id(member: usize) -> MemberId {
    MemberId {
        quorum: 1,
        index: u8::try_from(member).expect("few members"),
        of: 3,
    }
}

fn member(index: usize) -> (Node<u8>, NameState) {
    let membership = MemberRecord {
        id: id(index),
        max_ttl_us: LONG_US,
        incarnation: 1,
        max: 0,
        floor: 0,
        closed_for: None,
    };
    let node = Node {
        membership: Some(membership),
        seen: None,
        reserved_by: None,
    };
    (node, NameState::default())
}

fn request_to(member: usize, client: usize, token: Token) -> MemberRequest {
    MemberRequest {
        id: id(member),
        holder: Holder::new(ClientId::from_u128(0), client as u64),
        token,
        ttl_us: LONG_US,
    }
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn part(&mut self) -> f64 {
        self.next() as f64 / (1_u64 << 53) as f64
    }

    /// Half a round trip, more or less, and now and then much more.
    fn one_way(&mut self) -> u64 {
        let half = ROUND_TRIP / 2;
        let tail = if self.below(50) == 0 { half * 3 } else { 0 };
        half * 3 / 4 + self.below(half / 2) + tail
    }
}

/// The time until one has it, of the slowest hundredth of many tries.
pub(super) fn slowest(contenders: usize) -> (f64, f64) {
    let mut took: Vec<f64> = (0..1_000)
        .map(|seed| until_granted(contenders, seed))
        .collect();
    took.sort_unstable_by(f64::total_cmp);
    (took[500], took[990])
}
