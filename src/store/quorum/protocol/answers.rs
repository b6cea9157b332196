//! One round of a request: the members' answers to it, and what they decide.

use std::collections::BTreeSet;

use super::majority;
use super::member::{Absence, MemberAnswer, MemberLease};
use crate::holder::Holder;
use crate::store::{HeldState, Outcome};
use crate::term::Instant;

/// The answers of the members to one request for a name.
#[derive(Debug, Clone)]
pub struct Answers<L = MemberLease> {
    answers: Vec<Option<MemberAnswer<L>>>,
    /// One ttl after the first send. What comes later does not count: a member that said yes before may have lost its
    /// data and be in again.
    deadline: Instant,
}

/// The decision that follows from the answers to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome<L = MemberLease> {
    /// A majority took the token in this round.
    Granted,
    /// A majority has the name by another lease. Take back.
    Held(L),
    /// The token was too low, and no other lease is in the way: propose one above all marks at once.
    Low,
    /// Claims were in each other's way. Take back, pause, and propose one above all marks.
    Split {
        /// Number of other claims that were seen.
        rivals: usize,
        /// The lease that most members have; the one that was taken last, of several.
        leading: L,
    },
    /// Too few members take part for a majority. Take back. Has the reason of the last absent one.
    Absent(Absence),
    /// Too few answered. Take back.
    Failed,
}

impl<L: AsRef<MemberLease> + Clone> Answers<L> {
    /// Returns a round of this many members, none of which has answered.
    pub fn new(members: usize, deadline: Instant) -> Self {
        Self {
            answers: vec![None; members],
            deadline,
        }
    }

    /// Counts the answer of a member: the first one only, and only before the deadline.
    pub fn count(&mut self, member: usize, answer: MemberAnswer<L>, now: Instant) {
        if now < self.deadline {
            self.answers[member].get_or_insert(answer);
        }
    }

    /// Returns the answers, with the members.
    pub fn told(&self) -> impl Iterator<Item = (usize, &MemberAnswer<L>)> {
        let answers = self.answers.iter().enumerate();
        answers.filter_map(|(member, answer)| Some((member, answer.as_ref()?)))
    }

    /// Returns how many members answered and take part.
    pub fn taking_part(&self) -> usize {
        self.told().count() - self.absent().count()
    }

    /// Returns how many members are a majority.
    pub const fn majority(&self) -> usize {
        majority(self.answers.len())
    }

    /// Returns the members that said yes.
    pub fn yes(&self) -> impl Iterator<Item = usize> {
        let said = |(member, answer)| matches!(answer, &MemberAnswer::Yes).then_some(member);
        self.told().filter_map(said)
    }

    /// Returns whether a majority said yes.
    pub fn has_majority(&self) -> bool {
        self.yes().count() >= self.majority()
    }

    /// Returns the verdict, once the missing answers can no longer bring a grant.
    pub fn verdict(&self) -> Option<ClaimOutcome<L>> {
        let missing = self.answers.len() - self.told().count();
        let may_be_granted = self.yes().count() + missing >= self.majority();
        (self.has_majority() || !may_be_granted).then(|| self.close())
    }

    /// Returns the verdict without the answers that are missing.
    pub fn close(&self) -> ClaimOutcome<L> {
        if self.has_majority() {
            return ClaimOutcome::Granted;
        }
        let Some((leading, members)) = self.leading() else {
            let away = self.absent().last();
            return match self.taking_part() >= self.majority() {
                true => ClaimOutcome::Low,
                false => away.map_or(ClaimOutcome::Failed, ClaimOutcome::Absent),
            };
        };
        let leading = leading.clone();
        if members >= self.majority() {
            return ClaimOutcome::Held(leading);
        }
        let holders: BTreeSet<_> = self.taken().map(|lease| lease.as_ref().holder).collect();
        let rivals = holders.len();
        ClaimOutcome::Split { rivals, leading }
    }

    /// Returns the members that may take the token, now or later. The claim has to take it back from each of them.
    pub fn to_take_back(&self) -> impl Iterator<Item = usize> {
        let may = move |of: &usize| matches!(self.answers[*of], None | Some(MemberAnswer::Yes));
        (0..self.answers.len()).filter(may)
    }

