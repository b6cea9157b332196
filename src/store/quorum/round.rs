//! One request of the protocol to several members: all are asked at once, their answers are counted as they come, and
//! what comes after the decision is seen to in a task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::known::KnownQuorum;
use super::members::{Act, Failures, NameAnswer, NameRequest, Poll, SeenLease};
use super::protocol::{Answers, MemberAnswer};
use super::store::Quorum;
use crate::clock::{Boottime, Clock as _, Instant};
use crate::store::Failed;

/// A request that is under way.
pub(super) struct Round {
    pub(super) poll: Poll<Vec<NameAnswer>>,
    tally: Tally,
}

/// The answers of the members.
#[derive(Default)]
pub(super) struct Votes {
    /// For each name.
    pub(super) each: Vec<Answers<Box<SeenLease>>>,
    pub(super) failures: Failures,
    /// Time until a majority had answered, if one has.
    pub(super) took: Option<Duration>,
}

/// The function that takes each answer.
struct Tally {
    quorum: Quorum,
    known: KnownQuorum,
    act: Act,
    asked: Arc<[NameRequest]>,
    votes: Votes,
    /// Which members were told for which name that a majority has it.
    vouched: BTreeSet<(usize, usize)>,
}

impl Round {
    /// Asks these members.
    pub(super) fn begin(
        quorum: &Quorum,
        known: &KnownQuorum,
        act: Act,
        asked: Vec<NameRequest>,
        members: impl IntoIterator<Item = usize>,
        limit: Duration,
    ) -> Self {
        let (asked, now): (Arc<[_]>, _) = (asked.into(), Boottime.now());
        let poll = quorum.members.ask(members, limit, |index, member| {
            let (asked, id) = (asked.clone(), known.id(index));
            async move { member.ask(id, act, &asked, limit).await }
        });
        let counts_until = |asked: &NameRequest| match act {
            Act::Claim | Act::Renew => now.after(asked.ttl),
            Act::Release | Act::TakeBack | Act::Evict => Instant::FAR_FUTURE,
        };
        let answers = |asked| Answers::new(quorum.members.len(), counts_until(asked));
        let votes = Votes {
            each: asked.iter().map(answers).collect(),
            ..Votes::default()
        };
        let tally = Tally {
            quorum: quorum.share(),
            known: known.clone(),
            act,
            votes,
            asked,
            vouched: BTreeSet::new(),
        };
        Self { poll, tally }
    }

    /// Counts the next answer, and returns its member. `None` if no more is to come in time.
    pub(super) async fn next(&mut self) -> Option<usize> {
        let (member, answer) = self.poll.next().await?;
        self.tally.count(member, answer);
        Some(member)
    }

    pub(super) const fn votes(&self) -> &Votes {
        &self.tally.votes
    }

    /// Returns how many members have answered.
    pub(super) const fn answered(&self) -> usize {
        self.poll.answered
    }

    /// Lets the members answer that have not, in a task.
    pub(super) fn go_on(self) {
        let mut tally = self.tally;
        self.poll
            .go_on(move |member, answer| tally.count(member, answer));
    }

    /// Does the same, and returns what was answered until now.
    pub(super) fn close(mut self) -> Votes {
        let mut votes = std::mem::take(&mut self.tally.votes);
        votes.took = self.poll.took();
        self.go_on();
        votes
    }
}

impl Votes {
    /// Returns the answers for the only name.
    pub(super) fn answers(&self) -> &Answers<Box<SeenLease>> {
        &self.each[0]
    }
}

impl Tally {
    fn count(&mut self, member: usize, answer: Result<Vec<NameAnswer>, Failed>) {
        let told = match answer {
            Ok(told) => told,
            Err(failed) => {
                if matches!(self.act, Act::Release | Act::TakeBack) {
                    self.quorum.owe(member, &self.asked, &self.known);
                }
                self.votes.failures.push((member, failed));
                return;
            }
        };
        let now = Boottime.now();
        if let Some(Ok(MemberAnswer::Away(absence))) = told.first() {
            self.quorum.care_for(member, *absence, &self.known);
        }
        for (answers, told) in self.votes.each.iter_mut().zip(told) {
            match told {
                Ok(answer) => answers.count(member, answer, now),
                Err(error) => self.votes.failures.push((member, Failed::answered(error))),
            }
        }
        if self.act == Act::Renew {
            self.vouch(now);
        }
    }

    /// Vouches for the leases that a majority has, at the members where the name is free, in tasks.
    fn vouch(&mut self, now: Instant) {
        let quorum = &self.quorum;
        let mut at: Vec<Vec<NameRequest>> = vec![Vec::new(); quorum.members.len()];
        for (index, (asked, answers)) in self.asked.iter().zip(&self.votes.each).enumerate() {
            for (member, mark) in answers.to_vouch(now) {
                if self.vouched.insert((index, member)) {
                    let memory = quorum.shared.memory();
                    at[member].push(NameRequest {
                        info: memory.last(asked.holder).map(|last| last.info.clone()),
                        mark: Some(mark),
                        ..asked.clone()
                    });
                }
            }
        }
        let at = at.into_iter().enumerate();
        for (index, batch) in at.filter(|(_, batch)| !batch.is_empty()) {
            let (member, id) = (quorum.members[index].clone(), self.known.id(index));
            let (limit, counts) = (quorum.shared.connect_timeout, quorum.shared.counts);
            tokio::spawn(async move {
                // Where something has happened since, the next renewal is told the new mark.
                let told = member.ask(id, Act::Renew, &batch, limit).await;
                let told = told.unwrap_or_default();
                let taken = told
                    .iter()
                    .filter(|told| matches!(told, Ok(MemberAnswer::Yes)));
                taken.for_each(|_| counts.repaired());
            });
        }
    }
}
