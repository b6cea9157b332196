//! One round of a claim: the votes of the members on one proposed token, and what they decide.

use std::time::Duration;

use super::planted::{Planted, QuorumBug};
use super::{Tenure, Vote, majority};
use crate::holder::Holder;
use crate::token::Token;

/// The votes on one proposed token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round {
    holder: Holder,
    proposed: Token,
    votes: Vec<Ballot>,
    planted: Planted,
}

/// What is known of one member's vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Ballot {
    /// Not answered. Exits: Cast, Failed.
    Awaited,
    /// The member's answer. Final.
    Cast(Vote),
    /// An error, or no answer within the limit: it may have taken the token. Final.
    Failed,
}

/// What a round decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// A majority took the token.
    Granted(Token),
    /// No other holder has the name, but the token was too low: propose one above `floor` at once.
    Low {
        /// The highest floor that a member told.
        floor: u64,
    },
    /// One holder, or a release that keeps the name, has a majority: take back.
    Held(Tenure),
    /// No holder has a majority: take back, wait for a random time, and propose again. With the tenure that most members
    /// have, or the one of them with the highest token.
    Split(Tenure),
    /// No majority takes part, because members that came back without their data keep out: take back.
    KeptOut {
        /// When so many take part again that a majority can be had.
        remaining: Duration,
    },
    /// The token is too far in front of the clocks of so many members that no majority can take it: take back.
    Ahead,
    /// The other clients have another longest ttl, in milliseconds: take back.
    Mismatch(u64),
    /// Too many members failed: take back.
    Failed,
}

impl Round {
    /// Returns a round of so many members, before any of them has answered.
    pub fn new(holder: Holder, proposed: Token, members: usize, planted: Planted) -> Self {
        Self {
            holder,
            proposed,
            votes: vec![Ballot::Awaited; members],
            planted,
        }
    }

    /// Returns the token that is voted on.
    pub const fn proposed(&self) -> Token {
        self.proposed
    }

    /// Counts a member's vote. A second one of the same member counts for nothing.
    ///
    /// A yes to any other token counts as a refusal: it is what the member had of this holder before.
    pub fn count(&mut self, member: usize, vote: Vote) {
        if self.votes[member] == Ballot::Awaited {
            self.votes[member] = Ballot::Cast(vote);
        }
    }

    /// Notes that a member failed, or did not answer within the limit.
    pub fn fail(&mut self, member: usize) {
        if self.votes[member] == Ballot::Awaited {
            self.votes[member] = Ballot::Failed;
        }
    }

    /// Returns the decision, once a missing vote can no longer bring a grant.
    pub fn decision(&self) -> Option<Decision> {
        if let Some(granted) = self.granted() {
            return Some(Decision::Granted(granted));
        }
        let possible = self.yes() + self.missing();
        (possible < self.majority()).then(|| self.without_a_grant())
    }

    /// Returns the decision at the limit, without the votes that are missing.
    pub fn close(&self) -> Decision {
        match self.granted() {
            Some(granted) => Decision::Granted(granted),
            None => self.without_a_grant(),
        }
    }

    /// Returns whether no majority can have the token: so many members said that they do not. One that failed may have it.
    pub fn is_lost(&self) -> bool {
        let without = |vote: &Vote| matches!(vote, Vote::Low { .. } | Vote::Held(_));
        let without = self.cast().filter(without).count();
        let is_lost = self.votes.len() - without < self.majority();
        is_lost || without > 0 && self.planted.has(QuorumBug::LostWithoutAMajority)
    }

    /// Returns how many members have voted.
    pub fn cast_votes(&self) -> usize {
        self.cast().count()
    }

