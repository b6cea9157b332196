//! What the loop has to do now: holders to tell of a loss, batches and releases to send.

use std::sync::Arc;
use std::time::Duration;

use super::shard::Shard;
use super::slot::{Holding, Phase, Slot};
use super::{LeaseId, STEPS_PER_TURN, Schedule, Ticket};
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::{MAX_BATCH, Renewal};
use crate::term::{self, Instant};
use crate::watchdog::signal::Signal;

/// Leases looked at to fill a batch: enough that a few of another kind between them do not leave it half empty.
const LOOKED_AT: usize = 4 * MAX_BATCH;

/// What is to be done now. The loop carries it out, in this order.
#[derive(Debug, Default)]
pub struct Work {
    /// Holders to be told.
    pub losses: Vec<Loss>,
    /// Batches to be sent.
    pub batches: Vec<Batch>,
    /// Releases to be sent.
    pub releases: Vec<Departure>,
}

/// A lease that was lost just now.
#[derive(Debug)]
pub struct Loss {
    /// What was held.
    pub name: Name,
    /// Why it is lost.
    pub reason: LossReason,
    /// The deadline that it had; none, if it was only claimed.
    pub deadline: Option<Instant>,
    /// Cancels the holder's tokens.
    pub signal: Arc<Signal>,
}

/// Renewals to be sent together.
#[derive(Debug)]
pub struct Batch {
    /// Where the leases of its shard are.
    pub(super) shard: usize,
    /// The leases and their attempts, in the order of the renewals.
    pub tickets: Vec<Ticket>,
    /// What to send.
    pub renewals: Vec<Renewal>,
    /// Read before it is sent.
    pub sent_at: Instant,
    /// How long it may take.
    pub limit: Duration,
}

/// A release to be sent.
#[derive(Debug)]
pub struct Departure {
    /// The lease and its attempt.
    pub ticket: Ticket,
    /// What is released.
    pub name: Name,
    /// The holder that releases it.
    pub holder: Holder,
    /// How long the name is to stay taken.
    pub keep_for: Option<Duration>,
    /// How long it may take.
    pub limit: Duration,
}

impl Schedule {
    /// Returns what is to be done now: all losses, and as many batches and releases as there is room for.
    pub fn turn(&mut self, now: Instant) -> Work {
        self.turned_at = now;
        let losses = self.take_losses(now);
        let mut work = Work {
            losses,
            ..Work::default()
        };
        for shard in 0..self.shards.len() {
            work.batches.extend(self.take_batches(shard, now));
            work.releases.extend(self.take_releases(shard, now));
        }
        work
    }

    fn take_losses(&mut self, now: Instant) -> Vec<Loss> {
        let mut losses = Vec::new();
        let mut steps = STEPS_PER_TURN;
        for shard in 0..self.shards.len() {
            while steps > 0
                && let Some(id) = self.shards[shard].queues.ended(now)
            {
                steps -= 1;
                let Shard { slots, queues, .. } = &mut self.shards[shard];
                let (holding, lease) = slots[id.index()].holding_mut();
                let end = holding.end(lease);
                if end > now {
                    // There was a renewal or progress since this was armed.
                    queues.move_end(id, holding, end);
                } else {
                    let reason = holding.reason(lease, now);
                    losses.extend(self.lose(id, reason));
                }
            }
        }
        losses
    }

    fn take_batches(&mut self, shard: usize, now: Instant) -> Vec<Batch> {
        let leases = &mut self.shards[shard];
        let room = leases.batch_room();
        // What is left to be told is told first: none of it may be renewed.
        if leases.queues.ended(now).is_some() || room == 0 {
            return Vec::new();
        }
        leases.move_due(now);
        if leases.queues.has_renewal(now) {
            leases.promote_urgent(now);
        }
        (0..room)
            .map_while(|_| self.take_batch(shard, now))
            .collect()
    }

