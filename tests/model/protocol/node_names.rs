//! What a member does with requests for names.

use super::node::{At, MemberRequest, NameState, Node, Writing};
use leasehold::store::HeldState;
use leasehold::store::quorum::protocol::{Absence, MemberAnswer, MemberId};
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

/// A member with a floor of 1.
fn opened_member() -> (Node<u8>, NameState) {
    let mut node = Node::default();
    let writing = Writing {
        id: ID,
        max_ttl_us: 1_000,
        found: 1,
        highest: 0,
    };
    node.reserve(3);
    node.open(&writing, 3, &first_at(0)).expect("it is blank");
    (node, NameState::default())
}

#[test]
fn a_claim_is_taken_above_the_mark_where_the_name_is_free() {
    let (mut node, mut record) = opened_member();
    assert_eq!(
        node.claim(&mut record, &request_for(1, 1, 100), &first_at(0)),
        MemberAnswer::Low(1)
    );
    assert_eq!(
        node.claim(&mut record, &request_for(1, 5, 100), &first_at(0)),
        MemberAnswer::Yes
    );
    let taken = node.claim(&mut record, &request_for(2, 6, 100), &first_at(99));
    assert!(matches!(taken, MemberAnswer::Taken(lease) if lease.token.get() == 5));
    assert_eq!(
        node.claim(&mut record, &request_for(2, 5, 100), &first_at(100)),
        MemberAnswer::Low(5)
    );
    assert_eq!(
        node.claim(&mut record, &request_for(2, 6, 100), &first_at(100)),
        MemberAnswer::Yes
    );
}

#[test]
fn an_older_token_of_the_same_holder_bars_nothing() {
    let (mut node, mut record) = opened_member();
    assert_eq!(
        node.claim(&mut record, &request_for(1, 5, 100), &first_at(0)),
        MemberAnswer::Yes
    );
    assert_eq!(
        node.claim(&mut record, &request_for(1, 6, 100), &first_at(0)),
        MemberAnswer::Yes
    );
    assert_eq!(
        node.release(&mut record, &request_for(1, 5, 0), &first_at(0)),
        MemberAnswer::NotHeld
    );
    assert_eq!(
        node.release(&mut record, &request_for(1, 6, 0), &first_at(0)),
        MemberAnswer::Yes
    );
}

#[test]
fn an_older_token_of_the_same_holder_bars_no_renewal_and_a_newer_one_does() {
    let (mut node, mut record) = opened_member();
    let _ = node.claim(&mut record, &request_for(1, 5, 100), &first_at(0));
    let newer = request_for(1, 8, 100);
    assert_eq!(
        node.renew(&mut record, &newer, None, &first_at(1)),
        MemberAnswer::Yes
    );
    let older = node.renew(&mut record, &request_for(1, 5, 100), Some(8), &first_at(2));
    assert!(matches!(older, MemberAnswer::Taken(lease) if lease.token.get() == 8));
    // The mark may be above both: then a client has to vouch for the newer one.
    let _ = node.release(&mut record, &request_for(1, 8, 0), &first_at(3));
    let _ = node.claim(&mut record, &request_for(1, 10, 100), &first_at(3));
    let _ = node.release(&mut record, &request_for(2, 20, 0), &first_at(4));
    let renewal = request_for(1, 12, 100);
    assert_eq!(
        node.renew(&mut record, &renewal, None, &first_at(5)),
        MemberAnswer::Low(20)
    );
    assert_eq!(
        node.renew(&mut record, &renewal, Some(20), &first_at(6)),
        MemberAnswer::Yes
    );
}

#[test]
fn nothing_shortens_a_lease() {
    let (mut node, mut record) = opened_member();
    let _ = node.claim(&mut record, &request_for(1, 5, 100), &first_at(0));
    let shorter = request_for(1, 5, 10);
    assert_eq!(
        node.renew(&mut record, &shorter, None, &first_at(0)),
        MemberAnswer::Yes
    );
    assert_eq!(record.lease.expect("taken").ends_at_us, 100);
    assert_eq!(
        node.evict(&mut record, &shorter, &first_at(0)),
        MemberAnswer::Yes
    );
    assert_eq!(record.lease.expect("evicted").ends_at_us, 100);
}

