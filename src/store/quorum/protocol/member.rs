//! A member's reports and the clients' conclusions. Its handling of a request is written in Lua, and
//! as plain functions in `tests/model/protocol/node.rs`, with which tests compare the scripts.

use crate::holder::Holder;
use crate::store::HeldState;
use crate::token::Token;

/// Which member of which quorum a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// The quorum. Drawn by the first `init`, and computed from the plan by each that replaces one.
    pub quorum: u64,
    /// The index of the member in the list of members, which is the same for all clients.
    pub index: u8,
    /// Number of members of the quorum.
    pub of: u8,
}

/// The record that `init` or an adoption wrote on a server, and whether it is still in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Which member of which quorum it is.
    pub id: MemberId,
    /// The longest ttl of the quorum.
    pub max_ttl_us: u64,
    /// Whether its incarnation is the one that came in.
    pub is_in: bool,
    /// The highest mark of any slot.
    pub max: u64,
    /// The quorum that this one was closed for. The first one stays.
    pub closed_for: Option<u64>,
}

/// Why a member takes no part in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Absence {
    /// It belongs to another quorum, or is another member of this one.
    Other(MemberId),
    /// Its quorum was closed for this one.
    Closed(u64),
    /// The request's ttl is longer than the longest of the quorum, which is this one.
    TooLong(u64),
    /// It is away, and has been for this long by its own clock.
    Away(u64),
}

/// A lease at one member. It counts for the quorum only where a majority has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberLease {
    /// The holder.
    pub holder: Holder,
    /// The token that was taken.
    pub token: Token,
    /// When it ends, by the member's clock.
    pub ends_at_us: u64,
    /// The floor under which it was taken.
    pub floor: u64,
    /// `Leased`; `Evicted` by an operator, which keeps the name taken; or `Kept` after its release.
    pub state: HeldState,
}

/// A member's answer to a request for a name. `L` is what it tells of a lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberAnswer<L = MemberLease> {
    /// Done: the lease is there, for the ttl from now at least; or evicted, or freed.
    Yes,
    /// There was nothing to free.
    NotHeld,
    /// The name is taken, by this lease.
    Taken(L),
    /// The name is free, and the token is not above this mark. When a client that may vouch for the lease sends the
    /// mark back, it shows that nothing has happened in the slot since.
    Low(u64),
    /// The member takes no part.
    Absent(Absence),
}

impl Membership {
    /// Returns why a server with this record takes no part as this member; `None` if it is in. A blank server has no
    /// record. `away_us` is how long it has been away, if it is.
    pub fn absence(of: Option<Self>, id: MemberId, away_us: u64) -> Option<Absence> {
        let away = Some(Absence::Away(away_us));
        match of {
            Some(member) if member.id == id => match member.closed_for {
                Some(successor) => Some(Absence::Closed(successor)),
                None => away.filter(|_| !member.is_in),
            },
            // It was closed to become a member of this one, and was not written: it comes in as one that lost its data.
            Some(member) if member.closed_for != Some(id.quorum) => Some(Absence::Other(member.id)),
            _ => away,
        }
    }

    /// Returns the highest token that a member has, for the adoption of another one: if it is in, or was closed for
    /// this quorum and kept its data since, so that it has said yes to no claim of it.
    ///
    /// # Errors
    /// Why it does not know.
    pub fn highest(of: Option<Self>, id: MemberId) -> Result<u64, Absence> {
        match (of, Self::absence(of, id, 0)) {
            (Some(member), None) => Ok(member.max),
            (Some(member), Some(Absence::Away(_))) if member.id != id && member.is_in => {
                Ok(member.max)
            }
            (_, absence) => Err(absence.unwrap_or(Absence::Away(0))),
        }
    }
}

impl MemberLease {
    /// Returns whether both belong to the same claim and token.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.holder, self.token) == (other.holder, other.token)
    }
}

impl AsRef<Self> for MemberLease {
    fn as_ref(&self) -> &Self {
        self
    }
}
