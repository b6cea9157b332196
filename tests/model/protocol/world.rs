//! A state of the model: the members, the holders with what they have sent, and those who adopt members.

/// At most so many holders, rounds of each, and adoptions.
pub(super) const HOLDERS: usize = 3;
/// At most so many rounds of a holder.
pub(super) const ROUNDS: usize = 4;
/// At most so many adoptions.
pub(super) const ADOPTIONS: usize = 3;

/// A state. Tokens, marks and incarnations are small numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) members: Vec<Server>,
    pub(super) holders: [Claimant; HOLDERS],
    pub(super) adoptions: [Adopting; ADOPTIONS],
    /// The tokens that were granted of each name, a bit each.
    pub(super) granted: [u16; 2],
    /// The highest token that was proposed.
    pub(super) proposed: u8,
    pub(super) losses: u8,
    /// How many times another name of the slot has moved its mark.
    pub(super) others: u8,
    pub(super) broken: Option<Promise>,
}

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// P1: no holder believes to hold while another does.
    OneHolder,
    /// P2: a token that is granted is above all that were granted before its claim was sent, and no other claim's.
    TokensRise,
    /// P3: what a member gave up does not come back to it.
    GivenUpStaysGivenUp,
    /// Z: a renewal that is sent after a higher token was granted fails.
    OvertakenIsNotRenewed,
    /// E: a renewal that is sent after a majority has evicted its holder fails.
    EvictedIsNotRenewed,
    /// P4: once what is there has expired, a claim above all marks is granted if a majority is in.
    GrantedInTheEnd,
    /// K: a name that a majority keeps taken is granted to nobody else while its time lasts, if no member loses its
    /// data.
    KeptIsNotGranted,
    /// R: a holder can put its lease on each member that is in and has the name free.
    Repaired,
    /// Not a promise: reaches the repair of a lease at a member that was adopted.
    ReachesARepair,
}

/// A member. Everything but the ghosts is what its server has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Server {
    pub(super) data: Data,
    pub(super) incarnation: u8,
    /// The rounds that were under way at its loss: the keep-out ends when they have lapsed.
    pub(super) keep_out: [u8; HOLDERS],
    pub(super) copy: Option<Data>,
    /// What each holder has heard from it.
    pub(super) heard: [Heard; HOLDERS],
    /// The rounds whose taking back, or release, was done here.
    pub(super) freed: [u8; HOLDERS],
    /// Ghosts: the tokens that it gave up, and those whose time was over here, a bit each.
    pub(super) given_up: [u8; HOLDERS],
    pub(super) over: [u8; HOLDERS],
    /// Ghost: the holders whose names it has kept taken.
    pub(super) kept: u8,
    /// The holders that it has evicted, and those whose eviction has reached it: once is enough for an incarnation.
    pub(super) evicted: u8,
    pub(super) asked_to_evict: u8,
}

/// What a server keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Data {
    /// The incarnation that came in; 0 for a server that is no member.
    pub(super) came_in: u8,
    pub(super) max: u8,
    pub(super) floor: u8,
    pub(super) mark: u8,
    pub(super) leases: [Lease; 2],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Lease {
    /// The holder and one; 0 for none.
    pub(super) by: u8,
    pub(super) token: u8,
    pub(super) floor: u8,
    pub(super) is_evicted: bool,
    pub(super) is_kept: bool,
    /// The rounds of its holder that set its end.
    pub(super) rounds: u8,
}

/// What a holder has heard from a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Heard {
    /// The rounds to which it said yes.
    pub(super) yes: u8,
    /// The mark that it told, and to which round: the round and one, 0 for none.
    pub(super) low: (u8, u8),
}

/// A claim and its lease: rounds, each a request to all members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Claimant {
    pub(super) rounds: u8,
    pub(super) tokens: [u8; ROUNDS],
    /// Which rounds are claims, lapsed (one ttl since the send), confirmed by a majority, and taken back or released.
    pub(super) claims: u8,
    pub(super) lapsed: u8,
    pub(super) confirmed: u8,
    pub(super) back: u8,
    /// The present claim was given up, or the lease released.
    pub(super) has_ended: bool,
    pub(super) is_evicted: bool,
    /// Ghosts: the highest token that was granted when the present claim was sent; the renewals that were sent after a
    /// higher token was granted, or after the eviction.
    pub(super) after: u8,
    pub(super) overtaken: u8,
    pub(super) after_eviction: u8,
}

/// A client that adopts a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Adopting {
    /// The member and one; 0 for none.
    pub(super) target: u8,
    pub(super) found: u8,
    /// Which members have answered, in or out.
    pub(super) inside: u8,
    pub(super) outside: u8,
    pub(super) highest: u8,
    pub(super) clock: u8,
    pub(super) has_written: bool,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A holder proposes a token.
    Claim(u8, u8),
    /// A holder sends a renewal.
    Renew(u8),
    /// A round of a holder arrives at a member.
    Arrive(u8, u8, u8),
    /// The same, and the holder hears that its token is low.
    Low(u8, u8),
    /// The vouched repair of a holder arrives at a member.
    Vouched(u8, u8),
    /// A holder counts the answers to its last round.
    Count(u8),
    /// One ttl has passed since this round was sent.
    Lapse(u8, u8),
    /// The time of a name is over at a member.
    Expire(u8, u8),
    /// A holder takes its claim back, or releases.
    End(u8),
    /// The taking back of a round arrives at a member.
    Free(u8, u8, u8),
    /// An operator evicts a holder.
    Evict(u8),
    /// The eviction arrives at a member.
    Evicted(u8, u8),
    /// A claim of another name of the slot takes this token at a member.
    Other(u8, u8),
    /// A member is lost and comes back.
    Lose(u8, Loss),
    /// A copy of a member's data is made.
    Copy(u8),
    /// A client finds a member whose keep-out has passed.
    Adopt(u8),
    /// It asks another member.
    Ask(u8, u8),
    /// Its write arrives.
    Write(u8),
}

/// How a member comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Without its data.
    Empty,
    /// With its data, restarted or promoted.
    Restarted,
    /// With the data of the first member, or the first one with that of the second: it was a replica of it.
    Displaced,
    /// With the copy that was made of it.
    Copy,
    /// With the copy, and the leases in it last as long as they please: another server's clock is behind.
    LateCopy,
}

impl Claimant {
    pub(super) fn last(&self) -> usize {
        usize::from(self.rounds.max(1)) - 1
    }

    pub(super) fn token(&self) -> u8 {
        self.tokens[self.last()]
    }

    /// The rounds that were sent and have not lapsed.
    pub(super) fn under_way(&self) -> u8 {
        ((1 << self.rounds) - 1) & !self.lapsed
    }

    /// The rounds of the present claim: what was granted before, and released, is held no more.
    pub(super) fn present(&self) -> u8 {
        u8::MAX << self.claims.checked_ilog2().unwrap_or(0)
    }

    pub(super) fn has(of: u8, round: usize) -> bool {
        of >> round & 1 == 1
    }
}
