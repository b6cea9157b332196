//! One round of a claim, with all that its members told.

use std::time::Duration;

use super::members::{Away, NameReply};
use super::protocol::{Answers, MemberAnswer, MemberLease};
use crate::clock::{Boottime, Clock as _, Instant};
use crate::store::{Failed, Held};
use crate::token::Token;

/// The outcome of one round.
pub(super) struct Votes {
    pub(super) token: Token,
    pub(super) answers: Answers<String>,
    pub(super) answered: usize,
    /// Reported leases of other holders.
    pub(super) held: Vec<(MemberLease, Held)>,
    pub(super) away: Vec<(usize, Away)>,
    pub(super) failures: Vec<(usize, Failed)>,
    /// The members that have this token now.
    pub(super) taken_by: Vec<usize>,
    pub(super) took: Option<Duration>,
}

impl Votes {
    /// Returns a round for this token that none of so many members has answered.
    pub(super) fn new(token: Token, members: usize, deadline: Instant) -> Self {
        Self {
            token,
            answers: Answers::new(members, deadline),
            answered: 0,
            held: Vec::new(),
            away: Vec::new(),
            failures: Vec::new(),
            taken_by: Vec::new(),
            took: None,
        }
    }

    /// Returns what was told of this lease.
    pub(super) fn alike(self, lease: &MemberLease) -> Vec<Held> {
        let is_it = |(other, _): &(MemberLease, Held)| {
            (other.holder, other.token) == (lease.holder, lease.token)
        };
        let alike = self.held.into_iter().filter(is_it);
        alike.map(|(_, held)| held).collect()
    }

    /// Counts the answer of a member. Returns whether the other votes matter little now.
    pub(super) fn note(&mut self, member: usize, answer: Result<Vec<NameReply>, Failed>) -> bool {
        let told = match answer.map(|told| told.into_iter().next()) {
            Ok(Some(NameReply::Failed(error))) => Err(Failed::answered(error)),
            Ok(Some(told)) => Ok(told),
            Ok(None) => return false,
            Err(failed) => Err(failed),
        };
        let told = match told {
            Ok(told) => told,
            Err(failed) => {
                self.failures.push((member, failed));
                return false;
            }
        };
        let answer = told.answer();
        if let Some(answer) = &answer {
            self.answers.count(member, answer.clone(), Boottime.now());
        }
        self.answered += usize::from(!matches!(told, NameReply::Away(_)));
        match told {
            NameReply::Taken(lease, held) => self.held.push((lease, *held)),
            NameReply::Away(away) => self.away.push((member, away)),
            _ => {}
        }
        if answer == Some(MemberAnswer::Yes) {
            self.taken_by.push(member);
        }
        matches!(answer, Some(MemberAnswer::Low(_) | MemberAnswer::Taken(_)))
    }
}
