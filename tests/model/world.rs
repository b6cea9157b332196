//! A state of the model, and the steps from one to the next.

use leasehold::Holder;
use leasehold::store::quorum::{
    Extension, Incarnation, LastProposal, Purpose, Register, RunNumber, TakenBack, Vote,
};
use leasehold::{ClientId, Token};

/// A state: the members with what is on its way to and from them, the claims, and what was told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) now: u8,
    /// In order, because members are alike.
    pub(crate) members: Vec<Column>,
    pub(crate) claims: Vec<Claiming>,
    /// The tokens that were told to be granted, each with its claim.
    pub(crate) told: Vec<(Token, u8)>,
    pub(crate) spent: Spent,
    /// The row of the storage that the holders write to: the token of the last write, and whose it is.
    pub(crate) row: Option<(Token, u8)>,
    /// The promise that the last step broke.
    pub(crate) broken: Option<Promise>,
}

/// How much of the bounds is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) gains: u8,
    pub(crate) restarts: u8,
    pub(crate) copies: u8,
    pub(crate) doubled: u8,
    pub(crate) has_evicted: bool,
}

/// A member, and what is on its way to and from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Column {
    pub(crate) register: Register,
    pub(crate) row: Option<Incarnation<RunNumber>>,
    pub(crate) run: RunNumber,
    /// How many ticks its clock has gained.
    pub(crate) gained: u8,
    /// An old copy of its data.
    pub(crate) copy: Option<Box<(Register, Option<Incarnation<RunNumber>>)>>,
    /// On the way to it, in order: the network keeps none.
    pub(crate) requests: Vec<Request>,
    /// On the way from it.
    pub(crate) replies: Vec<Reply>,
    /// What each claim has heard from it in the present exchange.
    pub(crate) heard: Vec<Option<Said>>,
}

/// A request of a claim to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Request {
    pub(crate) claim: u8,
    pub(crate) what: What,
    /// Whether the claim waits for the reply: it has begun no other exchange since.
    pub(crate) is_awaited: bool,
}

/// What is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum What {
    Hold(Token, Purpose),
    TakeBack(TakenBack),
    Release,
    Renew(Token),
    EvictMarked,
    EvictNow,
}

/// A member's reply to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reply {
    pub(crate) claim: u8,
    pub(crate) said: Said,
}

/// What a member said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Said {
    Vote(Vote),
    Extension(Extension),
}

/// A claim and, once it is granted, its lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Claiming {
    pub(crate) phase: Phase,
    pub(crate) asked: u8,
    pub(crate) renewed: u8,
    /// What its store remembers of its last proposal.
    pub(crate) last: Option<LastProposal>,
    /// The highest floor that a member told it.
    pub(crate) seen: u64,
    /// The token that it was granted.
    pub(crate) granted: Option<Token>,
    /// Whether its store has taken that token for lost since.
    pub(crate) has_lost: bool,
    /// What an operator did to what it was granted.
    pub(crate) eviction: Evicted,
    /// The claims that were told of a grant before its own was sent, a bit each; none unless there are writes.
    pub(crate) after: u8,
    /// How many times it has written.
    pub(crate) written: u8,
    /// The holder believes to hold before this tick; 0 if it does not.
    pub(crate) believes_until: u8,
}

/// What a claim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Exits: Asking, Renewing (if it was granted), Ended (if it was granted).
    Idle,
    /// It proposed this token. Exits: Idle (granted, or given up), Asking (again, with a higher token).
    Asking(Token, Sent),
    /// It asked for more time under this token. Exits: Idle (renewed, or no answer), Ended (refused, or released).
    Renewing(Token, Sent),
    /// Released or lost. Final.
    Ended,
}

/// What was true when an exchange began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    pub(crate) at: u8,
    /// The highest token that another claim was told to be granted.
    pub(crate) told: Option<Token>,
    /// The claims that were told of a grant, a bit each; none unless there are writes.
    pub(crate) after: u8,
    /// Whether the holder was evicted at all members.
    pub(crate) is_evicted: bool,
}

/// What an operator did to a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Evicted {
    /// Nothing. Exits: UnderWay.
    No,
    /// The operator has asked the members to evict its holder. Exits: Everywhere, No (by another grant).
    UnderWay,
    /// All members have done it. Exits: No (by another grant).
    Everywhere,
}

