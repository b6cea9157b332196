//! The look before a client writes on a member: it finds the highest token that any grant can have.

use super::majority;
use super::member::{Absence, Membership};

/// Returns the highest token, by what [`Membership::highest`](super::Membership::highest) says of each member after the
/// keep-out of the one that is adopted had passed; that one is among them. `None`: it cannot be known, or the quorum
/// was closed.
///
/// A majority that knows has each token that was granted among its own. Without one, all have to answer, and what a
/// member may have forgotten is covered by a clock: `clock_us` was read after the last answer, and is taken to be ahead
/// of each token that was proposed before.
pub fn adoption(answers: &[Option<Result<u64, Absence>>], clock_us: u64) -> Option<u64> {
    let told = || answers.iter().flatten();
    if told().any(|answer| !matches!(answer, Ok(_) | Err(Absence::Out(_)))) {
        return None;
    }
    let known: Vec<u64> = told()
        .filter_map(|answer| answer.as_ref().ok().copied())
        .collect();
    let highest = known.iter().copied().max().unwrap_or(0);
    if known.len() >= majority(answers.len()) {
        Some(highest)
    } else if told().count() == answers.len() {
        Some(highest.max(clock_us))
    } else {
        None
    }
}

/// Returns the highest token of a quorum that was closed for its successor, by what each member said when it was closed
/// last. `None`: no majority that is in was closed for this one.
///
/// The successor may be written one keep-out after the last of the answers. A member of the successor was closed for
/// it. Members that are not closed are to be closed too, as far as they answer.
pub fn closing(answers: &[Option<Membership>], successor: u64) -> Option<u64> {
    let is_closed = |it: &&Membership| {
        it.id.quorum == successor || it.is_in && it.closed_for == Some(successor)
    };
    let closed = answers.iter().flatten().filter(is_closed);
    let has_majority = closed.clone().count() >= majority(answers.len());
    closed.map(|it| it.max).max().filter(|_| has_majority)
}

#[cfg(test)]
mod tests {
    use super::super::member::MemberId;
    use super::*;

    type Told = Option<Result<u64, Absence>>;

    const fn knows(max: u64) -> Told {
        Some(Ok(max))
    }

    const fn out() -> Told {
        Some(Err(Absence::Out(0)))
    }

    #[test]
    fn a_majority_that_is_in_knows_the_highest_token() {
        assert_eq!(adoption(&[None, knows(5), knows(9)], 70), Some(9));
        assert_eq!(adoption(&[knows(9), knows(5), None], 70), Some(9));
    }

    #[test]
    fn without_one_all_have_to_answer_and_the_clock_counts() {
        assert_eq!(adoption(&[out(), knows(5), out()], 70), Some(70));
        assert_eq!(adoption(&[out(), knows(5), None], 70), None);
    }

    #[test]
    fn a_closed_member_ends_it() {
        let closed: Told = Some(Err(Absence::Closed(8)));
        assert_eq!(adoption(&[out(), knows(5), closed], 70), None);
    }

    #[test]
    fn a_quorum_is_closed_when_a_majority_that_was_in_is() {
        let closed = |quorum, closed_for, max, is_in| {
            let id = MemberId {
                quorum,
                index: 0,
                of: 3,
            };
            Some(Membership {
                id,
                max_ttl_us: 9,
                is_in,
                max,
                closed_for,
            })
        };
        let (first, out) = (closed(7, Some(8), 5, true), closed(7, Some(8), 9, false));
        assert_eq!(closing(&[first, out, None], 8), None);
        assert_eq!(closing(&[first, out, closed(7, None, 6, true)], 8), None);
        assert_eq!(closing(&[first, out, closed(7, Some(9), 6, true)], 8), None);
        assert_eq!(
            closing(&[first, out, closed(7, Some(8), 6, true)], 8),
            Some(6)
        );
        assert_eq!(
            closing(&[first, None, closed(8, None, 7, true)], 8),
            Some(7)
        );
    }
}