    /// Returns the members that may have taken the token, now or later. From each of them it has to be taken back.
    pub fn to_take_back(&self) -> impl Iterator<Item = usize> + '_ {
        let votes = self.votes.iter().enumerate();
        let may_have = |ballot: &Ballot| match ballot {
            Ballot::Awaited | Ballot::Failed => true,
            Ballot::Cast(vote) => matches!(vote, Vote::Yes(_)),
        };
        votes
            .filter(move |(_, ballot)| may_have(ballot))
            .map(|(member, _)| member)
    }

    /// Returns how long it takes until a majority of the members is free, as far as they have answered: the time for
    /// which a waiting client can sleep without missing more than a notice.
    pub fn free_after(&self, now_us: impl Fn(usize) -> u64) -> Option<Duration> {
        let left = |(member, ballot): (usize, &Ballot)| match ballot {
            Ballot::Awaited | Ballot::Failed => None,
            Ballot::Cast(Vote::Held(tenure)) => {
                Some(tenure.ends_at_us.saturating_sub(now_us(member)))
            }
            Ballot::Cast(Vote::Away(left)) => Some(*left),
            Ballot::Cast(_) => Some(0),
        };
        let mut left: Vec<u64> = self.votes.iter().enumerate().filter_map(left).collect();
        left.sort_unstable();
        left.get(self.majority() - 1)
            .map(|us| Duration::from_micros(*us))
    }

    fn granted(&self) -> Option<Token> {
        let is_granted = self.yes() >= self.majority();
        is_granted.then(|| {
            let tokens = self.cast().filter_map(|vote| match vote {
                Vote::Yes(token) => Some(token),
                _ => None,
            });
            self.planted.granted(self.proposed, tokens)
        })
    }

    fn without_a_grant(&self) -> Decision {
        let majority = self.majority();
        let count = |is: fn(&Vote) -> bool| self.cast().filter(is).count();
        let leading = self.leading();
        if let Some((tenure, votes)) = leading
            && votes >= majority
        {
            return Decision::Held(tenure);
        }
        if let Some(theirs) = self.cast().find_map(|vote| match vote {
            Vote::Mismatch(theirs) => Some(theirs),
            _ => None,
        }) {
            return Decision::Mismatch(theirs);
        }
        // So many could take a token in the next round.
        let low = count(|vote| matches!(vote, Vote::Low { .. }));
        let held = count(|vote| matches!(vote, Vote::Held(_)));
        let stale = self.cast().filter(|vote| self.is_stale(vote)).count();
        let willing = self.yes() + stale + low + held + self.missing();
        let away = count(|vote| matches!(vote, Vote::Away(_)));
        let ahead = count(|vote| matches!(vote, Vote::Ahead));
        if willing >= majority {
            if let Some((tenure, _)) = leading {
                return Decision::Split(tenure);
            }
            return match self.highest_floor() {
                Some(floor) => Decision::Low { floor },
                None => Decision::Failed,
            };
        }
        if willing + away >= majority {
            let remaining = self.back_after(majority - willing);
            return Decision::KeptOut { remaining };
        }
        match willing + away + ahead >= majority {
            true => Decision::Ahead,
            false => Decision::Failed,
        }
    }

    /// Returns the tenure that most members have, and how many have it; of several, that with the highest token.
    fn leading(&self) -> Option<(Tenure, usize)> {
        let held = || {
            self.cast().filter_map(|vote| match vote {
                Vote::Held(tenure) => Some(tenure),
                _ => None,
            })
        };
        let is_same = |one: &Tenure, other: &Tenure| {
            // The token tells the grant of a name that is only kept.
            one.holder == other.holder && (one.holder.is_some() || one.token == other.token)
        };
        let counted = held().map(|tenure| {
            let votes = held().filter(|other| is_same(&tenure, other)).count();
            (tenure, votes)
        });
        counted.max_by_key(|(tenure, votes)| (*votes, tenure.token, tenure.ends_at_us))
    }

    /// Returns the highest token that a member told to be too low: its floor, or this holder's own of before.
    fn highest_floor(&self) -> Option<u64> {
        let floors = self.cast().filter_map(|vote| match vote {
            Vote::Low { floor, .. } => Some(floor),
            Vote::Yes(token) if self.is_stale(&vote) => Some(token.get()),
            _ => None,
        });
        floors.max()
    }

    /// Returns in how long so many of the members that keep out take part again.
    fn back_after(&self, members: usize) -> Duration {
        let mut left: Vec<u64> = self
            .cast()
            .filter_map(|vote| match vote {
                Vote::Away(left) => Some(left),
                _ => None,
            })
            .collect();
        left.sort_unstable();
        left.get(members - 1)
            .map_or(Duration::ZERO, |us| Duration::from_micros(*us))
    }

    /// Whether this is a yes to another token than the proposed one.
    fn is_stale(&self, vote: &Vote) -> bool {
        let counts_all = self.planted.has(QuorumBug::AnyYesCounts) || self.planted.nodes_mint();
        matches!(vote, Vote::Yes(token) if *token != self.proposed && !counts_all)
    }

    fn yes(&self) -> usize {
        self.cast()
            .filter(|vote| matches!(vote, Vote::Yes(_)) && !self.is_stale(vote))
            .count()
    }

    fn missing(&self) -> usize {
        let votes = self.votes.iter();
        votes.filter(|ballot| **ballot == Ballot::Awaited).count()
    }

    fn cast(&self) -> impl Iterator<Item = Vote> + '_ {
        self.votes.iter().filter_map(|ballot| match ballot {
            Ballot::Cast(vote) => Some(*vote),
            Ballot::Awaited | Ballot::Failed => None,
        })
    }

    fn majority(&self) -> usize {
        self.planted.majority(majority, self.votes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::ClientId;

    const P: u64 = 1_000;

    fn holder(number: u64) -> Holder {
        Holder::new(ClientId::from_u128(7), number)
    }

    fn token(number: u64) -> Token {
        Token::new(number).expect("within the limits")
    }

    fn yes() -> Vote {
        Vote::Yes(token(P))
    }

    fn tenure(by: u64, number: u64) -> Tenure {
        Tenure {
            holder: Some(holder(by)),
            token: token(number),
            ends_at_us: 500,
            is_evicted: false,
        }
    }

    fn held(by: u64) -> Vote {
        Vote::Held(tenure(by, 10 * by))
    }

    fn low(floor: u64) -> Vote {
        Vote::Low {
            floor,
            of_server: 0,
        }
    }

    /// A round of so many members with these votes; `None` is a member that failed.
    fn round<const N: usize>(members: usize, votes: [Option<Vote>; N]) -> Round {
        let mut round = Round::new(holder(1), token(P), members, Planted::default());
        for (member, vote) in votes.into_iter().enumerate() {
            match vote {
                Some(vote) => round.count(member, vote),
                None => round.fail(member),
            }
        }
        round
    }

    #[test]
    fn a_majority_grants_without_the_others() {
        let granted = Some(Decision::Granted(token(P)));
        assert_eq!(round(3, [Some(yes())]).decision(), None);
        assert_eq!(round(3, [Some(yes()), Some(yes())]).decision(), granted);
        assert_eq!(round(5, [Some(yes()), Some(yes())]).decision(), None);
        assert_eq!(
            round(5, [None, None, Some(yes()), Some(yes()), Some(yes())]).decision(),
            granted
        );
    }

    #[test]
    fn half_of_the_members_is_no_majority() {
        assert_eq!(
            round(4, [Some(yes()), Some(yes()), None, None]).close(),
            Decision::Failed
        );
    }

    #[test]
    fn a_yes_to_another_token_is_no_yes() {
        let before = Some(Vote::Yes(token(P - 1)));
        let round = round(3, [before, before, Some(yes())]);
        assert_eq!(round.decision(), Some(Decision::Low { floor: P - 1 }));
    }

    #[test]
    fn a_second_vote_of_a_member_does_not_count() {
        let mut round = round(3, [Some(yes())]);
        round.count(0, yes());
        assert_eq!(round.decision(), None);
        round.fail(0);
        round.count(1, yes());
        assert_eq!(round.decision(), Some(Decision::Granted(token(P))));
    }

    #[test]
    fn a_name_that_a_majority_has_given_to_another_is_held() {
        let round = round(3, [Some(held(2)), Some(held(2))]);
        assert_eq!(round.decision(), Some(Decision::Held(tenure(2, 20))));
    }

    #[test]
    fn a_name_that_a_majority_keeps_is_held_by_no_one() {
        let kept = Tenure {
            holder: None,
            ..tenure(2, 20)
        };
        let vote = Some(Vote::Held(kept));
        assert_eq!(
            round(3, [vote, vote, Some(yes())]).decision(),
            Some(Decision::Held(kept))
        );
        let other = Some(Vote::Held(Tenure {
            token: token(21),
            ..kept
        }));
        assert!(matches!(
            round(3, [vote, other, None]).decision(),
            Some(Decision::Split(_))
        ));
    }

    #[test]
    fn votes_for_several_holders_are_split() {
        let votes = [Some(held(2)), Some(yes()), Some(held(3))];
        assert_eq!(
            round(3, votes).decision(),
            Some(Decision::Split(tenure(3, 30)))
        );
        let votes = [
            Some(held(2)),
            Some(held(2)),
            Some(held(3)),
            Some(yes()),
            Some(yes()),
        ];
        assert_eq!(
            round(5, votes).decision(),
            Some(Decision::Split(tenure(2, 20)))
        );
    }

    #[test]
    fn a_low_token_is_raised_above_the_highest_floor() {
        let votes = [Some(low(1_005)), Some(low(1_009)), Some(yes())];
        assert_eq!(
            round(3, votes).decision(),
            Some(Decision::Low { floor: 1_009 })
        );
        // As soon as no majority is possible: the third may be hung.
        assert_eq!(
            round(3, [Some(low(1_005)), Some(low(1_009))]).decision(),
            Some(Decision::Low { floor: 1_009 })
        );
    }

    #[test]
    fn a_low_token_where_another_holder_has_a_member_is_split() {
        let votes = [Some(low(1_005)), Some(held(2)), None];
        assert_eq!(
            round(3, votes).decision(),
            Some(Decision::Split(tenure(2, 20)))
        );
    }

    #[test]
    fn members_without_their_data_keep_the_claim_out_until_a_majority_is_back() {
        let away = |us| Some(Vote::Away(us));
        let votes = [away(900), Some(yes()), away(700)];
        let remaining = Duration::from_micros(700);
        assert_eq!(
            round(3, votes).decision(),
            Some(Decision::KeptOut { remaining })
        );
        let remaining = Duration::from_micros(900);
        assert_eq!(
            round(3, [away(900), away(700), None]).close(),
            Decision::KeptOut { remaining }
        );
    }

    #[test]
    fn one_member_that_keeps_out_does_not_stop_a_grant() {
        let votes = [Some(Vote::Away(9)), Some(yes()), Some(yes())];
        assert_eq!(
            round(3, votes).decision(),
            Some(Decision::Granted(token(P)))
        );
    }

    #[test]
    fn an_outage_is_told_from_contention_and_from_a_keep_out() {
        assert_eq!(
            round(3, [None, None]).decision(),
            Some(Decision::Failed),
            "before the third answers"
        );
        assert_eq!(
            round(3, [None, Some(held(2)), None]).decision(),
            Some(Decision::Failed)
        );
        assert_eq!(
            round(3, [None, Some(Vote::Away(5)), None]).decision(),
            Some(Decision::Failed)
        );
        assert_eq!(round(3, [Some(yes())]).close(), Decision::Failed);
    }

    #[test]
    fn a_token_too_far_ahead_of_a_majority_is_told() {
        let ahead = Some(Vote::Ahead);
        assert_eq!(
            round(3, [ahead, ahead, None]).decision(),
            Some(Decision::Ahead)
        );
        assert_eq!(
            round(3, [ahead, Some(yes()), Some(yes())]).decision(),
            Some(Decision::Granted(token(P)))
        );
    }

    #[test]
    fn another_longest_ttl_is_told() {
        let votes = [Some(Vote::Mismatch(9)), Some(Vote::Mismatch(9))];
        assert_eq!(round(3, votes).decision(), Some(Decision::Mismatch(9)));
    }

    #[test]
    fn a_token_is_taken_back_where_it_was_not_refused() {
        let votes = [Some(yes()), Some(held(2)), None, Some(low(5))];
        let back: Vec<usize> = round(5, votes).to_take_back().collect();
        assert_eq!(back, [0, 2, 4]);
    }

    #[test]
    fn a_token_is_lost_only_when_so_many_say_so_that_no_majority_has_it() {
        let is_lost = |votes| round::<3>(3, votes).is_lost();
        assert!(is_lost([Some(low(5)), None, Some(held(2))]));
        assert!(!is_lost([Some(low(5)), None, Some(yes())]));
        assert!(!is_lost([Some(low(5)), Some(Vote::Away(9)), None]));
        assert_eq!(round(3, [Some(low(5)), None, Some(yes())]).cast_votes(), 2);
    }

    #[test]
    fn a_waiting_client_sleeps_until_a_majority_is_free() {
        let free_after = |round: &Round| round.free_after(|_| 100);
        let votes = [Some(held(2)), Some(yes()), Some(held(3))];
        assert_eq!(
            free_after(&round(3, votes)),
            Some(Duration::from_micros(400))
        );
        assert_eq!(
            free_after(&round(3, [Some(yes()), None, Some(low(3))])),
            Some(Duration::ZERO)
        );
        assert_eq!(free_after(&round(3, [Some(held(2))])), None);
    }
}
