//! One request of the protocol to several members: all are asked at once, their answers are counted as they come, and a
//! task handles those that come after the decision.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;

use super::Quorum;
use super::connection::{Act, Failures, NameAnswer, NameRequest, PAUSE, Poll, SeenLease};
use super::failure::Failure;
use super::known::{KnownQuorum, nap};
use super::protocol::{Answers, MemberAnswer};
use crate::clock::{Boottime, Clock as _, Instant};
use crate::store::kit::budget::Budget;
use crate::store::{Failed, Sent};

/// The members' answers for one name.
pub(super) type ToldLeases = Answers<Box<SeenLease>>;

/// A request that is under way.
pub(super) struct Round {
    quorum: Quorum,
    known: Arc<KnownQuorum>,
    act: Act,
    asked: Arc<[NameRequest]>,
    pub(super) poll: Poll<Vec<NameAnswer>>,
    pub(super) votes: Votes,
    /// Pairs of a name and a member: the member knows that a majority has the name.
    vouched: BTreeSet<(usize, usize)>,
}

/// The answers of the members.
#[derive(Default)]
pub(super) struct Votes {
    /// For each name.
    pub(super) each: Vec<ToldLeases>,
    pub(super) failures: Failures,
    /// Time until a majority had answered, if one has.
    pub(super) took: Option<Duration>,
}

impl Quorum {
    /// Asks these members.
    pub(super) fn begin(
        &self,
        known: &Arc<KnownQuorum>,
        act: Act,
        asked: Vec<NameRequest>,
        members: impl IntoIterator<Item = usize>,
        limit: Duration,
    ) -> Round {
        let (asked, now): (Arc<[_]>, _) = (asked.into(), Boottime.now());
        let poll = self.members.ask(members, limit, |index, member| {
            let (asked, id) = (asked.clone(), known.id(index));
            async move { member.ask(id, act, &asked, limit).await }
        });
        let counts_until = |asked: &NameRequest| match act {
            Act::Claim | Act::Renew => now.after(asked.ttl),
            Act::Release | Act::TakeBack | Act::Evict | Act::Inspect => Instant::FAR_FUTURE,
        };
        let answers = |asked| Answers::new(self.members.len(), counts_until(asked));
        let each = asked.iter().map(answers).collect();
        Round {
            quorum: self.clone(),
            known: known.clone(),
            act,
            asked,
            poll,
            votes: Votes {
                each,
                ..Votes::default()
            },
            vouched: BTreeSet::new(),
        }
    }

    /// Asks all members, and returns what a majority answered, or more. Each lease that a majority has is at one of
    /// them. If another lease is in the way, or a member is away, waits for the others, too.
    pub(super) async fn by_majority(
        &self,
        act: Act,
        asked: Vec<NameRequest>,
        budget: Budget,
    ) -> Result<Votes, Failure> {
        let known = self.known(budget.left()).await?;
        let enough = self.members.majority();
        let mut round = self.begin(&known, act, asked, self.members.all(), budget.left());
        if act == Act::Inspect {
            round.poll.hurry(None);
        }
        let is_open = |answers: &ToldLeases| {
            let settled = answers.taking_part() - answers.taken().count();
            let freed = answers.yes().count();
            // A member that had nothing to free may never have had the lease, so this waits for the others, too.
            settled < enough || 0 < freed && freed < enough
        };
        while round.votes.each.iter().any(is_open) && round.next().await.is_some() {}
        let answered = round.poll.answered;
        let votes = round.close();
        match answered >= enough {
            true => Ok(votes),
            false => Err(Failure::too_few(&self.members, answered, &votes.failures)),
        }
    }

    /// Does the same for one name.
    pub(super) async fn of_majority(
        &self,
        act: Act,
        asked: NameRequest,
        budget: Budget,
    ) -> Result<ToldLeases, Failure> {
        let mut votes = self.by_majority(act, vec![asked], budget).await?;
        let told = votes.answers().told().count();
        match told >= self.members.majority() {
            true => Ok(votes.each.swap_remove(0)),
            false => Err(Failure::too_few(&self.members, told, &votes.failures)),
        }
    }

    /// Spawns a task that repeats unconfirmed releases until the member confirms them or nothing is left to free.
    fn owe(&self, member: usize, asked: &Arc<[NameRequest]>, known: &KnownQuorum) {
        let releasing = self.members[member].releasing.clone();
        let Ok(permit) = releasing.try_acquire_owned() else {
            return;
        };
        let until = Boottime.now().after(known.max_ttl);
        let (id, limit) = (known.id(member), self.members.connect_timeout());
        let (member, asked) = (self.members[member].clone(), asked.clone());
        tokio::spawn(async move {
            let _permit = permit;
            while Boottime.now() < until {
                nap(PAUSE).await;
                if member.ask(id, Act::Release, &asked, limit).await.is_ok() {
                    break;
                }
            }
        });
    }
}

impl Round {
    /// Counts the next answer, and returns its member. `None` if no more answers come in time.
    pub(super) async fn next(&mut self) -> Option<usize> {
        let (member, answer) = self.poll.next().await?;
        self.count(member, answer);
        Some(member)
    }

    /// Spawns a task that waits for the missing answers.
    pub(super) fn go_on(mut self) {
        if self.poll.pending.is_empty() {
            return;
        }
        tokio::spawn(async move {
            while let Some((member, answer)) = self.poll.pending.next().await {
                self.count(member, answer);
            }
        });
    }

    /// Does the same, and returns the answers until now.
    pub(super) fn close(mut self) -> Votes {
        let mut votes = std::mem::take(&mut self.votes);
        votes.took = self.poll.took;
        self.go_on();
        votes
    }

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
        if let Some(Ok(MemberAnswer::Absent(absence))) = told.first() {
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

    /// Spawns tasks that vouch for the leases of a majority at the members where the name is free.
    fn vouch(&mut self, now: Instant) {
        let quorum = &self.quorum;
        let mut at: Vec<Vec<NameRequest>> = vec![Vec::new(); quorum.members.len()];
        for (index, (asked, answers)) in self.asked.iter().zip(&self.votes.each).enumerate() {
            for (member, mark) in answers.to_vouch(now) {
                if self.vouched.insert((index, member)) {
                    let memory = quorum.shared.granted.lock();
                    at[member].push(NameRequest {
                        mark: Some(mark),
                        info: memory.of(asked.holder).and_then(|it| it.info.clone()),
                        ..asked.clone()
                    });
                }
            }
        }
        let at = at.into_iter().enumerate();
        for (index, batch) in at.filter(|(_, batch)| !batch.is_empty()) {
            let (member, id) = (quorum.members[index].clone(), self.known.id(index));
            let (limit, counts) = (quorum.members.connect_timeout(), quorum.shared.counts);
            tokio::spawn(async move {
                // If something has happened since, the next renewal learns the new mark.
                let told = member.ask(id, Act::Renew, &batch, limit).await;
                let told = told.unwrap_or_default().into_iter();
                told.filter(|told| matches!(told, Ok(MemberAnswer::Yes)))
                    .for_each(|_| counts.repaired());
            });
        }
    }
}

impl Votes {
    /// Returns whether this member failed in this way.
    pub(super) fn has_failed(&self, member: usize, sent: Sent) -> bool {
        let mut failures = self.failures.iter();
        failures.any(|(of, failed)| *of == member && failed.sent == sent)
    }

    /// Returns the answers for the only name.
    pub(super) fn answers(&self) -> &ToldLeases {
        &self.each[0]
    }
}
