//! The bounds of one search.

use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold::store::Eviction;
use leasehold::store::quorum::planted::{Planted, QuorumBug};
use leasehold::store::quorum::{AHEAD, Rules};

use crate::Promise;

/// One tick, in microseconds of a member's clock.
pub(crate) const TICK_US: u64 = 1_000_000;
/// What the members' clocks show at first.
const START_US: u64 = 1_000_000_000;
/// What every guess of a token is above: in front of the clocks by more ticks than a search has.
pub(crate) const BASE_US: u64 = START_US + 100 * TICK_US;

/// Whether leases end by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    /// A member's clock gains no more than `gains` ticks on those of the holders.
    Kept,
    /// A lease and a keep-out may end at any moment.
    Broken,
}

/// When a claim gives up a round without a grant, and takes back what it may have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivesUp {
    /// At any moment.
    Always,
    /// Only to ask again.
    ToAskAgain,
    /// Only if it has lost a grant before.
    AfterALoss,
    /// Never: it goes on at once with a higher token.
    Never,
}

/// What a search tries.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many members there are.
    pub members: usize,
    /// For each claim, how many rounds it asks at most.
    pub asks: Vec<u8>,
    /// For each claim, how many renewals its holder sends at most.
    pub renewals: Vec<u8>,
    /// For each claim, the tokens from which it chooses: what the members' clocks may have told it. If it must choose a
    /// higher one, it takes the least of those.
    pub guesses: Vec<RangeInclusive<u64>>,
    /// Whether holders release.
    pub releases: bool,
    /// How many ticks pass at most.
    pub ticks: u8,
    /// The ttl, in ticks.
    pub ttl: u8,
    /// How much earlier than the members a holder counts its lease as over, in ticks.
    pub margin: u8,
    /// How many ticks the members' clocks gain, all together.
    pub gains: u8,
    /// How many members come back without their data.
    pub restarts: u8,
    /// How many members come back with an old copy of their data.
    pub copies: u8,
    /// How an operator evicts the holder, once. `None` for never.
    pub evicts: Option<Eviction>,
    /// How many times each holder writes to a storage that has a fence.
    pub writes: u8,
    /// How many requests are carried out twice.
    pub doubled: u8,
    /// When a claim gives up a round, and takes back.
    pub gives_up: GivesUp,
    /// Whether a claim begins its next round without taking back, as after a token that was too low, or if it was dropped
    /// half-way.
    pub hurries: bool,
    /// Whether replies get lost.
    pub loses_replies: bool,
    /// Whether replies come late. Otherwise each is heard at once, or lost. That finds the same: a holder that hears later
    /// believes for less, is told later, and asks for nothing that it could not have asked for earlier.
    pub has_late_replies: bool,
    /// Whether leases end by the clock.
    pub clocks: Clocks,
    /// What is wrong.
    pub bug: Option<QuorumBug>,
    /// The only promise that is looked at; others that a bug breaks earlier are passed over, so that the harm itself is
    /// seen. `None` for all.
    pub only: Option<Promise>,
}

impl Setup {
    /// Returns the least setup: two claims of one round each, on three members, with clocks that are kept.
    pub fn new() -> Self {
        Self {
            members: 3,
            asks: vec![1, 1],
            renewals: vec![0, 0],
            guesses: vec![1..=2, 1..=2],
            releases: false,
            ticks: 0,
            ttl: 2,
            margin: 0,
            gains: 0,
            restarts: 0,
            copies: 0,
            evicts: None,
            writes: 0,
            doubled: 0,
            gives_up: GivesUp::Always,
            hurries: true,
            loses_replies: false,
            has_late_replies: false,
            clocks: Clocks::Kept,
            bug: None,
            only: None,
        }
    }

    /// The least setup, with leases that end at any moment.
    pub fn without_clocks() -> Self {
        Self {
            clocks: Clocks::Broken,
            ..Self::new()
        }
    }

    /// Whether the promises hold that rest on clocks.
    pub(crate) fn keeps_time(&self) -> bool {
        self.clocks == Clocks::Kept && self.evicts != Some(Eviction::Now)
    }

    pub(crate) fn planted(&self) -> Planted {
        Planted::new(self.bug)
    }

    pub(crate) fn has(&self, bug: QuorumBug) -> bool {
        self.bug == Some(bug)
    }

    /// The ttl as the members are told it: out of reach if leases end at any moment anyway.
    pub(crate) fn ttl(&self) -> Duration {
        match self.clocks {
            Clocks::Kept => Duration::from_micros(u64::from(self.ttl) * TICK_US),
            Clocks::Broken => Duration::from_micros(90 * TICK_US),
        }
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules {
            max_ttl: self.ttl(),
            ahead: AHEAD,
            memory: self.ttl(),
            is_trusted: false,
            planted: self.planted(),
        }
    }

    /// What a member's clock shows that gained so many ticks.
    pub(crate) fn clock_us(&self, now: u8, gained: u8) -> u64 {
        START_US + u64::from(now + gained) * TICK_US
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}