    /// The lease nearest to its deadline, and those next to it that need about as much time for an answer. What is urgent
    /// and what is not do not share a batch, or the one would cut the other's time short.
    fn take_batch(&mut self, shard: usize, now: Instant) -> Option<Batch> {
        let (picked, limit) = self.shards[shard].pick(now)?;
        let mut batch = Batch {
            shard,
            tickets: Vec::with_capacity(picked.len()),
            renewals: Vec::with_capacity(picked.len()),
            sent_at: now,
            limit,
        };
        for due in picked {
            self.shards[shard].queues.take_due(due);
            self.push_into(&mut batch, due.1);
        }
        self.shards[shard].batches_in_flight += 1;
        self.planted.skip(&mut batch, &mut self.random);
        Some(batch)
    }

    fn push_into(&mut self, batch: &mut Batch, id: LeaseId) {
        let attempt = self.next_attempt();
        let slot = self.slot_mut(id);
        slot.last_sent = batch.sent_at;
        let (holding, lease) = slot.holding_mut();
        holding.attempt = Some(attempt);
        batch.tickets.push(Ticket { id, attempt });
        let (name, ttl) = (lease.name.clone(), lease.timing.ttl());
        let token = lease.signal.token_of_grant();
        let token = token.expect("what is held was granted");
        let renewal = Renewal::new(name, lease.holder, token, ttl);
        batch.renewals.push(renewal);
    }

    fn take_releases(&mut self, shard: usize, now: Instant) -> Vec<Departure> {
        let mut departures = Vec::new();
        while self.shards[shard].release_room() > 0
            && let Some(id) = self.shards[shard].queues.take_release(now)
        {
            self.shards[shard].releases_in_flight += 1;
            departures.push(self.depart(id));
        }
        departures
    }

    /// What is to be sent for a lease that leaves, as its next attempt.
    pub(super) fn depart(&mut self, id: LeaseId) -> Departure {
        let attempt = self.next_attempt();
        let Slot { lease, phase, .. } = self.slot_mut(id);
        let Phase::Leaving(leave) = phase else {
            unreachable!("only what leaves is released");
        };
        leave.attempt = Some(attempt);
        Departure {
            ticket: Ticket { id, attempt },
            name: lease.name.clone(),
            holder: lease.holder,
            keep_for: leave.keep_for,
            limit: term::request_limit(lease.timing.ttl()),
        }
    }
}

impl Shard {
    /// Makes those renewals due whose moment has come.
    fn move_due(&mut self, now: Instant) {
        let come = self.queues.take_renewals(now, STEPS_PER_TURN);
        // In a loop of its own: the leases lie all over the memory, and so their reads overlap.
        let due = come.into_iter().map(|id| {
            let deadline = self.slots[id.index()].holding().deadline;
            (deadline, id)
        });
        let due: Vec<_> = due.collect();
        self.queues.push_due(due);
    }

    /// Makes those renewals due whose leases end soonest, when more have come than become due in one turn: what is urgent
    /// does not wait behind a backlog that came before it.
    fn promote_urgent(&mut self, now: Instant) {
        let nearest = self.queues.by_end().take(LOOKED_AT).filter_map(|id| {
            let Holding {
                renew_at, deadline, ..
            } = *self.slots[id.index()].holding();
            (renew_at <= now).then_some((id, renew_at, deadline))
        });
        for (id, renew_at, deadline) in nearest.collect::<Vec<_>>() {
            self.queues.promote(id, renew_at, deadline);
        }
    }

    /// The renewals of the next batch, and how long it may take.
    fn pick(&self, now: Instant) -> Option<(Vec<(Instant, LeaseId)>, Duration)> {
        let budget_of = |(deadline, id): &(Instant, LeaseId)| {
            let timing = &self.slots[id.index()].lease.timing;
            term::attempt_budget(timing, deadline.since(now))
        };
        let first = budget_of(&self.queues.due().next()?);
        let is_alike = |budget: Duration| budget <= first * 2 && first <= budget * 2;
        let nearest = self.queues.due().take(LOOKED_AT);
        let budgets = nearest.map(|due| (due, budget_of(&due)));
        let alike = budgets.filter(|(_, budget)| is_alike(*budget));
        let picked: Vec<_> = alike.take(MAX_BATCH).collect();
        let limit = picked.iter().map(|(_, budget)| *budget).min()?;
        Some((picked.into_iter().map(|(due, _)| due).collect(), limit))
    }
}
