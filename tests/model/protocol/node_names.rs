//! What a member does with requests for names.

use super::node::{At, MemberRequest, NameState, Node, Writing};
use leasehold::store::HeldState;
use leasehold::store::quorum::protocol::MemberAnswer::{self, Low, NotHeld, Taken, Yes};
use leasehold::store::quorum::protocol::{Absence, MemberId};
use leasehold::{ClientId, Holder, Token};

const ID: MemberId = MemberId {
    quorum: 7,
    index: 0,
    of: 3,
};

/// This moment of a server that was never started again.
pub(super) const fn first_at(now_us: u64) -> At<u8> {
    At {
        now_us,
        incarnation: 1,
    }
}

fn request_for(holder: u64, token: u64, ttl_us: u64) -> MemberRequest {
    MemberRequest {
        id: ID,
        holder: Holder::new(ClientId::from_u128(0), holder),
        token: Token::new(token).expect("within the limits"),
        ttl_us,
    }
}

/// A member, what it has of one name, and the moment of its next answer.
struct OneName {
    node: Node<u8>,
    record: NameState,
    now: At<u8>,
}

impl OneName {
    fn at(&mut self, now_us: u64) -> &mut Self {
        self.now = first_at(now_us);
        self
    }

    fn claim(&mut self, request: &MemberRequest) -> MemberAnswer {
        self.node.claim(&mut self.record, request, &self.now)
    }

    fn renew(&mut self, request: &MemberRequest, vouched: Option<u64>) -> MemberAnswer {
        (self.node).renew(&mut self.record, request, vouched, &self.now)
    }

    fn release(&mut self, request: &MemberRequest) -> MemberAnswer {
        self.node.release(&mut self.record, request, &self.now)
    }

    fn evict(&mut self, request: &MemberRequest) -> MemberAnswer {
        self.node.evict(&mut self.record, request, &self.now)
    }
}

/// A member with a floor of 1.
fn opened_member() -> OneName {
    let mut node = Node::default();
    let writing = Writing {
        id: ID,
        max_ttl_us: 1_000,
        found: 1,
        highest: 0,
    };
    node.reserve(3);
    node.open(&writing, 3, &first_at(0)).expect("it is blank");
    OneName {
        node,
        record: NameState::default(),
        now: first_at(0),
    }
}

#[test]
fn a_claim_is_taken_above_the_mark_where_the_name_is_free() {
    let mut member = opened_member();
    assert_eq!(member.at(0).claim(&request_for(1, 1, 100)), Low(1));
    assert_eq!(member.at(0).claim(&request_for(1, 5, 100)), Yes);
    let taken = member.at(99).claim(&request_for(2, 6, 100));
    assert!(matches!(taken, Taken(lease) if lease.token.get() == 5));
    assert_eq!(member.at(100).claim(&request_for(2, 5, 100)), Low(5));
    assert_eq!(member.at(100).claim(&request_for(2, 6, 100)), Yes);
}

#[test]
fn an_older_token_of_the_same_holder_bars_nothing() {
    let mut member = opened_member();
    assert_eq!(member.at(0).claim(&request_for(1, 5, 100)), Yes);
    assert_eq!(member.at(0).claim(&request_for(1, 6, 100)), Yes);
    assert_eq!(member.at(0).release(&request_for(1, 5, 0)), NotHeld);
    assert_eq!(member.at(0).release(&request_for(1, 6, 0)), Yes);
}

#[test]
fn an_older_token_of_the_same_holder_bars_no_renewal_and_a_newer_one_does() {
    let mut member = opened_member();
    let _ = member.at(0).claim(&request_for(1, 5, 100));
    let newer = request_for(1, 8, 100);
    assert_eq!(member.at(1).renew(&newer, None), Yes);
    let older = member.at(2).renew(&request_for(1, 5, 100), Some(8));
    assert!(matches!(older, Taken(lease) if lease.token.get() == 8));
    // The mark may be above both: then a client has to vouch for the newer one.
    let _ = member.at(3).release(&request_for(1, 8, 0));
    let _ = member.at(3).claim(&request_for(1, 10, 100));
    let _ = member.at(4).release(&request_for(2, 20, 0));
    let renewal = request_for(1, 12, 100);
    assert_eq!(member.at(5).renew(&renewal, None), Low(20));
    assert_eq!(member.at(6).renew(&renewal, Some(20)), Yes);
}

#[test]
fn nothing_shortens_a_lease() {
    let mut member = opened_member();
    let _ = member.at(0).claim(&request_for(1, 5, 100));
    let shorter = request_for(1, 5, 10);
    assert_eq!(member.at(0).renew(&shorter, None), Yes);
    assert_eq!(member.record.lease.expect("taken").ends_at_us, 100);
    assert_eq!(member.at(0).evict(&shorter), Yes);
    assert_eq!(member.record.lease.expect("evicted").ends_at_us, 100);
}

#[test]
fn a_vouched_lease_is_taken_unless_something_has_happened() {
    let mut member = opened_member();
    let _ = member.at(0).claim(&request_for(2, 8, 100));
    let _ = member.at(1).release(&request_for(2, 8, 0));
    let renewal = request_for(1, 5, 100);
    assert_eq!(member.at(2).renew(&renewal, None), Low(9));
    let _ = member.at(3).release(&renewal);
    assert_eq!(member.at(4).renew(&renewal, Some(9)), Low(10));
    assert_eq!(member.at(4).renew(&renewal, Some(10)), Yes);
}

#[test]
fn an_evicted_lease_is_there_also_where_there_was_none_and_is_not_extended() {
    let mut member = opened_member();
    assert_eq!(member.at(0).evict(&request_for(1, 5, 100)), Yes);
    let answer = member.at(1).renew(&request_for(1, 5, 100), None);
    assert!(matches!(answer, Taken(lease) if lease.state == HeldState::Evicted));
    assert_eq!(member.at(2).release(&request_for(1, 5, 0)), Yes);
}

#[test]
fn a_kept_name_is_taken_until_its_time_is_over() {
    let mut member = opened_member();
    let _ = member.at(0).claim(&request_for(1, 5, 100));
    assert_eq!(member.at(0).release(&request_for(1, 5, 50)), Yes);
    assert_eq!(member.at(0).release(&request_for(1, 5, 0)), NotHeld);
    let taken = member.at(49).claim(&request_for(2, 9, 100));
    assert!(matches!(taken, Taken(lease) if lease.state == HeldState::Kept));
    assert_eq!(member.at(50).claim(&request_for(2, 9, 100)), Yes);
}

#[test]
fn a_lease_lasts_no_longer_than_the_longest_ttl_once_the_clock_was_set_back() {
    let mut member = opened_member();
    let before = 1_000_000;
    let _ = member.at(before).claim(&request_for(1, 5, 100));
    let taken = member.at(7).claim(&request_for(2, 9, 100));
    assert!(
        matches!(taken, Taken(lease) if lease.ends_at_us == 1_007),
        "{taken:?}"
    );
    assert_eq!(member.at(1_007).claim(&request_for(2, 9, 100)), Yes);
    // A kept name may last for longer.
    let _ = member.at(1_007).release(&request_for(2, 9, 50_000));
    let taken = member.at(1_008).claim(&request_for(3, 99, 100));
    assert!(
        matches!(taken, Taken(lease) if lease.ends_at_us == 51_007),
        "{taken:?}"
    );
}

#[test]
fn a_ttl_longer_than_the_longest_is_refused() {
    let mut member = opened_member();
    let answer = member.at(0).claim(&request_for(1, 5, 1_001));
    assert_eq!(answer, MemberAnswer::Absent(Absence::TooLong(1_000)));
}
