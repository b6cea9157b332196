//! A state: the store, a lagging copy of it, the clients with their waiters, and what is on its way.

/// How many clients a state has room for.
pub(super) const CLIENTS: usize = 3;
/// How many waiters of one client.
pub(super) const EACH: usize = 2;
/// Of all clients.
pub(super) const CLAIMS: usize = CLIENTS * EACH;
/// How many notices to one client may be on their way: when there are more, the oldest is lost.
pub(super) const NOTICES: usize = 2;

/// A holder: a waiter of a client, counted from 1.
pub(super) type Holder = u8;
/// Nobody.
pub(super) const NOBODY: Holder = 0;

/// A state. All times are ticks that are left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    pub(super) store: Store,
    /// What a replica has of it, if one is to be promoted.
    pub(super) replica: Option<Store>,
    pub(super) clients: [Client; CLIENTS],
    pub(super) claims: [Claim; CLAIMS],
    /// The clients in the order of service that the rules intend.
    pub(super) due: Row<Due>,
    /// The highest token that was given away.
    pub(super) mark: u8,
    /// The highest token that was granted.
    pub(super) granted: u8,
    /// The number of the last join, where a wrong rule counts them.
    pub(super) joins: u8,
    /// Grants up to this token may be given to others before they end: by an operator, or a failover that nothing
    /// covers.
    pub(super) forgiven: u8,
    /// Grants up to this token were forgotten by the store, which keeps out.
    pub(super) forgotten: u8,
    pub(super) faults: u8,
    /// By how much the store's clock may still gain.
    pub(super) gains: u8,
    pub(super) broken: Option<Promise>,
}

/// What the store has of the name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Store {
    pub(super) lease: Lease,
    pub(super) queue: Row<Place>,
    /// How long it grants nothing.
    pub(super) keep_out: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lease {
    pub(super) holder: Holder,
    pub(super) token: u8,
    pub(super) left: u8,
    pub(super) is_evicted: bool,
}

/// A client's place in the queue, with the claim of its first waiter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) client: u8,
    /// A number, where a wrong rule counts them.
    pub(super) join: u8,
    /// Nobody if the waiter left and its client has others.
    pub(super) holder: Holder,
    pub(super) floor: u8,
    pub(super) left: u8,
}

/// A client that is to be served in its turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Due {
    pub(super) client: u8,
    pub(super) holder: Holder,
    pub(super) left: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Client {
    pub(super) is_dead: bool,
    /// Whether its subscription stands.
    pub(super) listens: bool,
    /// The highest token that it has seen.
    pub(super) seen: u8,
    pub(super) notices: [Option<Notice>; NOTICES],
}

impl Default for Client {
    fn default() -> Self {
        Self {
            is_dead: false,
            listens: true,
            seen: 0,
            notices: [None; NOTICES],
        }
    }
}

/// What tells a client that it was granted the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Notice {
    pub(super) token: u8,
    pub(super) holder: Holder,
    pub(super) join: u8,
    /// What is left of the grant, where the store tells it.
    pub(super) left: u8,
}

/// A waiter with its claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Claim {
    pub(super) phase: Phase,
    /// What is left of its deadline: of the one that a poll confirmed, or of its lease.
    pub(super) left: u8,
    /// While it waits: the height that its last answer told. No grant from before that poll is above it.
    pub(super) height: u8,
    /// While it holds.
    pub(super) token: u8,
    /// The join that its last answer told, where a wrong rule counts them.
    pub(super) join: u8,
    /// The request that it waits for.
    pub(super) sent: Option<Sent>,
    /// How long a poll that it gave up may still be carried out, any number of times.
    pub(super) doubt: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    /// It is in neither queue nor lease, and knows it.
    #[default]
    Left,
    /// It waits, or is about to. Exits: Held, GivingBack, Leaving.
    Waiting,
    /// It believes to hold. Exits: Leaving.
    Held,
    /// It was granted a token that is not above what its client has seen since. Exits: Waiting, as another claim.
    GivingBack,
    /// It does not want the name any more; its release is repeated. Exits: Left.
    Leaving,
    /// Its client is dead, or the store forgot that it left.
    Gone,
}

/// A request on its way, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Sent {
    pub(super) is_renewal: bool,
    pub(super) age: u8,
    /// Whether it was sent since the client's subscription was made.
    pub(super) is_fresh: bool,
    pub(super) floor: u8,
    pub(super) answer: Option<Answer>,
    /// Whether a replica has what it changed.
    pub(super) is_acknowledged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    /// With the token.
    Granted(u8),
    /// With its place, or without.
    Waiting(Told),
    /// A renewal found another grant, or none.
    Refused,
}

