//! The scripts of a member do what the plain functions of the protocol do, step by step: the model runs those.

use std::collections::BTreeSet;

use fastrand::Rng;
use leasehold::store::quorum::protocol::{
    Absence, MemberAnswer, MemberId, MemberLease, keep_out_us,
};
use leasehold::{ClientId, Holder, Token};

use super::node::{At, MemberRequest, NameState, Node, Writing};
use super::raw::{self, RawMember, writing_words};
use crate::harness::redis_server::{RedisServer, Setup};

/// A whole second, as all moments of the clock are. The ttls end between them: a server counts in milliseconds, and the
/// two need not agree on the very instant of an end.
const BEGIN_US: u64 = 1_795_000_000_000_000;
const MAX_TTL_US: u64 = 60_000_000;
const TTLS_US: [u64; 3] = [10_500_000, 50_500_000, 61_500_000];
const STEPS_S: [u64; 4] = [7, 7, 14, 63];
/// The first two names share a slot.
const KEYS: [[&str; 2]; 3] = [
    ["leasehold:{a}", "leasehold:{1}:mark"],
    ["leasehold:{b}", "leasehold:{1}:mark"],
    ["leasehold:{c}", "leasehold:{2}:mark"],
];

/// Both members, under one clock that stands still.
struct Pair {
    node: Node<String>,
    marks: [u64; 2],
    leases: [Option<MemberLease>; 3],
    at: At<String>,
    raw: RawMember,
    server: RedisServer,
    rng: Rng,
    /// Some tokens and marks that were proposed or told.
    tokens: Vec<u64>,
    log: Vec<String>,
    /// The kinds of answers that were given.
    answered: BTreeSet<&'static str>,
}

