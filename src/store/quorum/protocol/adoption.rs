//! What a client finds out before it writes on a member: the highest token that any grant can have.

use super::majority;
use super::node::Absence;

/// Returns the highest token, by what [`Node::highest`](super::Node::highest) told of each member after the keep-out of
/// the one that is adopted had passed; that one is among them. `None`: it cannot be known, or the quorum was closed.
///
/// A majority that knows has each token that was granted among its own. Without one, all have to answer, and what a
/// member may have forgotten is covered by a clock: `clock_us` was read after the last answer, and is taken to be ahead
/// of each token that was proposed before.
pub fn adoption<I>(answers: &[Option<Result<u64, Absence<I>>>], clock_us: u64) -> Option<u64> {
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

/// The answers of a quorum's members to being closed.
#[derive(Debug, Clone)]
pub struct Closings {
    successor: u64,
    answers: Vec<Option<(u64, Option<u64>)>>,
}

impl Closings {
    /// Returns the closing of a quorum of so many members for this one.
    pub fn new(successor: u64, members: usize) -> Self {
        Self {
            successor,
            answers: vec![None; members],
        }
    }

    /// Notes for which quorum a member is closed, and its highest token if it is in.
    pub fn note(&mut self, member: usize, closing: (u64, Option<u64>)) {
        self.answers[member] = Some(closing);
    }

    /// Returns the quorum for which members were closed before, if it is not this one: its change of members has to be
    /// finished first.
    pub fn other(&self) -> Option<u64> {
        let mut told = self.answers.iter().flatten();
        told.find(|(closed_for, _)| *closed_for != self.successor)
            .map(|(closed_for, _)| *closed_for)
    }

    /// Returns the highest token, once a majority that was in is closed for this one. The new quorum may be written one
    /// keep-out after the last of their answers. Members that are not closed are to be closed too, as far as they
    /// answer.
    pub fn highest(&self) -> Option<u64> {
        let told = self.answers.iter().flatten();
        let inside =
            told.filter_map(|(closed_for, max)| max.filter(|_| *closed_for == self.successor));
        let inside: Vec<u64> = inside.collect();
        (inside.len() >= majority(self.answers.len()))
            .then(|| inside.into_iter().max())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::FirstSeen;
    use super::*;

    type Told = Option<Result<u64, Absence<u8>>>;

    const fn knows(max: u64) -> Told {
        Some(Ok(max))
    }

    const fn out() -> Told {
        Some(Err(Absence::Out(FirstSeen {
            incarnation: 2,
            at_us: 0,
        })))
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
        let mut closings = Closings::new(8, 3);
        closings.note(0, (8, Some(5)));
        closings.note(1, (8, None));
        assert_eq!(closings.highest(), None);
        closings.note(2, (8, Some(6)));
        assert_eq!((closings.highest(), closings.other()), (Some(6), None));
        closings.note(2, (9, Some(6)));
        assert_eq!((closings.highest(), closings.other()), (None, Some(9)));
    }
}