/// What a client that waits is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Told {
    /// The highest token that was given away.
    pub(super) height: u8,
    pub(super) has_place: bool,
    /// The number of the place, where a wrong rule counts them.
    pub(super) join: u8,
}

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Who believes to hold has the store's lease with that token, unless an operator or a failover took it; if the
    /// store forgot it, nobody else believes.
    OneHolder,
    /// Each token is above those that were granted before, and above what its client has seen.
    TokensRise,
    /// The first client that lives and listens is served; and one that asks itself.
    InTurn,
    /// A claim that was told that it left is in neither queue nor lease.
    LeftIsLeft,
    /// A grant that nobody asked for anew ends with the term that its place has, or after a short time; and a client
    /// that is known to be dead has none.
    DeadHeadIsShort,
    /// Once all goes well each living waiter is served, and nothing is left.
    Served,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All clocks go on.
    Tick,
    /// The store's clock gains on those of the clients.
    Gain,
    /// The replica has all that the store has.
    Replicate,
    /// Of a waiter.
    Claim(u8, Act),
    /// Of a client.
    Client(u8, Of),
    /// What a fault does to the store.
    Store(Fault),
}

/// What a waiter does, or what becomes of what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Sends a poll.
    Poll,
    /// Sends a renewal.
    Renew,
    /// Its request is carried out.
    CarriedOut,
    /// It hears the answer.
    Hear,
    /// It gives up waiting for the answer.
    Abandon,
    /// A poll that it abandoned is carried out.
    CarriedOutLate,
    /// It does not want the name any more, whether it has it or not.
    Leave,
    /// Its release is carried out; whether the answer is heard.
    Released(bool),
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Takes in a notice, which may come again.
    Notice(u8),
    /// Its subscription is made anew.
    Reconnect,
    /// Its subscription breaks.
    Disconnect,
    /// It hears of a higher token.
    SeesToken,
    /// It dies.
    Die,
}

/// What may happen besides, so many times in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A client dies.
    Die,
    /// A client's subscription breaks.
    Disconnect,
    /// A client hears of a higher token: a fence refused one of its own.
    SeesToken,
    /// The lease is deleted.
    EvictNow,
    /// The lease is marked as evicted.
    EvictMarked,
    /// The store loses all that it has, but the clock that mints.
    Flush,
    /// The replica takes over, as it is.
    Failover,
}

/// A short list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Row<T> {
    items: [T; CLIENTS],
    len: u8,
}

impl<T: Copy + Default> Row<T> {
    pub(super) fn items(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    pub(super) fn items_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }

    pub(super) fn push(&mut self, item: T) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        let len = usize::from(self.len);
        self.items.copy_within(at + 1..len, at);
        self.items[len - 1] = T::default();
        self.len -= 1;
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for at in (0..self.items().len()).rev() {
            if !keep(&self.items[at]) {
                self.remove(at);
            }
        }
    }
}

/// The claim of a holder.
pub(super) fn claim_of(holder: Holder) -> usize {
    usize::from(holder) - 1
}

/// The client of a claim.
pub(super) fn client_of(claim: usize) -> usize {
    claim / EACH
}

/// The holder that a claim names.
pub(super) fn holder_of(claim: usize) -> Holder {
    claim as u8 + 1
}

/// The claims of a client, the first waiter's first.
pub(super) fn claims_of(client: usize) -> std::ops::Range<usize> {
    client * EACH..client * EACH + EACH
}

impl World {
    /// The first waiter of a client.
    pub(super) fn first(&self, client: usize) -> Option<usize> {
        let waits = |claim: &usize| {
            let phase = self.claims[*claim].phase;
            matches!(phase, Phase::Waiting | Phase::GivingBack)
        };
        claims_of(client).find(waits)
    }

    /// Whether the client of this claim waits with another one, or will with the next one of this waiter.
    pub(super) fn has_others(&self, claim: usize) -> bool {
        let is_other = |other: usize| match self.claims[other].phase {
            Phase::Waiting => other != claim,
            Phase::GivingBack => true,
            _ => false,
        };
        claims_of(client_of(claim)).any(is_other)
    }

    pub(super) fn breaks(&mut self, promise: Promise) {
        self.broken.get_or_insert(promise);
    }
}