impl Pair {
    async fn start(seed: u64) -> Self {
        let server = Setup::default().with_clock().start().await;
        server.stop_clock_at(BEGIN_US).await;
        let mut raw = RawMember::of(&server).await;
        let (_, at, _) = raw.node(&["look".into()]).await;
        let mut node = Node::default();
        let _ = node.look(id_in(7), &at);
        Self {
            node,
            marks: [0; 2],
            leases: [None; 3],
            at,
            raw,
            server,
            rng: Rng::with_seed(seed),
            tokens: vec![BEGIN_US],
            log: Vec::new(),
            answered: BTreeSet::new(),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    /// One that was proposed or told before, or one near it, or one near the clock.
    fn number(&mut self) -> u64 {
        let near = match self.rng.u8(0..10) {
            0..6 => {
                let tokens = self.tokens.clone();
                self.pick(&tokens)
            }
            6..8 => self.at.now_us,
            _ => self.tokens.iter().copied().max().expect("one at least"),
        };
        let number = near + self.rng.u64(0..3);
        self.tokens.push(number);
        if self.tokens.len() > 12 {
            self.tokens.swap_remove(0);
        }
        number
    }

    fn id(&mut self) -> MemberId {
        let known = self.node.membership.as_ref().map(|member| member.id);
        match (self.rng.u8(0..12), known) {
            (0, _) => id_in(8),
            (1, _) => MemberId {
                index: 1,
                ..id_in(7)
            },
            (_, Some(known)) => known,
            _ => id_in(7),
        }
    }

    fn request(&mut self, name: usize) -> MemberRequest {
        let holder = Holder::new(ClientId::from_u128(7), self.rng.u64(1..4));
        let request = MemberRequest {
            id: self.id(),
            holder,
            token: Token::new(self.number()).expect("a token"),
            ttl_us: self.pick(&TTLS_US),
        };
        match self.leases[name] {
            Some(lease) if self.rng.bool() => MemberRequest {
                holder: lease.holder,
                token: lease.token,
                ..request
            },
            _ => request,
        }
    }

    /// Does the same to both, and compares what they answer and what they keep.
    async fn step(&mut self) {
        match self.rng.u8(0..40) {
            0..28 => self.ask().await,
            28..34 => self.node().await,
            34..38 => {
                self.at.now_us += self.pick(&STEPS_S) * 1_000_000;
                self.server.stop_clock_at(self.at.now_us).await;
            }
            38 => {
                self.log.push("flushed".into());
                let () = self.server.told("FLUSHALL").await;
                self.node = Node::default();
                self.marks = [0; 2];
                self.leases = [None; 3];
            }
            _ => {
                self.log.push("promoted".into());
                let () = self.server.told("REPLICAOF 127.0.0.1 1").await;
                let () = self.server.told("REPLICAOF NO ONE").await;
            }
        }
        self.compare().await;
    }

    async fn ask(&mut self) {
        let name = self.rng.usize(..3);
        let word = self.pick(&["claim", "claim", "renew", "renew", "release", "evict"]);
        let mut asked = self.request(name);
        if word == "release" && self.rng.bool() {
            asked.ttl_us = 0;
        }
        let told = (word == "renew" && self.rng.bool()).then(|| {
            let last = self
                .node
                .membership
                .as_ref()
                .map_or(0, |member| member.floor);
            match self.rng.bool() {
                true => self.marks[name / 2].max(last),
                false => self.number(),
            }
        });
        self.log.push(format!("{word} {name} {asked:?} {told:?}"));
        let mut record = NameState {
            mark: self.marks[name / 2],
            lease: self.leases[name],
        };
        let (node, at) = (&mut self.node, &self.at);
        let expected = match word {
            "claim" => node.claim(&mut record, &asked, at),
            "renew" => node.renew(&mut record, &asked, told, at),
            "evict" => node.evict(&mut record, &asked, at),
            _ => node.release(&mut record, &asked, at),
        };
        self.marks[name / 2] = record.mark;
        self.leases[name] = record.lease;
        let said = self.raw.ask(word, KEYS[name], &asked, told).await;
        let said = said.expect("names.lua answers");
        assert_eq!(said, expected, "{}", self.told());
        if let MemberAnswer::Low(mark) = said {
            self.tokens.push(mark);
        }
        self.answered.insert(match (word, said) {
            ("release", MemberAnswer::Yes) => "freed",
            ("release", MemberAnswer::Absent(_)) => "released nowhere",
            (_, MemberAnswer::Yes) => "yes",
            (_, MemberAnswer::NotHeld) => "not held",
            (_, MemberAnswer::Taken(_)) => "taken",
            (_, MemberAnswer::Low(_)) => "low",
            (_, MemberAnswer::Absent(Absence::Away(_))) => "away",
            (_, MemberAnswer::Absent(Absence::Other(_))) => "other",
            (_, MemberAnswer::Absent(Absence::Closed(_))) => "closed",
            (_, MemberAnswer::Absent(Absence::TooLong(_))) => "too long",
        });
    }

    async fn node(&mut self) {
        let (_, at, _) = self.raw.node(&["look".into()]).await;
        self.at.incarnation = at.incarnation;
        let write = Writing {
            id: match self.rng.u8(0..4) {
                0 => id_in(8),
                _ => self.id(),
            },
            max_ttl_us: MAX_TTL_US,
            found: match self.rng.u8(0..8) {
                0 => "another".into(),
                _ => self.at.incarnation.clone(),
            },
            highest: self.number(),
        };
        self.look(write.id);
        let run = self.rng.u64(1..3);
        let word = self.pick(&[
            "adopt", "adopt", "adopt", "reserve", "open", "open", "close",
        ]);
        self.log.push(format!("{word} {write:?} {run}"));
        let at = self.at.clone();
        let arguments = match word {
            "adopt" => {
                let _ = self.node.adopt(&write, &at);
                writing_words(word, &write.found, &write)
            }
            "open" => {
                let _ = self.node.open(&write, run, &at);
                writing_words(word, &run.to_string(), &write)
            }
            "reserve" => {
                let _ = self.node.reserve(run);
                vec![word.into(), run.to_string()]
            }
            _ => {
                let _ = self.node.close(write.id, 8, &at);
                vec![word.into(), raw::member_words(write.id), "8".into()]
            }
        };
        self.raw.node(&arguments).await;
    }

    /// Looks at the plain member as `node.lua` does, which notes when one that is away was first seen. Returns whether
    /// it is in; `id` is that of a blank one.
    fn look(&mut self, id: MemberId) -> bool {
        let member = self.node.membership.as_ref();
        let known = member.map_or(id, |member| member.id);
        if let Some(quorum) = member.and_then(|member| member.closed_for) {
            let successor = MemberId { quorum, ..known };
            let _ = self.node.look(successor, &self.at);
        }
        self.node.look(known, &self.at).is_ok()
    }

    /// Compares what both keep.
    async fn compare(&mut self) {
        let (kept, at, is_in) = self.raw.node(&["look".into()]).await;
        self.at.incarnation = at.incarnation;
        let is_expected = self.look(id_in(7))
            || self.node.membership.as_ref().is_some_and(|member| {
                member.closed_for.is_some() && member.incarnation == self.at.incarnation
            });
        assert_eq!(is_in, is_expected, "{}", self.told());
        assert_eq!(kept.reserved_by, self.node.reserved_by, "{}", self.told());
        let mut expected = self.node.membership.clone();
        if let Some(member) = expected.as_mut().filter(|_| !is_in) {
            member.incarnation = String::new();
        }
        assert_eq!(kept.membership, expected, "{}", self.told());
        for (slot, mark) in self.marks.into_iter().enumerate() {
            let key = KEYS[2 * slot][1];
            let kept: Option<u64> = self.server.told(&format!("GET {key}")).await;
            assert_eq!(kept.unwrap_or(0), mark, "{}", self.told());
        }
        for (name, [key, _]) in KEYS.into_iter().enumerate() {
            let value: Option<String> = self.server.told(&format!("GET {key}")).await;
            let left: i64 = self.server.told(&format!("PTTL {key}")).await;
            let now_us = self.at.now_us;
            let left = u64::try_from(left).unwrap_or(0);
            let kept = value.map(|value| raw::lease_in(&value, left, now_us));
            let expected = self.leases[name].filter(|lease| lease.ends_at_us > now_us);
            assert_eq!(kept, expected, "{}", self.told());
        }
    }

    /// The last steps, for the message.
    fn told(&self) -> String {
        let from = self.log.len().saturating_sub(12);
        self.log[from..].join("\n")
    }
}

const fn id_in(quorum: u64) -> MemberId {
    MemberId {
        quorum,
        index: 0,
        of: 3,
    }
}

#[tokio::test]
async fn the_scripts_of_a_member_do_what_the_plain_functions_do() {
    assert_eq!(keep_out_us(MAX_TTL_US), 60_602_000, "not at a whole second");
    let seed = std::env::var("LEASEHOLD_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("LEASEHOLD_TEST_SEED={seed}");
    let mut pair = Pair::start(seed).await;
    for _ in 0..4_000 {
        pair.step().await;
    }
    assert_eq!(pair.answered.len(), 10, "{:?}", pair.answered);
}
