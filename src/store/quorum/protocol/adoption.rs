//! The look before a client writes on a member: it finds the highest token that any grant can have.

use super::majority;
use super::member::Absence;

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

/// The answers of a quorum's members to being closed.
#[derive(Debug, Clone)]
pub struct Closings {
    successor: u64,
    /// For which quorum each is closed, its highest token, and whether it is in.
    answers: Vec<Option<(u64, u64, bool)>>,
}

impl Closings {
    /// Returns the closing of a quorum of this many members for this one.
    pub fn new(successor: u64, members: usize) -> Self {
        Self {
            successor,
            answers: vec![None; members],
        }
    }

    /// Notes for which quorum a member is closed, its highest token, and whether it is in.
    pub fn note(&mut self, member: usize, closed_for: u64, max: u64, is_in: bool) {
        self.answers[member] = Some((closed_for, max, is_in));
    }

    /// Returns the quorum for which members were closed before, if it is not this one: its change of members has to be
    /// finished first.
    pub fn other(&self) -> Option<u64> {
        let mut closed_for = self.answers.iter().flatten().map(|answer| answer.0);
        closed_for.find(|closed_for| *closed_for != self.successor)
    }

    /// Returns the highest token, once a majority that was in is closed for this one. The new quorum may be written one
    /// keep-out after the last of their answers. Members that are not closed are to be closed too, as far as they
    /// answer.
    pub fn highest(&self) -> Option<u64> {
        let told = self.answers.iter().flatten();
        let closed = told.filter(|(closed_for, _, is_in)| *is_in && *closed_for == self.successor);
        let has_majority = closed.clone().count() >= majority(self.answers.len());
        closed.map(|answer| answer.1).max().filter(|_| has_majority)
    }

    /// Returns the highest token that any of them has, whether it is in or not.
    pub fn highest_of_any(&self) -> u64 {
        let told = self.answers.iter().flatten();
        told.map(|answer| answer.1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
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
        let mut closings = Closings::new(8, 3);
        closings.note(0, 8, 5, true);
        closings.note(1, 8, 7, false);
        assert_eq!(closings.highest(), None);
        closings.note(2, 8, 6, true);
        assert_eq!((closings.highest(), closings.other()), (Some(6), None));
        closings.note(2, 9, 6, true);
        assert_eq!(closings.highest_of_any(), 7);
        assert_eq!((closings.highest(), closings.other()), (None, Some(9)));
    }
}