/// A step from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The claim proposes a token: this one of those that it may choose from, or the least that it may.
    Ask(usize, u64),
    /// The claim gives up its round: it takes back.
    GiveUp(usize),
    /// The holder asks for more time.
    Renew(usize),
    /// The holder stops waiting for the answers to its renewal.
    StopRenewing(usize),
    /// The holder releases.
    Release(usize),
    /// The holder writes to the storage.
    Write(usize),
    /// An operator evicts the holder.
    Evict,
    /// A member carries out a request, and the claim hears the reply if it waits for one.
    CarryOut(usize, usize),
    /// A member carries out a request, and its reply is lost.
    CarryOutUnheard(usize, usize),
    /// A member carries out a request that comes once more.
    CarryOutTwice(usize, usize),
    /// A claim hears a reply.
    Hear(usize, usize),
    /// Time passes.
    Tick,
    /// A member's clock gains a tick.
    Gain(usize),
    /// A lease ends at a member, by a broken clock.
    EndLease(usize),
    /// A keep-out ends at a member, by a broken clock.
    EndKeepOut(usize),
    /// A member comes back without its data.
    RestartEmpty(usize),
    /// A copy of a member's data is made.
    Copy(usize),
    /// A member comes back with the old copy.
    RestartWithCopy(usize),
}

/// A promise of the quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// T1: no token is granted to two claims.
    OneClaimPerToken,
    /// T2: a claim that is sent after a grant was told gets a higher token.
    TokensRise,
    /// X: no holder believes to hold while another does.
    OneHolder,
    /// Z: after a higher token was told, a renewal that is sent is not told to have succeeded.
    OvertakenIsNotRenewed,
    /// I: a holder that asks again gets the token that it has. It gets another one only if no majority has that any more.
    SameTokenAgain,
    /// T3: claims that are under way together are told in the order of their tokens.
    ToldInOrder,
    /// F: what a member has runs out, at most one ttl after it was last asked for that.
    RunsOut,
    /// The storage refuses the writes of a holder once another has written whose claim was sent after the grant to the
    /// first was told, and takes those of that other.
    OvertakenWritesAreRefused,
    /// A holder that was evicted at all members is not told that a later renewal has succeeded.
    EvictedIsNotRenewed,
}

impl World {
    /// Returns the highest token that was told to another claim.
    pub(crate) fn told_to_others(&self, claim: usize) -> Option<Token> {
        let others = self.told.iter().filter(|(_, to)| usize::from(*to) != claim);
        others.map(|(token, _)| *token).max()
    }

    /// Returns at how many members this claim has the name under this token.
    pub(crate) fn having(
        &self,
        claim: usize,
        token: Token,
        now_us: impl Fn(&Column) -> u64,
    ) -> usize {
        let is_it = |member: &&Column| {
            let tenure = member.register.tenure(now_us(member));
            tenure
                .is_some_and(|tenure| tenure.holder == Some(holder(claim)) && tenure.token == token)
        };
        self.members.iter().filter(is_it).count()
    }

    /// Returns the claims that were told of a grant, a bit each.
    pub(crate) fn told_claims(&self) -> u8 {
        self.told
            .iter()
            .fold(0, |bits, (_, claim)| bits | 1 << claim)
    }

    /// Returns how many holders believe to hold.
    pub(crate) fn believers(&self) -> usize {
        let claims = self.claims.iter();
        claims
            .filter(|claim| claim.believes_until > self.now)
            .count()
    }

    /// Ends the exchange of this claim: what comes of it is not heard any more.
    pub(crate) fn end_exchange(&mut self, claim: usize, keeps_replies: bool) {
        for member in &mut self.members {
            member.heard[claim] = None;
            if keeps_replies {
                continue;
            }
            let is_of_it = |of: u8| usize::from(of) == claim;
            member.replies.retain(|reply| !is_of_it(reply.claim));
            for request in &mut member.requests {
                request.is_awaited &= !is_of_it(request.claim);
            }
            member.requests.sort_unstable();
            member.requests.dedup();
        }
    }

    /// Sends a request to this member.
    pub(crate) fn send(&mut self, member: usize, claim: usize, what: What) {
        let is_awaited = match what {
            What::Hold(_, Purpose::Claim) | What::Renew(_) => true,
            What::Hold(_, Purpose::Repair) | What::TakeBack(_) | What::Release => false,
            What::EvictMarked | What::EvictNow => false,
        };
        let request = Request {
            claim: u8::try_from(claim).expect("few claims"),
            what,
            is_awaited,
        };
        let requests = &mut self.members[member].requests;
        if let Err(place) = requests.binary_search(&request) {
            requests.insert(place, request);
        }
    }

    /// Sends a request to every member.
    pub(crate) fn send_to_all(&mut self, claim: usize, what: What) {
        for member in 0..self.members.len() {
            self.send(member, claim, what);
        }
    }
}

/// The holder of a claim.
pub(crate) fn holder(claim: usize) -> Holder {
    Holder::new(ClientId::from_u128(0), claim as u64)
}
