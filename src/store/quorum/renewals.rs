//! Renewals of all members at once, and the repair of members that lack a lease.

use std::sync::Arc;
use std::time::Duration;

use super::known::KnownQuorum;
use super::members::{Act, NameReply, NameRequest};
use super::protocol::{Answers, RenewalOutcome};
use super::store::Quorum;
use crate::clock::{Boottime, Clock as _, Instant};
use crate::store::{Failed, Outcome, Renewal, Renewed};

/// The answers of the members to a batch.
struct Tallies {
    batch: Arc<[Renewal]>,
    each: Vec<Answers<String>>,
    /// Says which members were told for each that a majority has it.
    vouched: Vec<Vec<bool>>,
}

impl Quorum {
    pub(super) async fn renew_all(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        if batch.is_empty() {
            return Renewed::new(Vec::new());
        }
        let known = match self.known("renew", limit).await {
            Ok(known) => known,
            Err(Failed { error, .. }) => {
                let outcomes = batch.iter().map(|_| Outcome::Unknown(error.clone()));
                return Renewed::new(outcomes.collect());
            }
        };
        let now = Boottime.now();
        {
            let mut memory = self.shared.memory();
            for renewal in batch {
                memory.extend(renewal.holder, now.after(known.max_ttl * 2));
            }
        }
        let asked: Arc<[NameRequest]> = batch.iter().map(|renewal| asked(renewal, None)).collect();
        let mut poll = self.members.ask(limit, |index, member| {
            let (asked, id) = (asked.clone(), known.id(index));
            async move { member.ask(id, Act::Renew, &asked, limit).await }
        });
        let mut tallies = Tallies::new(batch, self.members.len(), now);
        let (mut answered, mut failures) = (0, Vec::new());
        while tallies.is_open()
            && let Some((member, answer)) = poll.next().await
        {
            match answer {
                Ok(told) => {
                    answered += 1;
                    tallies.count(self, &known, member, told);
                }
                Err(failed) => failures.push((member, failed)),
            }
        }
        let outcomes = tallies.outcomes(|name| self.error_of("renew", answered, &failures, name));
        tallies.vouch(self, &known);
        let quorum = self.share();
        poll.go_on(move |member, answer| {
            if let Ok(told) = answer {
                tallies.count(&quorum, &known, member, told);
                tallies.vouch(&quorum, &known);
            }
        });
        Renewed::new(outcomes)
    }
}

impl Tallies {
    fn new(batch: &[Renewal], members: usize, now: Instant) -> Self {
        let answers = |renewal: &Renewal| Answers::new(members, now.after(renewal.ttl));
        Self {
            each: batch.iter().map(answers).collect(),
            vouched: vec![vec![false; members]; batch.len()],
            batch: batch.into(),
        }
    }

    fn count(&mut self, quorum: &Quorum, known: &KnownQuorum, member: usize, told: Vec<NameReply>) {
        let now = Boottime.now();
        if let Some(NameReply::Away(away)) = told.first() {
            quorum.care_for(member, away, known);
        }
        for (answers, told) in self.each.iter_mut().zip(told) {
            if let Some(answer) = told.answer() {
                answers.count(member, answer, now);
            }
        }
    }

    fn is_open(&self) -> bool {
        let mut each = self.batch.iter().zip(&self.each);
        each.any(|(renewal, answers)| answers.renewing(renewal.holder) == RenewalOutcome::Unknown)
    }

    fn outcomes(&self, error: impl Fn(&crate::name::Name) -> crate::error::Error) -> Vec<Outcome> {
        let each = self.batch.iter().zip(&self.each);
        each.map(
            |(renewal, answers)| match answers.renewing(renewal.holder) {
                RenewalOutcome::Renewed => Outcome::Renewed,
                RenewalOutcome::Refused => Outcome::Refused,
                RenewalOutcome::Evicted => Outcome::Evicted,
                RenewalOutcome::Unknown => Outcome::Unknown(error(&renewal.name)),
            },
        )
        .collect()
    }

    /// Vouches for the leases that a majority has, at the members where the name is free, in tasks.
    fn vouch(&mut self, quorum: &Quorum, known: &KnownQuorum) {
        let now = Boottime.now();
        let mut at: Vec<Vec<NameRequest>> = vec![Vec::new(); quorum.members.len()];
        for (index, (renewal, answers)) in self.batch.iter().zip(&self.each).enumerate() {
            for (member, mark) in answers.to_vouch(now) {
                if !std::mem::replace(&mut self.vouched[index][member], true) {
                    at[member].push(asked(renewal, Some((quorum, mark))));
                }
            }
        }
        for (index, batch) in at
            .into_iter()
            .enumerate()
            .filter(|(_, batch)| !batch.is_empty())
        {
            let (member, id) = (quorum.members.get(index).clone(), known.id(index));
            let (limit, counts) = (quorum.shared.connect_timeout, quorum.shared.counts);
            tokio::spawn(async move {
                // Where something has happened since, the next renewal is told the new mark.
                let told = member
                    .ask(id, Act::Renew, &batch, limit)
                    .await
                    .unwrap_or_default();
                let taken = told.iter().filter(|told| matches!(told, NameReply::Yes));
                taken.for_each(|_| counts.repaired());
            });
        }
    }
}

fn asked(renewal: &Renewal, vouched: Option<(&Quorum, u64)>) -> NameRequest {
    let info = vouched.and_then(|(quorum, _)| {
        let memory = quorum.shared.memory();
        memory.last(renewal.holder).map(|last| last.info.clone())
    });
    NameRequest {
        name: renewal.name.clone(),
        holder: renewal.holder,
        token: renewal.token,
        ttl: renewal.ttl,
        info,
        mark: vouched.map(|(_, mark)| mark),
    }
}