    /// Returns the outcome of a renewal of this holder; `None` as long as the answers that are missing may change it.
    /// It is refused once too many members lack the lease for a majority to have it.
    pub fn renewing(&self, holder: Holder) -> Option<Outcome> {
        if self.has_majority() {
            return Some(Outcome::Renewed);
        }
        // One that is away may have it again within the ttl, if a majority vouches for it.
        let is_away = |absence: &Absence| matches!(absence, Absence::Away(_));
        let may_have_it = self.yes().count() + self.absent().filter(is_away).count();
        let lacking = self.told().count() - may_have_it;
        if lacking + self.majority() <= self.answers.len() {
            return None;
        }
        let mut taken = self.taken().map(AsRef::as_ref);
        let is_evicted = |of: &MemberLease| of.holder == holder && of.state == HeldState::Evicted;
        match taken.any(is_evicted) {
            true => Some(Outcome::Evicted),
            false => Some(Outcome::Refused),
        }
    }

    /// Returns the members where the name is free, with the mark that each is sent back: once a majority has said yes
    /// in this very round, and before the deadline.
    pub fn to_vouch(&self, now: Instant) -> impl Iterator<Item = (usize, u64)> {
        let may = self.has_majority() && self.deadline > now;
        self.told()
            .filter_map(move |(member, answer)| match answer {
                MemberAnswer::Low(mark) if may => Some((member, *mark)),
                _ => None,
            })
    }

    /// Returns why members take no part.
    pub fn absent(&self) -> impl Iterator<Item = Absence> {
        self.told().filter_map(|(_, answer)| match answer {
            MemberAnswer::Absent(absence) => Some(*absence),
            _ => None,
        })
    }

    /// Returns the leases that members reported.
    pub fn taken(&self) -> impl Iterator<Item = &L> {
        self.told().filter_map(|(_, answer)| match answer {
            MemberAnswer::Taken(lease) => Some(lease),
            _ => None,
        })
    }

    /// Returns the lease that most members have, and how many have it.
    pub fn leading(&self) -> Option<(&L, usize)> {
        let counted = self.taken().map(|lease| {
            let is_it = |other: &&L| lease.as_ref().is_same((*other).as_ref());
            (lease, self.taken().filter(is_it).count())
        });
        counted.max_by_key(|(lease, members)| (*members, lease.as_ref().token))
    }

    /// Returns the lease that a majority has, or may have together with the members that say nothing of it. A lease of
    /// fewer members is none: a claim that is under way, or that its client left behind.
    pub fn agreed(&self) -> Option<&L> {
        let silent = self.answers.len() - self.taking_part();
        let (leading, members) = self.leading()?;
        (members + silent >= self.majority()).then_some(leading)
    }

