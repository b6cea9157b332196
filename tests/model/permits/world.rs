//! A state of the model: the actors, the leases that the store has, and a storage with a fence.

use std::hash::{Hash, Hasher};

/// The most actors that a search has.
pub(super) const ACTORS: usize = 4;
/// The door and at most two permits.
pub(super) const NAMES: usize = 3;
/// The door's index among the names; a permit's is its number.
pub(super) const DOOR: u8 = 0;
/// The holder of a free name; an actor's is its index and one.
pub(super) const FREE: u8 = 0;
/// The holder of a name whose lease no actor knows by its token.
pub(super) const LEFTOVER: u8 = 9;

/// A state. Tokens are small even numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    pub(super) actors: [Actor; ACTORS],
    pub(super) holders: [u8; NAMES],
    /// The names that a leftover claim may take, a bit each.
    pub(super) leftovers: u8,
    /// The last token of the door.
    pub(super) last: u8,
    /// The highest token that the storage has seen.
    pub(super) mark: u8,
    pub(super) broken: Option<Promise>,
}

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// X1: no writer believes while another believes.
    Apart,
    /// X2: never two on one permit, and never more than there are.
    OnePermitEach,
    /// X4: no write lands while a reader believes that raised the fence.
    Fenced,
    /// X5: no writer that believes is refused.
    NotRefused,
    /// X1L: the store never has the leases of a writer and a reader who both believe.
    ApartForGood,
}

/// An actor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Actor {
    pub(super) phase: Phase,
    pub(super) door: Claim,
    /// The permit that it claims, 0 for none.
    pub(super) permit: u8,
    pub(super) permit_claim: Claim,
    /// What its check of the door, or its release of it, was answered: both, where that was executed twice.
    pub(super) says_yes: bool,
    pub(super) says_no: bool,
    /// The permits that it saw free, a bit each.
    pub(super) seen: u8,
    /// Whether it has a share within its own.
    pub(super) has_inner: bool,
    /// Whether it is a reader behind a fence.
    pub(super) is_fenced: bool,
    /// The door's token, and that with which it would raise the fence if its check says yes.
    pub(super) token: u8,
    pub(super) above: u8,
    /// What is on its way to the storage, 0 for nothing.
    pub(super) raise: u8,
    pub(super) write: u8,
}

/// What an actor does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    /// Exits: Claiming, Queueing, Joining.
    #[default]
    Idle,
    /// A reader claims a permit. Exits: Checking (granted), Queueing or Idle (gave up).
    Claiming,
    /// It checks the door. Exits: Shared (free), Queueing (taken).
    Checking,
    /// It holds a permit. Exits: Idle (released), Upgrading.
    Shared,
    /// The door is claimed. Exits: Taking (a reader), Inspecting (a writer), Idle (gave up).
    Queueing,
    /// The same, by a reader that keeps its permit. Exits: Inspecting, Idle.
    Upgrading,
    /// A reader has the door, and takes a permit. Exits: Releasing, Queueing (again), Idle (gave up).
    Taking,
    /// It has released the door, or checks whether it has it still. Exits: Shared (yes), Queueing (no).
    Releasing,
    /// A writer checks the permits. Exits: Exclusive (all seen free), Queueing (again), Idle (gave up).
    Inspecting,
    /// It holds the door. Exits: Idle (released), Taking (goes on as a reader).
    Exclusive,
    /// A task claims a permit at another one's turn. Exits: Joined (granted), Idle (too late).
    Joining,
    /// It has a permit. Exits: Shared or Idle, as the answer to the door's release is.
    Joined,
    /// It does not come back.
    Dead,
}

/// A claim of a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Claim {
    #[default]
    None,
    /// Exits: Granted, Lapsed.
    Sent,
    /// Exits: Heard, Lapsed.
    Granted,
    /// Its actor knows its token. Exits: Lapsed.
    Heard,
    /// Its deadline has passed.
    Lapsed,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Of an actor.
    Actor(u8, Act),
    /// Of a name at the store.
    Name(u8, Fate),
}

/// What an actor does, or what becomes of what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Claims a permit.
    ClaimPermit(u8),
    /// A task claims a permit at the turn of another one of its client.
    Join(u8),
    /// Hears that it has the permit.
    HearPermit,
    /// Gives its permit back to try another one.
    LeavePermit,
    /// Gives back what it has, and claims the door.
    ClaimDoor,
    /// Hears that it has the door.
    HearDoor,
    /// Hears that the door is free, or was still its own.
    HearYes,
    /// Hears that it is not.
    HearNo,
    /// Has seen each permit free, and holds exclusively.
    Hold,
    /// Releases, or is done with a claim that came to nothing.
    Leave,
    /// Does not want to wait any longer.
    GiveUp,
    /// Begins or ends a share within its own.
    TurnInner,
    /// Has the door and goes on as a reader.
    GoOnAsReader,
    /// Has a permit and wants the door.
    GoOnAsWriter,
    /// Sends a write.
    SendWrite,
    /// Dies.
    Die,
    /// The deadline of a name's claim passes.
    Lapse(u8),
    /// The claim of a name is executed.
    Granted(u8),
    /// The check of the door, or the door's release, is executed.
    DoorAnswers,
    /// The check of a permit is executed and shows it free.
    PermitIsFree(u8),
    /// The raise arrives at the storage.
    Raise,
    /// The write arrives at the storage.
    Write,
}

/// What becomes of a name at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its lease ends, after its deadline or by a release.
    Ends,
    /// Its lease ends before its deadline.
    EndsEarly,
    /// A leftover claim takes it.
    LeftoverTakes,
}

impl World {
    /// Returns the claim of a name.
    pub(super) fn claim(&mut self, who: usize, name: u8) -> &mut Claim {
        let actor = &mut self.actors[who];
        if name == DOOR {
            return &mut actor.door;
        }
        &mut actor.permit_claim
    }
}

impl Hash for Actor {
    /// As one word: a search spends much of its time here.
    fn hash<H: Hasher>(&self, into: &mut H) {
        let flags = [self.says_yes, self.says_no, self.is_fenced, self.has_inner];
        let flags = flags
            .iter()
            .fold(0, |bits, flag| bits << 1 | u8::from(*flag));
        into.write_u64(u64::from_le_bytes([
            self.phase as u8,
            (self.door as u8) << 4 | self.permit_claim as u8,
            self.permit << 4 | self.seen,
            flags,
            self.token,
            self.above,
            self.raise,
            self.write,
        ]));
    }
}

/// How an actor is named as the holder of a name.
pub(super) fn holder_number(who: usize) -> u8 {
    who as u8 + 1
}
