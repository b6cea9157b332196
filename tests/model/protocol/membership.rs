//! Which member of which quorum a server is, and when it comes in.

use super::node::{At, Node, Writing};
use leasehold::store::quorum::protocol::{Absence, MemberId, Membership, keep_out_us};

const ID: MemberId = MemberId {
    quorum: 7,
    index: 0,
    of: 3,
};
const MAX_TTL_US: u64 = 1_000_000;

const fn when(now_us: u64, incarnation: u8) -> At<u8> {
    At {
        now_us,
        incarnation,
    }
}

const fn writing(found: u8, highest: u64) -> Writing<u8> {
    Writing {
        id: ID,
        max_ttl_us: MAX_TTL_US,
        found,
        highest,
    }
}

fn highest_told(node: &Node<u8>, id: MemberId, at: &At<u8>) -> Result<u64, Absence> {
    let told = node.membership.as_ref().map(|member| member.told(at));
    Membership::highest(told, id)
}

fn opened() -> Node<u8> {
    let mut node = Node::default();
    assert_eq!(node.reserve(3), None);
    node.open(&writing(1, 40), 3, &when(0, 1))
        .expect("it is blank");
    node
}

#[test]
fn a_member_is_out_as_long_as_its_incarnation_is_another() {
    let mut node = opened();
    assert_eq!(node.look(ID, &when(5, 1)).expect("it is in").floor, 41);
    assert_eq!(node.look(ID, &when(5, 2)), Err(Absence::Away(0)));
    assert_eq!(node.look(ID, &when(9, 2)), Err(Absence::Away(4)));
    assert!(node.look(ID, &when(6, 1)).is_ok());
}

#[test]
fn a_member_with_the_data_of_another_comes_in_after_the_keep_out() {
    let mut node = opened();
    let writing = Writing {
        id: MemberId { index: 2, ..ID },
        ..writing(2, 30)
    };
    // Not where the other one itself is.
    let itself = node.adopt(&writing, &when(5, 1));
    assert_eq!(itself, Err(Absence::Other(ID)));
    let early = node.adopt(&writing, &when(5, 2));
    assert_eq!(early, Err(Absence::Other(ID)));
    let end = 5 + keep_out_us(MAX_TTL_US);
    node.adopt(&writing, &when(end, 2)).expect("in time");
    let floor = node
        .look(writing.id, &when(end, 2))
        .expect("it is in")
        .floor;
    assert_eq!(floor, 42);
}

#[test]
fn it_comes_in_after_the_keep_out_and_above_all_that_it_knows() {
    let mut node = opened();
    let _ = node.look(ID, &when(5, 2));
    let end = 5 + keep_out_us(MAX_TTL_US);
    assert!(node.adopt(&writing(2, 30), &when(end - 1, 2)).is_err());
    node.adopt(&writing(2, 30), &when(end, 2)).expect("in time");
    assert_eq!(node.look(ID, &when(end, 2)).expect("it is in").floor, 42);
}

#[test]
fn a_clock_that_was_ahead_at_first_sight_does_not_lengthen_the_keep_out() {
    let mut node = opened();
    let _ = node.look(ID, &when(86_400_000_000, 2));
    let _ = node.look(ID, &when(5, 2));
    let end = 5 + keep_out_us(MAX_TTL_US);
    node.adopt(&writing(2, 40), &when(end, 2)).expect("in time");
}

#[test]
fn a_write_for_another_incarnation_is_refused() {
    let mut node = opened();
    let _ = node.look(ID, &when(0, 3));
    let later = 2 * keep_out_us(MAX_TTL_US);
    assert!(node.adopt(&writing(2, 40), &when(later, 3)).is_err());
}

#[test]
fn the_longest_ttl_of_the_member_counts_and_not_that_of_the_client() {
    let mut node = opened();
    let _ = node.look(ID, &when(0, 2));
    let shorter = Writing {
        max_ttl_us: 10,
        ..writing(2, 40)
    };
    assert!(node.adopt(&shorter, &when(MAX_TTL_US, 2)).is_err());
}

#[test]
fn a_closed_member_takes_part_in_nothing_and_stays_closed_for_the_first_quorum() {
    let mut node = opened();
    assert_eq!(node.close(ID, 8, &when(1, 1)), Ok((8, Some(41))));
    assert_eq!(node.close(ID, 9, &when(1, 1)), Ok((8, Some(41))));
    assert_eq!(node.look(ID, &when(1, 1)), Err(Absence::Closed(8)));
    assert!(node.adopt(&writing(1, 40), &when(1, 1)).is_err());
    let mut other = writing(1, 40);
    other.id.quorum = 9;
    assert_eq!(node.reserve(4), Some(ID));
    assert_eq!(node.open(&other, 4, &when(2, 1)), Err(Absence::Other(ID)));
    other.id.quorum = 8;
    assert_eq!(node.open(&other, 4, &when(2, 1)), Ok(()));
    assert_eq!(node.look(ID, &when(2, 1)), Err(Absence::Other(other.id)));
}

#[test]
fn a_member_that_was_closed_comes_into_the_new_quorum_though_it_was_not_written() {
    let mut node = opened();
    assert_eq!(node.close(ID, 8, &when(1, 1)), Ok((8, Some(41))));
    let mut writing = writing(1, 50);
    writing.id.quorum = 8;
    let new = writing.id;
    assert!(matches!(node.look(new, &when(5, 1)), Err(Absence::Away(_))));
    assert_eq!(
        highest_told(&node, new, &when(5, 1)),
        Ok(41),
        "it took no part"
    );
    assert!(
        highest_told(&node, new, &when(5, 2)).is_err(),
        "it may be an old copy"
    );
    let _ = node.look(new, &when(5, 1));
    let end = 5 + keep_out_us(MAX_TTL_US);
    assert!(node.adopt(&writing, &when(end - 1, 1)).is_err());
    node.adopt(&writing, &when(end, 1)).expect("in time");
    assert_eq!(node.look(new, &when(end, 1)).expect("it is in").floor, 51);
}

#[test]
fn a_member_that_was_written_is_not_written_again() {
    let mut node = opened();
    node.reserve(4);
    assert!(node.open(&writing(2, 40), 4, &when(1, 2)).is_err());
    assert_eq!(node.close(ID, 8, &when(1, 2)), Ok((8, None)), "it is away");
}

#[test]
fn a_server_is_written_by_the_run_that_reserved_it_last() {
    let mut node = Node::default();
    assert!(node.open(&writing(1, 40), 3, &when(0, 1)).is_err());
    node.reserve(3);
    node.reserve(4);
    assert!(node.open(&writing(1, 40), 3, &when(0, 1)).is_err());
    assert_eq!(node.open(&writing(1, 40), 4, &when(0, 1)), Ok(()));
}
