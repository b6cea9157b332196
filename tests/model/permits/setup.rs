//! What a search tries: who asks for what, by which rules, and what may happen.

use super::world::{ACTORS, Promise};

/// What a search tries.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many readers there are. They are the first actors.
    pub readers: usize,
    /// How many writers there are.
    pub writers: usize,
    /// How many permits each actor knows.
    pub permits: [u8; ACTORS],
    /// When a permit that was taken behind the door counts.
    pub rule: Rule,
    /// A rule that is replaced by a wrong one.
    pub wrong: Option<Wrong>,
    /// Whether readers claim a permit first.
    pub fast: bool,
    /// Whether readers queue at the door.
    pub slow: bool,
    /// Whether a check is only as new as the own claim: it may be executed before the answer to the claim is heard.
    pub one_session: bool,
    /// Whether a lease may end before its deadline: it is evicted, or a clock is wrong.
    pub ends_early: bool,
    /// Whether actors die; then it is checked whether each living one can still be served (X3).
    pub deaths: bool,
    /// Whether a writer goes on as a reader, or a reader as a writer.
    pub goes_on: Option<GoesOn>,
    /// Whether the readers are tasks of one client: one queues at the door, and others take a permit at its turn.
    pub joins: bool,
    /// How a reader gets another share within its own.
    pub within: Option<Within>,
    /// Which readers raise the fence of a storage that the writers write to.
    pub fence: Option<Fence>,
    /// The promises that are checked.
    pub asked: &'static [Promise],
}

/// When a permit that was taken behind the door counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// R'': if the answer to the door's release says that the door was still held with this token.
    Release,
    /// R: if the door's deadline has not passed when the permit's grant is heard.
    Deadline,
    /// If the door's deadline has not passed when the permit is claimed.
    DeadlineAtClaim,
    /// R': if a later check shows the door free, or own by its holder.
    FreeOrOwn,
    /// If a later check shows the door own by its holder.
    OwnByHolder,
    /// If a later check shows the door own by its token.
    OwnByToken,
    /// At once.
    AtOnce,
}

/// A rule that is replaced by a wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// The check of the door is sent with the claim of the permit.
    DoorCheckedEarly,
    /// A reader does not check the door.
    DoorNotChecked,
    /// A check of the door shows an earlier state.
    DoorCheckIsStale,
    /// A check of the door for an earlier permit counts.
    DoorCheckKept,
    /// A door that a reader holds counts as free.
    ReadersDoorIsFree,
    /// The first reader and the last writer are tasks of one client, and "own" is by client.
    OwnByClient,
    /// A writer checks the permits before its door is granted.
    PermitsCheckedEarly,
    /// A check of a permit shows an earlier state.
    PermitCheckIsStale,
    /// Checks of the permits from before the door was lost count.
    PermitChecksKept,
    /// A reader keeps its permit while it queues at the door.
    PermitKeptInQueue,
    /// A task's permit counts though its grant was heard after the door's release was sent.
    LateTasksCount,
}

/// Who goes on as what without an end between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoesOn {
    /// A writer takes a permit while it has the door.
    AsReader,
    /// A reader asks for the door and keeps its permit.
    AsWriter,
}

/// How a reader gets another share within its own, without which it does not end its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// It is the share that it has, which ends with the last of the two.
    Joins,
    /// The second reader asks for it within the share of the first, and gives up where the door is taken.
    IsRefused,
    /// The same, but it queues at the door, as any reader.
    Queues,
    /// The same, but it takes a permit without a check of the door, because the first one has one.
    PassesTheDoor,
}

/// Which readers raise the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// Those who came through the door, with its token.
    BehindTheDoor,
    /// These, and those who did not, above the door's last token, which their check of it tells.
    AboveTheLast,
    /// Those who came through the door; the others count on the fence without raising it.
    CountedOn,
}

impl Setup {
    /// Returns these actors, who know the same number of permits, with the rules as they are to be built.
    pub fn new(readers: usize, writers: usize, permits: u8) -> Self {
        Self {
            readers,
            writers,
            permits: [permits; ACTORS],
            rule: Rule::Release,
            wrong: None,
            fast: true,
            slow: true,
            one_session: false,
            ends_early: false,
            deaths: false,
            goes_on: None,
            joins: false,
            within: None,
            fence: None,
            asked: &[
                Promise::Apart,
                Promise::OnePermitEach,
                Promise::Fenced,
                Promise::NotRefused,
            ],
        }
    }

    /// Returns the same with another rule behind the door.
    pub fn by(self, rule: Rule) -> Self {
        Self { rule, ..self }
    }

    /// Returns the same with a wrong rule.
    pub fn with(self, wrong: Wrong) -> Self {
        let wrong = Some(wrong);
        Self { wrong, ..self }
    }

    /// Returns the same where actors die.
    pub fn dying(self) -> Self {
        let deaths = true;
        Self { deaths, ..self }
    }

    /// Returns the same where leases end early.
    pub fn ending_early(self) -> Self {
        Self {
            ends_early: true,
            asked: &[Promise::ApartForGood],
            ..self
        }
    }

    /// Returns the same where each reader goes through the door, and raises the fence.
    pub fn fenced(self) -> Self {
        Self {
            fast: false,
            ..self.fencing(Fence::BehindTheDoor)
        }
    }

    /// Returns the same with a storage.
    pub fn fencing(self, fence: Fence) -> Self {
        let fence = Some(fence);
        Self { fence, ..self }
    }

    pub(super) fn has(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    pub(super) fn actors(&self) -> usize {
        self.readers + self.writers
    }

    /// Whether this reader asks for a share within that of the first one.
    pub(super) fn is_within(&self, actor: usize) -> bool {
        actor == 1 && self.within.is_some_and(|within| within != Within::Joins)
    }

    pub(super) fn is_reader(&self, actor: usize) -> bool {
        actor < self.readers
    }

    /// Whether two actors differ only in their order.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        other < self.actors()
            && self.is_reader(one) == self.is_reader(other)
            && self.permits[one] == self.permits[other]
            && !self.is_within(one)
            && !self.is_within(other)
            && !self.has(Wrong::OwnByClient)
    }
}
