//! Counts the members' answers to the renewal of one lease.

use super::majority;
use super::planted::Planted;

/// A member's answer to the renewal of one lease, and the outcome of the whole quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extension {
    /// The lease was extended.
    Renewed,
    /// This holder does not have the name by this grant.
    Refused,
    /// An operator evicted the holder.
    Evicted,
    /// No answer, or an error.
    Unknown,
}

/// The answers of all members to the renewal of one lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tally {
    answers: Vec<Option<Extension>>,
    planted: Planted,
}

impl Tally {
    /// Returns the count before the first of so many members has answered.
    pub fn new(members: usize, planted: Planted) -> Self {
        Self {
            answers: vec![None; members],
            planted,
        }
    }

    /// Counts a member's answer. A second answer of the same member counts for nothing.
    pub fn count(&mut self, member: usize, answer: Extension) {
        self.answers[member].get_or_insert(answer);
    }

    /// Returns the outcome once no answer that is still missing can change it.
    ///
    /// A refusal is final only if so many members refused that no majority can have the lease: a member that did not
    /// answer may have it.
    pub fn outcome(&self) -> Option<Extension> {
        let majority = self.planted.majority(majority, self.answers.len());
        let no = self.having(Extension::Refused) + self.having(Extension::Evicted);
        let is_open = self.answers.contains(&None);
        if self.having(Extension::Renewed) >= majority {
            Some(Extension::Renewed)
        } else if self.answers.len() - no >= majority {
            (!is_open).then_some(Extension::Unknown)
        } else if self.having(Extension::Evicted) > 0 {
            Some(Extension::Evicted)
        } else {
            Some(Extension::Refused)
        }
    }

    /// Returns the outcome when no more answers are awaited.
    pub fn close(&self) -> Extension {
        self.outcome().unwrap_or(Extension::Unknown)
    }

    /// Returns the members that have to get the lease back: those that refused a renewal that a majority confirmed.
    ///
    /// No lease is put back that a majority has lost, so a renewal never creates one.
    pub fn to_repair(&self) -> impl Iterator<Item = usize> + '_ {
        let is_confirmed = self.outcome() == Some(Extension::Renewed);
        let answers = self.answers.iter().enumerate();
        answers
            .filter(move |(_, answer)| is_confirmed && **answer == Some(Extension::Refused))
            .map(|(member, _)| member)
    }

    fn having(&self, answer: Extension) -> usize {
        let answers = self.answers.iter();
        answers.filter(|given| **given == Some(answer)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Extension::{Evicted, Refused, Renewed, Unknown};

    fn tally<const N: usize>(members: usize, answers: [Extension; N]) -> Tally {
        let mut tally = Tally::new(members, Planted::default());
        for (member, answer) in answers.into_iter().enumerate() {
            tally.count(member, answer);
        }
        tally
    }

    #[test]
    fn a_majority_renews_without_the_others() {
        assert_eq!(tally(3, [Renewed, Renewed]).outcome(), Some(Renewed));
        assert_eq!(tally(5, [Renewed, Renewed]).outcome(), None);
        assert_eq!(
            tally(5, [Refused, Renewed, Unknown, Renewed, Renewed]).outcome(),
            Some(Renewed)
        );
    }

    #[test]
    fn half_is_no_majority() {
        assert_eq!(tally(4, [Renewed, Renewed]).outcome(), None);
        assert_eq!(tally(4, [Refused, Refused]).outcome(), Some(Refused));
    }

    #[test]
    fn a_refusal_is_final_only_when_no_majority_can_have_the_lease() {
        assert_eq!(tally(3, [Refused]).outcome(), None);
        assert_eq!(tally(3, [Refused, Unknown]).outcome(), None);
        assert_eq!(
            tally(3, [Refused, Unknown, Renewed]).outcome(),
            Some(Unknown)
        );
        assert_eq!(tally(3, [Refused, Refused]).outcome(), Some(Refused));
        assert_eq!(
            tally(3, [Refused, Unknown, Refused]).outcome(),
            Some(Refused)
        );
    }

    #[test]
    fn an_eviction_counts_once_no_majority_can_have_the_lease() {
        assert_eq!(tally(3, [Evicted]).outcome(), None);
        assert_eq!(
            tally(3, [Evicted, Renewed, Renewed]).outcome(),
            Some(Renewed)
        );
        assert_eq!(tally(3, [Evicted, Refused]).outcome(), Some(Evicted));
    }

    #[test]
    fn what_is_missing_at_the_limit_is_unknown() {
        assert_eq!(tally(3, [Renewed]).close(), Unknown);
        assert_eq!(tally(3, []).close(), Unknown);
        assert_eq!(tally(3, [Refused, Refused]).close(), Refused);
    }

    #[test]
    fn only_after_a_confirmed_renewal_is_a_lease_put_back() {
        let repaired = |tally: Tally| tally.to_repair().collect::<Vec<_>>();
        assert_eq!(repaired(tally(3, [Renewed, Refused, Renewed])), [1]);
        assert_eq!(repaired(tally(3, [Refused, Refused, Renewed])), [0; 0]);
        assert_eq!(repaired(tally(3, [Renewed, Evicted, Renewed])), [0; 0]);
        assert_eq!(repaired(tally(3, [Renewed, Unknown, Renewed])), [0; 0]);
    }

    #[test]
    fn a_second_answer_of_a_member_does_not_count() {
        let mut tally = tally(3, [Renewed]);
        tally.count(0, Refused);
        tally.count(1, Renewed);
        assert_eq!(tally.outcome(), Some(Renewed));
    }
}
