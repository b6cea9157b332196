//! A state: the record with what the store knows of it, the clients, and what is on its way.
//!
//! A version is compared with the record's and never comes back, so all that is kept of one is whether it is the
//! record's still.

/// How many clients a state has room for.
pub(super) const CLIENTS: usize = 3;

/// A holder: a claim of a client, counted from 1. A client has two in turn.
pub(super) type Holder = u8;
/// Nobody.
pub(super) const NOBODY: Holder = 0;

/// A state. All times are ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    pub(super) store: Store,
    pub(super) clients: [Client; CLIENTS],
    /// The highest token that was granted.
    pub(super) granted: u8,
    /// Grants up to this token may be given to others before they end: by an operator.
    pub(super) forgiven: u8,
    pub(super) faults: u8,
    /// By how much the clocks of the store and of observers may still gain on those of holders.
    pub(super) gains: u8,
    pub(super) broken: Option<Promise>,
}

/// The record, and what else the store has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Store {
    pub(super) record: Record,
    /// How long ago it was written.
    pub(super) age: u8,
    /// Whether the server that wrote it is the one whose clock is ahead.
    pub(super) is_ahead: bool,
    /// While it is kept: when that ends, by the clock that is behind. Negative once that has passed.
    pub(super) ends_in: i8,
    /// While it is kept: for how long it must be.
    pub(super) kept: u8,
}

/// What a put writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) holder: Holder,
    pub(super) token: u8,
    pub(super) ttl: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum State {
    #[default]
    Free,
    Leased,
    Evicted,
    Kept,
}

/// A client with its claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// Which of its two holders the claim has.
    pub(super) is_second: bool,
    /// Whether its release keeps the name.
    pub(super) keeps: bool,
    /// While it holds.
    pub(super) token: u8,
    /// While it holds: what is left of its deadline.
    pub(super) left: u8,
    /// The highest token that it has counted.
    pub(super) counted: u8,
    /// Whether it knows what the record is, because it wrote that itself.
    pub(super) knows: bool,
    /// How long it has had the record's version in hand, if it has.
    pub(super) observed: Option<u8>,
    /// The request that it waits for.
    pub(super) sent: Option<Sent>,
    /// A put that it gave up, or the reply to one.
    pub(super) doubt: Option<Sent>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    /// It does not have the name, and was told so. Exits: Waiting, with its other holder.
    #[default]
    Left,
    /// It claims the name. Exits: Held, Leaving.
    Waiting,
    /// It believes to hold. Exits: Leaving.
    Held,
    /// It does not want the name any more; its release is repeated. Exits: Left.
    Leaving,
    /// It is dead.
    Gone,
}

/// A request on its way, or the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Sent {
    /// A read has none.
    pub(super) put: Option<Put>,
    pub(super) age: u8,
    pub(super) reply: Option<Reply>,
}

/// What to write, if the record's version is this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Put {
    pub(super) is_current: bool,
    pub(super) to: Record,
    /// Whether it extends a lease.
    pub(super) is_renewal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reply {
    HasRead(Read),
    /// Whether what it wrote is there still.
    Done(bool),
    Conflict,
}

/// What a read shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Read {
    pub(super) record: Record,
    pub(super) is_current: bool,
    /// By the store: how long ago it was written.
    pub(super) age: i8,
    /// By the store: when it is no longer kept.
    pub(super) ends_in: i8,
    /// Whether it is the version that the doubtful put of the claim is for.
    pub(super) is_doubts: bool,
}

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Who believes to hold has the record with that token, unless an operator took it.
    OneHolder,
    /// Each token is above those that were granted before.
    TokensRise,
    /// A claim that was told that it left does not have the record.
    LeftIsLeft,
    /// Who was evicted does not extend its lease.
    EvictedIsNotRenewed,
    /// No kept name is granted before its time.
    KeptIsKept,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All clocks go on.
    Tick,
    /// The clocks of the store and of observers gain on those of holders.
    Gain,
    /// Of a client.
    Client(u8, Act),
    /// Of an operator.
    Evict(Evict),
}

/// What a client does, or what becomes of what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Sends a read.
    Read,
    /// Sends a put for what it knows without a read.
    Put,
    /// Its request is carried out, by the server whose clock is ahead or the other.
    CarriedOut(bool),
    /// It hears the reply.
    Hear,
    /// It gives up waiting for the reply.
    Abandon,
    /// The put that it gave up is carried out.
    CarriedOutLate(bool),
    /// It hears the reply to that.
    HearLate,
    /// It does not want the name any more, whether it has it or not; whether its release keeps the name.
    Leave(bool),
    /// It claims the name again, with its other holder.
    Again,
    /// The same, while its last claim is in doubt.
    Anew,
    /// It dies.
    Die,
}

/// How an operator evicts the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evict {
    /// The name is free at once.
    Now,
    /// By one who never saw the record before.
    Fresh(bool),
    /// By one who had it in hand from the moment it was written.
    Observed(bool),
}

/// The holder of a client's claim.
pub(super) fn holder_of(at: usize, client: &Client) -> Holder {
    at as u8 * 2 + u8::from(client.is_second) + 1
}

/// Whether the record is leased to this holder.
pub(super) fn has(record: Record, holder: u8) -> bool {
    holder != NOBODY && record.holder == holder && record.state != State::Free
}

/// The client of a holder.
pub(super) fn client_of(holder: Holder) -> Option<usize> {
    Some(usize::from(holder.checked_sub(1)?) / 2)
}

impl World {
    pub(super) fn breaks(&mut self, promise: Promise) {
        self.broken.get_or_insert(promise);
    }

    /// The record has another version from now on, one that no client has read.
    pub(super) fn changed(&mut self) {
        for client in &mut self.clients {
            client.knows = false;
            client.observed = None;
            for sent in client.sent.iter_mut().chain(&mut client.doubt) {
                if let Some(put) = &mut sent.put {
                    put.is_current = false;
                }
                match &mut sent.reply {
                    Some(Reply::Done(is_current)) => *is_current = false,
                    Some(Reply::HasRead(read)) => read.is_current = false,
                    _ => {}
                }
            }
        }
    }
}
