//! A member of the model as the library has it, and back.

use leasehold::store::HeldState;
use leasehold::store::quorum::protocol::{MemberId, MemberLease};
use leasehold::{ClientId, Holder, Token};

use super::node::{At, FirstSeen, Incarnation, MemberRecord, MemberRequest, NameState, Node};
use super::setup::Setup;
use super::world::{Data, Lease, Server, World};

pub(super) const MAX_TTL_US: u64 = 100;
/// A member's clock before the end of a keep-out that began at 0, and after it.
pub(super) const EARLY_US: u64 = 1;
pub(super) const LATE_US: u64 = 10_000;
/// When the leases end that are there. The time that the model knows is in their rounds.
pub(super) const LATER_US: u64 = 1_000_000;
pub(super) const TTL_US: u64 = 10;
/// What stands for a claim of a further name.
pub(super) const OTHER: u64 = 9;

impl Incarnation for u8 {
    /// What is ahead refuses more claims, so that the same bounds would reach less. With 1 all that is to hold held too.
    const AHEAD: u64 = 0;
}

impl Setup {
    pub(super) fn at(&self, world: &World, server: &Server) -> At<u8> {
        At {
            now_us: match self.has_kept_out(world, server) {
                true => LATE_US,
                false => EARLY_US,
            },
            incarnation: server.incarnation,
        }
    }

    pub(super) fn node(&self, server: &Server) -> Node<u8> {
        Node {
            membership: membership(&server.data),
            seen: Some(FirstSeen {
                incarnation: server.incarnation,
                at_us: 0,
            }),
            reserved_by: None,
        }
    }
}

pub(super) const ID: MemberId = MemberId {
    quorum: 1,
    index: 0,
    of: 3,
};

pub(super) fn membership(data: &Data) -> Option<MemberRecord<u8>> {
    (data.came_in > 0).then_some(MemberRecord {
        id: ID,
        max_ttl_us: MAX_TTL_US,
        incarnation: data.came_in,
        max: data.max.into(),
        floor: data.floor.into(),
        closed_for: None,
    })
}

/// Keeps what a request made of a name at a member.
pub(super) fn keep(node: &Node<u8>, record: &NameState, name: usize, rounds: u8, data: &mut Data) {
    keep_member(node, data);
    data.mark = record.mark as u8;
    data.leases[name] = lease(record, rounds);
}

pub(super) fn keep_member(node: &Node<u8>, data: &mut Data) {
    if let Some(member) = &node.membership {
        data.came_in = member.incarnation;
        data.max = member.max as u8;
        data.floor = member.floor as u8;
    }
}

pub(super) fn record(data: &Data, name: usize) -> NameState {
    let lease = data.leases[name];
    NameState {
        mark: data.mark.into(),
        lease: (lease.by > 0).then(|| MemberLease {
            holder: holder(u64::from(lease.by) - 1),
            token: token(lease.token),
            ends_at_us: LATER_US,
            floor: lease.floor.into(),
            state: match (lease.is_evicted, lease.is_kept) {
                (true, _) => HeldState::Evicted,
                (false, true) => HeldState::Kept,
                (false, false) => HeldState::Leased,
            },
        }),
    }
}

pub(super) fn lease(record: &NameState, rounds: u8) -> Lease {
    let Some(lease) = record.lease else {
        return Lease::default();
    };
    Lease {
        by: (0..4)
            .find(|by| holder(*by) == lease.holder)
            .expect("one of the holders") as u8
            + 1,
        token: lease.token.get() as u8,
        floor: lease.floor as u8,
        is_evicted: lease.state == HeldState::Evicted,
        is_kept: lease.state == HeldState::Kept,
        rounds,
    }
}

pub(super) fn request(by: u64, of: u8) -> MemberRequest {
    MemberRequest {
        id: ID,
        holder: holder(by),
        token: token(of),
        ttl_us: TTL_US,
    }
}

pub(super) fn holder(by: u64) -> Holder {
    Holder::new(ClientId::from_u128(0), by)
}

pub(super) fn token(number: u8) -> Token {
    Token::new(number.into()).expect("not 0")
}
