//! What a search tries: which clients there are, what the store knows of time, by which rules, and what may happen.

use super::world::Evict;

/// What a search tries.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many clients there are.
    pub clients: usize,
    /// Whether the last client is a new process at each read.
    pub is_fresh: bool,
    /// The ttl of the first client in ticks. The margin is one tick.
    pub ttl: u8,
    /// That of the others, at most as long.
    pub others_ttl: u8,
    /// How long a release keeps the name. 0: none does.
    pub keep: u8,
    /// Whether a kept record has no end, but a length that counts from when it was written, as that of a lease does.
    pub keeps_by_stamp: bool,
    /// How the store tells when a lease is over.
    pub kind: Kind,
    /// Whether a write has the time of its sending, and not that of its execution.
    pub stamps_early: bool,
    /// By how much the clocks of the store and of observers may gain on those of holders in a run.
    pub gains: u8,
    /// Whether a client gives up waiting for a reply; then its put may be carried out later all the same.
    pub doubts: bool,
    /// Whether clients claim the name again.
    pub rounds: bool,
    /// Whether clients die.
    pub deaths: bool,
    /// What an operator may do.
    pub evicts: &'static [Evict],
    /// How many times one of the last two may happen.
    pub faults: u8,
    /// A rule that is replaced by a wrong one.
    pub wrong: Option<Wrong>,
}

/// How the store tells when a lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It does not.
    Timeless,
    /// It shows its clock and the time of the last write, by servers whose clocks are so many ticks apart.
    Dated {
        /// How many.
        apart: u8,
    },
    /// Its records end by themselves, and a renewal does not change the version.
    Ending,
}

/// A rule that is replaced by a wrong one, or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Deadlines have no margin.
    WithoutMargin,
    /// The holder counts from the reply.
    DeadlineFromReply,
    /// The observer counts from when it sent the read.
    SeenFromSend,
    /// The observer goes on counting when the version is another.
    ObservationKept,
    /// A renewal does not change the version: what it writes is what was there.
    NoBeat,
    /// The second rule allows for one tick less than the servers are apart.
    SmallSkew,
    /// The second rule compares the clock of the client, which is ahead.
    ClientsClock,
    /// The store's clock is counted on from when the read was sent.
    ClockFromSend,
    /// The time of the last write is that of a version before the one that was read.
    StampUnmatched,
    /// A claim that finds its own record counts it from the read.
    PollGrants,
    /// There is no second rule.
    FirstRuleOnly,
    /// A lease that ends by itself is over by the first rule as well.
    ObservesEnding,
    /// The ttl of a lease that ends by itself begins before the put is sent.
    EndsBeforePut,
    /// A keep is only a length, which ends by the first rule.
    KeepIsLength,
    /// The end of a keep does not allow for the servers being apart.
    KeepUnskewed,
    /// A claim is put on whatever version there is.
    ClaimsAnyVersion,
    /// A release is put on whatever version there is.
    ReleasesAnyVersion,
    /// A renewal is put on whatever version there is.
    RenewsAnyVersion,
    /// A renewal that found another version reads the holder and the token only.
    RenewsEvicted,
    /// A claim that finds itself evicted takes the record back.
    ReclaimsEvicted,
    /// A renewal may write a shorter ttl.
    RenewsShorter,
    /// A release that finds another's record leaves a doubtful claim as it is.
    ReleaseUnpoisoned,
    /// The same, and it tells that the claim may come to have the name. It breaks no other promise.
    ReleaseInDoubt,
    /// A release that finds another's record poisons whatever version it finds.
    PoisonsAnyVersion,
    /// A release leaves a record of its own as it is once that is over.
    ReleaseLeavesOver,
    /// The reply to an earlier claim of the client counts for the current one.
    AnyReplyCounts,
    /// A claim does not raise the record's token.
    SameToken,
    /// The observer counts its own ttl, not the record's.
    OwnTtl,
    /// A read may show an earlier record.
    StalePoll,
    /// A claim that finds its own record gives it a new token.
    AgainMints,
    /// The same of a record that is over. It breaks nothing.
    AgainMintsOver,
    /// An operator counts from when the read was sent.
    EvictsFromSend,
    /// An operator leaves one tick, whatever it has seen.
    EvictsShort,
}

impl Setup {
    /// So many clients of a store without a clock, where nothing happens but delays, doubts and a gain.
    pub fn new(clients: usize) -> Self {
        Self {
            clients,
            is_fresh: false,
            ttl: 3,
            others_ttl: 3,
            keep: 0,
            keeps_by_stamp: false,
            kind: Kind::Timeless,
            stamps_early: false,
            gains: 1,
            doubts: true,
            rounds: true,
            deaths: false,
            evicts: &[],
            faults: 0,
            wrong: None,
        }
    }

    /// The same by a store of this kind.
    #[must_use]
    pub fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same, where no reply is lost and no clock gains.
    #[must_use]
    pub fn calm(self) -> Self {
        Self {
            doubts: false,
            gains: 0,
            ..self
        }
    }

    /// The same, where each client claims the name once.
    #[must_use]
    pub fn once(self) -> Self {
        Self {
            rounds: false,
            ..self
        }
    }

    /// The same, where a release may keep the name for that long.
    #[must_use]
    pub fn keeping(self, keep: u8) -> Self {
        Self { keep, ..self }
    }

    /// The same, where an operator does one of these once.
    #[must_use]
    pub fn evicting(self, evicts: &'static [Evict]) -> Self {
        Self {
            evicts,
            faults: 1,
            ..self
        }
    }

    /// The same, where a client dies, and the last one is a new process at each read.
    #[must_use]
    pub fn fresh(self) -> Self {
        Self {
            is_fresh: true,
            ..self.dying()
        }
    }

    /// The same, where a client dies.
    #[must_use]
    pub fn dying(self) -> Self {
        Self {
            deaths: true,
            faults: 1,
            ..self
        }
    }

    /// The same with this rule replaced.
    #[must_use]
    pub fn wrong(self, wrong: Wrong) -> Self {
        Self {
            wrong: Some(wrong),
            ..self
        }
    }

    pub(super) fn has(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// The ttl of a client's claims.
    pub(super) fn ttl_of(&self, at: usize) -> u8 {
        match at {
            0 => self.ttl,
            _ => self.others_ttl,
        }
    }

    /// By how much the clocks of two servers differ.
    pub(super) fn apart(&self) -> u8 {
        match self.kind {
            Kind::Dated { apart } => apart,
            Kind::Timeless | Kind::Ending => 0,
        }
    }

    /// What the second rule allows for that.
    pub(super) fn skew(&self) -> u8 {
        self.apart() - u8::from(self.has(Wrong::SmallSkew))
    }

    /// The longest age of a record that makes a difference.
    pub(super) fn oldest(&self) -> u8 {
        self.ttl.max(self.keep) + self.skew() + self.apart()
    }
}