    /// Returns the marks and tokens that are in the way of this one.
    pub fn marks(&self) -> impl Iterator<Item = u64> {
        self.told().filter_map(|(_, answer)| match answer {
            MemberAnswer::Low(mark) => Some(*mark),
            MemberAnswer::Taken(lease) => Some(lease.as_ref().token.get()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::ClientId;
    use crate::token::Token;

    const DEADLINE: Instant = Instant::from_nanos(10);

    fn taken(holder: u64, token: u64) -> MemberAnswer {
        MemberAnswer::Taken(lease(holder, token))
    }

    fn lease(holder: u64, token: u64) -> MemberLease {
        MemberLease {
            holder: Holder::new(ClientId::from_u128(0), holder),
            token: Token::new(token).expect("within the limits"),
            ends_at_us: 9,
            floor: 0,
            state: HeldState::Leased,
        }
    }

    const fn absent() -> MemberAnswer {
        MemberAnswer::Absent(Absence::Away(0))
    }

    fn verdict(answers: &[MemberAnswer]) -> Option<ClaimOutcome> {
        round(answers).verdict()
    }

    #[test]
    fn a_majority_of_yes_is_a_grant() {
        assert_eq!(verdict(&[MemberAnswer::Yes]), None);
        assert_eq!(verdict(&[taken(2, 5), MemberAnswer::Yes]), None);
        let answers = [MemberAnswer::Yes, taken(2, 5), MemberAnswer::Yes];
        assert_eq!(verdict(&answers), Some(ClaimOutcome::Granted));
    }

    #[test]
    fn one_lease_at_a_majority_has_the_name() {
        assert_eq!(
            verdict(&[taken(2, 5), taken(2, 5)]),
            Some(ClaimOutcome::Held(lease(2, 5)))
        );
    }

    #[test]
    fn several_leases_are_a_split_vote() {
        let split = ClaimOutcome::Split {
            rivals: 2,
            leading: lease(3, 7),
        };
        assert_eq!(verdict(&[taken(2, 5), taken(3, 7)]), Some(split));
    }

    #[test]
    fn a_token_that_is_too_low_is_proposed_higher() {
        let round = round(&[MemberAnswer::Low(8), MemberAnswer::Low(6)]);
        assert_eq!(round.verdict(), Some(ClaimOutcome::Low));
        assert_eq!(round.marks().max(), Some(8));
    }

    #[test]
    fn without_a_majority_that_takes_part_the_reason_is_told() {
        let MemberAnswer::Absent(absence) = absent() else {
            unreachable!("it is away");
        };
        assert_eq!(
            verdict(&[absent(), absent()]),
            Some(ClaimOutcome::Absent(absence))
        );
        let silent: Answers = Answers::new(3, DEADLINE);
        assert_eq!(silent.close(), ClaimOutcome::Failed);
    }

    #[test]
    fn a_second_answer_and_a_late_one_do_not_count() {
        let mut round = Answers::new(3, DEADLINE);
        round.count(0, taken(2, 5), Instant::ZERO);
        round.count(0, MemberAnswer::Yes, Instant::ZERO);
        round.count(1, MemberAnswer::Yes, Instant::ZERO);
        round.count(2, MemberAnswer::Yes, DEADLINE);
        assert_ne!(round.close(), ClaimOutcome::Granted);
        let to_take_back: Vec<usize> = round.to_take_back().collect();
        assert_eq!(to_take_back, [1, 2]);
    }

    fn round(answers: &[MemberAnswer]) -> Answers {
        let mut round = Answers::new(3, DEADLINE);
        for (member, answer) in answers.iter().enumerate() {
            round.count(member, answer.clone(), Instant::ZERO);
        }
        round
    }

    #[test]
    fn a_majority_decides() {
        let holder = Holder::new(ClientId::from_u128(0), 1);
        let evicted = MemberAnswer::Taken(MemberLease {
            state: HeldState::Evicted,
            ..lease(1, 5)
        });
        for (answers, outcome) in [
            (vec![MemberAnswer::Yes], "None"),
            (
                vec![MemberAnswer::Yes, MemberAnswer::Low(9), MemberAnswer::Yes],
                "Some(Renewed)",
            ),
            (
                vec![MemberAnswer::Low(9), MemberAnswer::Low(9)],
                "Some(Refused)",
            ),
            (vec![MemberAnswer::Low(9), absent()], "None"),
            (vec![evicted, MemberAnswer::Low(9)], "Some(Evicted)"),
        ] {
            let told = format!("{:?}", round(&answers).renewing(holder));
            assert_eq!(told, outcome, "{answers:?}");
        }
    }

    #[test]
    fn a_majority_of_this_round_is_vouched_with_before_the_deadline() {
        let renewed = round(&[MemberAnswer::Yes, MemberAnswer::Low(9), MemberAnswer::Yes]);
        let vouched: Vec<_> = renewed.to_vouch(Instant::ZERO).collect();
        assert_eq!(vouched, [(1, 9)]);
        assert_eq!(renewed.to_vouch(DEADLINE).next(), None);
        let alone = round(&[MemberAnswer::Yes, MemberAnswer::Low(9)]);
        assert_eq!(alone.to_vouch(Instant::ZERO).next(), None);
    }
}
