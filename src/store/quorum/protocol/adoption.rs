//! The read before a client writes on a member: it finds the highest token that any grant can have.

use super::majority;
use super::member::{Absence, Membership};

/// Returns the highest token, from [`Membership::highest`](super::Membership::highest) of each of the `members` that
/// answered after the keep-out of the adopted one had passed, that one included. `None`: it cannot be known, or the
/// quorum was closed.
///
/// A majority that knows has each token that was granted among its own. Without one, all have to answer, and what a
/// member may have forgotten is covered by a clock: `clock_us` was read after the last answer, and is taken to be ahead
/// of each token that was proposed before.
pub fn adoption(told: &[Result<u64, Absence>], members: usize, clock_us: u64) -> Option<u64> {
    let is_of_this = |answer: &_| matches!(answer, Ok(_) | Err(Absence::Away(_)));
    if !told.iter().all(is_of_this) {
        return None;
    }
    let known = told.iter().flatten().copied();
    let highest = known.clone().max().unwrap_or(0);
    if known.count() >= majority(members) {
        Some(highest)
    } else if told.len() == members {
        Some(highest.max(clock_us))
    } else {
        None
    }
}

/// Returns the highest token of a quorum that was closed for its successor, from what each of its `members` that
/// answered reported when it was last closed. `None`: no majority that is in was closed for this one.
///
/// The successor may be written one keep-out after the last of the answers. A member of the successor was closed for
/// it. Members that are not closed should be closed too, as far as they answer.
pub fn closing(told: &[Membership], members: usize, successor: u64) -> Option<u64> {
    let is_closed = |it: &&Membership| {
        it.id.quorum == successor || it.is_in && it.closed_for == Some(successor)
    };
    let closed = told.iter().filter(is_closed);
    let has_majority = closed.clone().count() >= majority(members);
    closed.map(|it| it.max).max().filter(|_| has_majority)
}

#[cfg(test)]
mod tests {
    use super::super::member::MemberId;
    use super::*;

    const AWAY: Result<u64, Absence> = Err(Absence::Away(0));

    #[test]
    fn a_majority_that_is_in_knows_the_highest_token() {
        assert_eq!(adoption(&[Ok(5), Ok(9)], 3, 70), Some(9));
        assert_eq!(adoption(&[Ok(9), Ok(5)], 3, 70), Some(9));
    }

    #[test]
    fn without_one_all_have_to_answer_and_the_clock_counts() {
        assert_eq!(adoption(&[AWAY, Ok(5), AWAY], 3, 70), Some(70));
        assert_eq!(adoption(&[AWAY, Ok(5)], 3, 70), None);
    }

    #[test]
    fn a_closed_member_ends_it() {
        let closed = Err(Absence::Closed(8));
        assert_eq!(adoption(&[AWAY, Ok(5), closed], 3, 70), None);
    }

    #[test]
    fn a_quorum_is_closed_when_a_majority_that_was_in_is() {
        let closed = |quorum, closed_for, max, is_in| {
            let id = MemberId {
                quorum,
                index: 0,
                of: 3,
            };
            Membership {
                id,
                max_ttl_us: 9,
                is_in,
                max,
                closed_for,
            }
        };
        let (first, out) = (closed(7, Some(8), 5, true), closed(7, Some(8), 9, false));
        assert_eq!(closing(&[first, out], 3, 8), None);
        for (last, highest) in [
            (closed(7, None, 6, true), None),
            (closed(7, Some(9), 6, true), None),
            (closed(7, Some(8), 6, true), Some(6)),
        ] {
            assert_eq!(closing(&[first, out, last], 3, 8), highest, "{last:?}");
        }
        let other = closed(8, None, 7, true);
        assert_eq!(closing(&[first, other], 3, 8), Some(7));
    }
}
