//! What a search tries: who waits, by which rules, and what may happen.

use super::world::{CLIENTS, Fault};

/// The longest grant by a release, in ticks, of a store that announces the end.
pub(super) const HANDED: u8 = 2;

/// What a search tries.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many waiters each client has.
    pub waiters: [u8; CLIENTS],
    /// Whether the last client only tries: its polls make no place.
    pub tries: bool,
    /// The ttl in ticks.
    pub ttl: u8,
    /// The term of a place, at most the ttl.
    pub term: u8,
    /// By how much the store's clock may gain in a run. The margin is one tick.
    pub gains: u8,
    /// Whether a client gives up waiting for an answer; then what it asked may be carried out later all the same.
    pub doubts: bool,
    /// What may happen.
    pub can: &'static [Fault],
    /// How many times.
    pub faults: u8,
    /// What the store is.
    pub kind: Kind,
    /// A rule that is replaced by a wrong one.
    pub wrong: Option<Wrong>,
    /// One state of this many is checked for whether all are served once all goes well. 0: none.
    pub served_of: u64,
}

/// What the store is, and so what its clients rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One server that knows whether a client listens: a notice without a listener passes to the next place at once.
    Counts,
    /// It does not know: a cluster, Postgres.
    Plain,
    /// A file, whose clients are processes of one kernel: it knows which of them are dead, and each listens as long as
    /// it lives. A release grants for a short time, whose end the notice tells.
    Local,
    /// A server that counts, and that may have forgotten grants nothing for one ttl; a release never grants.
    KeepsOut,
    /// The same, and a release grants unless the server keeps out.
    KeepsOutAsked,
    /// Sentinel: an answer counts only if its server is the master still. A notice is confirmed first.
    Sentinel,
    /// An answer counts only if a replica has what it changed. A notice is confirmed first.
    Acknowledged,
}

/// A rule that is replaced by a wrong one, or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Deadlines have no margin.
    NoMargin,
    /// A notice counts for one term from when it came.
    NoticeTerm,
    /// A release grants for the full ttl, and the notice counts for it from when it came.
    NoticeTtl,
    /// A release grants for the full ttl.
    FullTtl,
    /// A notice of the lease that is held puts its deadline off.
    NoticeExtends,
    /// A notice counts whatever the height that the last answer told.
    AnyJoin,
    /// A notice counts by the number of its join, which is the one that the last answer told.
    ByJoin,
    /// A notice of any holder of the client counts for its first waiter.
    AnyHolder,
    /// A notice counts under the deadline of the poll that is under way, before its answer.
    UnansweredCounts,
    /// A notice counts whatever its token.
    AnyToken,
    /// The same, and joins begin with 1 whenever the queue was empty.
    JoinsRepeat,
    /// The number of the join is the token of its grant.
    JoinIsToken,
    /// What was confirmed counts after the subscription was made anew.
    ReconnectKeeps,
    /// The answer to a poll from before the subscription was made anew confirms.
    OldAnswerConfirms,
    /// A notice counts as a grant where it proves nothing.
    NotConfirmed,
    /// The release of a claim that waits leaves its place as it is.
    ReleaseLeaseOnly,
    /// The release of a waiter that left removes the place that its client has for the others.
    ReleaseDropsPlace,
    /// The release of a waiter that left removes its client's place whosever claim it has.
    LeaveByClient,
    /// A release that finds a place does not check the lease.
    ReleaseEither,
    /// A poll of a claim that has a place makes no doubt, although it makes a place where there is none.
    RefreshAdds,
    /// A poll makes doubt for one term only.
    DoubtOneTerm,
    /// A poll puts the place at the end.
    RefreshMoves,
    /// A claim takes a free name before those that wait.
    Overtakes,
    /// The place that is granted stays in the queue.
    StaysQueued,
    /// A server that may have forgotten grants by a release.
    GrantsInKeepOut,
    /// A poll that finds its own lease is granted it by a server that may have forgotten. It breaks nothing.
    OwnInKeepOut,
    /// The place whose waiter left is dropped at its turn, although its client has others.
    DropsVacant,
    /// The place of a client that does not listen is dropped.
    DropsUnheard,
    /// A client that does not listen is passed over at its own poll as well.
    PassesAsker,
    /// A client that is known to be dead is granted the name.
    HandsToTheDead,
    /// A release grants for the rest of the place's term, however long it is.
    HandsForLong,
    /// A notice counts under the deadline that was confirmed, although the grant ends before.
    EndUntold,
}

impl Wrong {
    /// Whether joins have numbers.
    pub(super) fn numbers_joins(self) -> bool {
        matches!(
            self,
            Self::ByJoin | Self::JoinsRepeat | Self::JoinIsToken | Self::RefreshAdds
        )
    }

    /// Whether a notice counts that does not by the rules as they are meant.
    pub(super) fn counts_more(self) -> bool {
        matches!(
            self,
            Self::NoticeExtends
                | Self::AnyJoin
                | Self::ByJoin
                | Self::AnyHolder
                | Self::AnyToken
                | Self::JoinsRepeat
                | Self::UnansweredCounts
        )
    }
}

impl Setup {
    /// Clients with so many waiters each, and nothing happens but delays, doubts and a gain of the store's clock.
    pub fn new(waiters: [u8; CLIENTS]) -> Self {
        Self {
            waiters,
            tries: false,
            ttl: 3,
            term: 2,
            gains: 1,
            doubts: true,
            can: &[],
            faults: 0,
            kind: Kind::Counts,
            wrong: None,
            served_of: 16,
        }
    }

    /// The same, where each of these may happen once.
    #[must_use]
    pub fn with(self, can: &'static [Fault]) -> Self {
        Self {
            can,
            faults: 1,
            ..self
        }
    }

    /// The same, where nothing is asked again before it is answered, and no clock gains.
    #[must_use]
    pub fn calm(self) -> Self {
        Self {
            doubts: false,
            gains: 0,
            ..self
        }
    }

    /// The same with a ttl and a term of so many ticks.
    #[must_use]
    pub fn lasting(self, ttl: u8, term: u8) -> Self {
        Self { ttl, term, ..self }
    }

    /// The same by a store of this kind.
    #[must_use]
    pub fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same with this rule replaced.
    #[must_use]
    pub fn wrong(self, wrong: Wrong) -> Self {
        Self {
            wrong: Some(wrong),
            ..self
        }
    }

    /// Whether this rule is replaced.
    pub(super) fn has(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// Whether a server that may have forgotten keeps out.
    pub(super) fn keeps_out(&self) -> bool {
        matches!(self.kind, Kind::KeepsOut | Kind::KeepsOutAsked)
    }

    /// Whether a client confirms a grant before it counts a notice of it.
    pub(super) fn confirms_first(&self) -> bool {
        let confirms = matches!(self.kind, Kind::Sentinel | Kind::Acknowledged);
        confirms && !self.has(Wrong::NotConfirmed)
    }

    /// The longest grant by a release, in ticks.
    pub(super) fn handed(&self) -> u8 {
        match self.kind {
            Kind::Local => HANDED,
            _ => self.term,
        }
    }

    /// What is left of a deadline of so long a time, this long after it was asked for.
    pub(super) fn deadline(&self, time: u8, age: u8) -> u8 {
        let margin = if self.has(Wrong::NoMargin) { 0 } else { 1 };
        time.saturating_sub(margin + age)
    }
}
