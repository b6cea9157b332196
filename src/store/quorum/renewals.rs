//! Renewals of all members at once, and the repair of members that lack a lease.

use std::sync::Arc;
use std::time::Duration;

use super::planted::Planted;
use super::store::{Quorum, Shared};
use super::{Extension, Proposal, Purpose, Tally};
use crate::clock::{Boottime, Clock as _};
use crate::error::Error;
use crate::store::redis::RedisMember;
use crate::store::{Failed, Outcome, Renewal, Renewed};

/// The answers of the members to a batch.
struct Tallies {
    batch: Arc<[Renewal]>,
    each: Vec<Tally>,
    undecided: usize,
}

impl Quorum {
    pub(super) async fn renew_all(&self, batch: &[Renewal], limit: Duration) -> Renewed {
        if batch.is_empty() {
            return Renewed::new(Vec::new());
        }
        let now = Boottime.now();
        {
            let mut proposals = self.shared.proposals();
            for renewal in batch {
                proposals.note_renewal(renewal.holder, renewal.ttl, now);
            }
        }
        let batch: Arc<[Renewal]> = batch.into();
        let mut asked = self.members.ask(limit, |member| {
            let batch = batch.clone();
            async move { renewed_at(&member, &batch, limit).await }
        });
        let mut tallies = Tallies::new(batch.clone(), self.members.len());
        let (mut answered, mut failures) = (0, Vec::new());
        while tallies.undecided > 0
            && let Some((member, answer)) = asked.next().await
        {
            match answer {
                Ok(renewed) => {
                    answered += 1;
                    tallies.count(&self.shared, member, renewed);
                }
                Err(failed) => {
                    tallies.fail(member);
                    failures.push((member, failed));
                }
            }
        }
        let outcomes = tallies.outcomes(|name| self.error_of("renew", answered, &failures, name));
        let (shared, members) = (
            self.shared.clone(),
            self.members.iter().cloned().collect::<Vec<_>>(),
        );
        tallies.repair(&shared, &members);
        asked.go_on(move |member, answer| {
            if let Ok(renewed) = answer {
                tallies.count(&shared, member, renewed);
                tallies.repair_one(&shared, &members, member);
            }
        });
        Renewed::new(outcomes)
    }
}

/// Renews at one member. It fails only as a whole.
async fn renewed_at(
    member: &RedisMember,
    batch: &[Renewal],
    limit: Duration,
) -> Result<Renewed, Failed> {
    let renewed = member.renew(batch, limit).await;
    let failed = renewed.outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Unknown(error) => Some(error.clone()),
        _ => None,
    });
    match failed {
        Some(error)
            if renewed
                .outcomes
                .iter()
                .all(|outcome| matches!(outcome, Outcome::Unknown(_))) =>
        {
            Err(Failed::perhaps(error))
        }
        _ => Ok(renewed),
    }
}

impl Tallies {
    fn new(batch: Arc<[Renewal]>, members: usize) -> Self {
        Self {
            each: vec![Tally::new(members, Planted::default()); batch.len()],
            undecided: batch.len(),
            batch,
        }
    }

    fn count(&mut self, shared: &Shared, member: usize, renewed: Renewed) {
        if let Some(time) = renewed.server_time {
            let clock_us = super::micros(time);
            shared
                .proposer()
                .note_clock(member, clock_us, Boottime.now());
        }
        let answers = renewed.outcomes.iter().map(|outcome| match outcome {
            Outcome::Renewed => Extension::Renewed,
            Outcome::Refused => Extension::Refused,
            Outcome::Evicted => Extension::Evicted,
            Outcome::Unknown(_) => Extension::Unknown,
        });
        self.count_each(member, answers);
    }

    fn fail(&mut self, member: usize) {
        self.count_each(member, std::iter::repeat(Extension::Unknown));
    }

    fn count_each(&mut self, member: usize, answers: impl Iterator<Item = Extension>) {
        for (tally, answer) in self.each.iter_mut().zip(answers) {
            let was_open = tally.outcome().is_none();
            tally.count(member, answer);
            self.undecided -= usize::from(was_open && tally.outcome().is_some());
        }
    }

    fn outcomes(&self, error: impl Fn(&crate::name::Name) -> Error) -> Vec<Outcome> {
        let each = self.batch.iter().zip(&self.each);
        each.map(|(renewal, tally)| match tally.close() {
            Extension::Renewed => Outcome::Renewed,
            Extension::Refused => Outcome::Refused,
            Extension::Evicted => Outcome::Evicted,
            Extension::Unknown => Outcome::Unknown(error(&renewal.name)),
        })
        .collect()
    }

    /// Puts each lease back at the members that lack it, in tasks.
    fn repair(&self, shared: &Arc<Shared>, members: &[Arc<RedisMember>]) {
        for member in 0..members.len() {
            self.repair_one(shared, members, member);
        }
    }

    fn repair_one(&self, shared: &Arc<Shared>, members: &[Arc<RedisMember>], member: usize) {
        for (renewal, tally) in self.batch.iter().zip(&self.each) {
            if !tally.to_repair().any(|to_repair| to_repair == member) {
                continue;
            }
            let Some(info) = shared.proposals().info(renewal.holder) else {
                continue;
            };
            let (member, renewal) = (members[member].clone(), renewal.clone());
            let limit = shared.connect_timeout;
            shared.counts.repaired();
            tokio::spawn(async move {
                let proposal = Proposal {
                    holder: renewal.holder,
                    token: renewal.token,
                    ttl: renewal.ttl,
                    purpose: Purpose::Repair,
                };
                // What it answers counts for nothing: the next renewal finds the lease there, or not.
                let _ = member.hold(&renewal.name, &proposal, &info, limit).await;
            });
        }
    }
}