#[test]
fn a_vouched_lease_is_taken_unless_something_has_happened() {
    let (mut node, mut record) = opened_member();
    let _ = node.claim(&mut record, &request_for(2, 8, 100), &first_at(0));
    let _ = node.release(&mut record, &request_for(2, 8, 0), &first_at(1));
    let renewal = request_for(1, 5, 100);
    assert_eq!(
        node.renew(&mut record, &renewal, None, &first_at(2)),
        MemberAnswer::Low(9)
    );
    let _ = node.release(&mut record, &renewal, &first_at(3));
    assert_eq!(
        node.renew(&mut record, &renewal, Some(9), &first_at(4)),
        MemberAnswer::Low(10)
    );
    assert_eq!(
        node.renew(&mut record, &renewal, Some(10), &first_at(4)),
        MemberAnswer::Yes
    );
}

#[test]
fn an_evicted_lease_is_there_also_where_there_was_none_and_is_not_extended() {
    let (mut node, mut record) = opened_member();
    assert_eq!(
        node.evict(&mut record, &request_for(1, 5, 100), &first_at(0)),
        MemberAnswer::Yes
    );
    let answer = node.renew(&mut record, &request_for(1, 5, 100), None, &first_at(1));
    assert!(matches!(answer, MemberAnswer::Taken(lease) if lease.state == HeldState::Evicted));
    assert_eq!(
        node.release(&mut record, &request_for(1, 5, 0), &first_at(2)),
        MemberAnswer::Yes
    );
}

#[test]
fn a_kept_name_is_taken_until_its_time_is_over() {
    let (mut node, mut record) = opened_member();
    let _ = node.claim(&mut record, &request_for(1, 5, 100), &first_at(0));
    assert_eq!(
        node.release(&mut record, &request_for(1, 5, 50), &first_at(0)),
        MemberAnswer::Yes
    );
    assert_eq!(
        node.release(&mut record, &request_for(1, 5, 0), &first_at(0)),
        MemberAnswer::NotHeld
    );
    let taken = node.claim(&mut record, &request_for(2, 9, 100), &first_at(49));
    assert!(matches!(taken, MemberAnswer::Taken(lease) if lease.state == HeldState::Kept));
    assert_eq!(
        node.claim(&mut record, &request_for(2, 9, 100), &first_at(50)),
        MemberAnswer::Yes
    );
}

#[test]
fn a_lease_lasts_no_longer_than_the_longest_ttl_once_the_clock_was_set_back() {
    let (mut node, mut record) = opened_member();
    let before = 1_000_000;
    let _ = node.claim(&mut record, &request_for(1, 5, 100), &first_at(before));
    let taken = node.claim(&mut record, &request_for(2, 9, 100), &first_at(7));
    assert!(
        matches!(taken, MemberAnswer::Taken(lease) if lease.ends_at_us == 1_007),
        "{taken:?}"
    );
    assert_eq!(
        node.claim(&mut record, &request_for(2, 9, 100), &first_at(1_007)),
        MemberAnswer::Yes
    );
    // A kept name may last for longer.
    let _ = node.release(&mut record, &request_for(2, 9, 50_000), &first_at(1_007));
    let taken = node.claim(&mut record, &request_for(3, 99, 100), &first_at(1_008));
    assert!(
        matches!(taken, MemberAnswer::Taken(lease) if lease.ends_at_us == 51_007),
        "{taken:?}"
    );
}

#[test]
fn a_ttl_longer_than_the_longest_is_refused() {
    let (mut node, mut record) = opened_member();
    let answer = node.claim(&mut record, &request_for(1, 5, 1_001), &first_at(0));
    assert_eq!(answer, MemberAnswer::Away(Absence::TooLong(1_000)));
}
