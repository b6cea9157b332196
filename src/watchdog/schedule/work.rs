//! The work of the loop at this moment: holders that lost their leases, batches and releases to send.

use std::sync::Arc;
use std::time::Duration;

use super::shard::Shard;
use super::{LeaseId, Leaving, STEPS_PER_TURN, Schedule, Ticket};
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::{MAX_BATCH, Renewal};
use crate::term::{self, Instant};
use crate::watchdog::signal::Signal;

/// Leases examined to fill a batch: enough that a few of another kind between them do not leave it half empty.
const LOOKED_AT: usize = 4 * MAX_BATCH;

/// The work that is due now. The loop carries it out, in this order.
#[derive(Debug, Default)]
pub struct Work {
    /// Batches to be sent.
    pub batches: Vec<Batch>,
    /// Releases to be sent.
    pub releases: Vec<Leaving>,
}

/// A lease that was just lost.
#[derive(Debug)]
pub struct Loss {
    /// The name that was held.
    pub name: Name,
    /// The reason of the loss.
    pub reason: LossReason,
    /// The deadline that it had; none, if it was only claimed.
    pub deadline: Option<Instant>,
    /// Cancels the holder's tokens.
    pub signal: Arc<Signal>,
}

/// Renewals to be sent together.
#[derive(Debug)]
pub struct Batch {
    /// The shard to which it counts, as the store calls it.
    pub shard: u32,
    /// The leases and their attempts, in the order of the renewals.
    pub tickets: Vec<Ticket>,
    /// The renewals to send.
    pub renewals: Vec<Renewal>,
    /// Read before it is sent.
    pub sent_at: Instant,
    /// The time without an answer after which it is [overdue](Schedule::overdue): its leases are renewed again.
    pub limit: Duration,
    /// How long to wait for its answer: up to the last deadline of its leases.
    pub awaited: Duration,
}

impl Schedule {
    /// Ends the leases whose time is up. Returns the requests that are due: as many batches and releases as there is
    /// room for. `shard_of` is the store's number of the part that keeps a name.
    pub fn turn(&mut self, now: Instant, shard_of: impl Fn(&Name) -> u32) -> Work {
        self.turned_at = now;
        self.end_leases(now);
        for shard in 0..self.shards.len() {
            if std::mem::take(&mut self.shards[shard].has_failed) {
                let queues = &self.shards[shard].queues;
                let waiting = queues.due.iter().chain(queues.releases.iter());
                let waiting: Vec<_> = waiting.map(|(_, id)| id).collect();
                self.follow_all(waiting, &shard_of);
            }
            self.move_due(shard, now, &shard_of);
        }
        let mut work = Work::default();
        for shard in 0..self.shards.len() {
            work.batches.extend(self.take_batches(shard, now));
            let releases = self.take_releases(shard, now, &shard_of);
            work.releases.extend(releases);
        }
        work
    }

    /// Ends the leases whose end has come.
    fn end_leases(&mut self, now: Instant) {
        let mut steps = STEPS_PER_TURN;
        for shard in 0..self.shards.len() {
            while steps > 0
                && let Some(id) = self.shards[shard].queues.ends.first_until(now)
            {
                steps -= 1;
                let (slot, Shard { queues, .. }) = self.with_shard(id);
                let (holding, lease) = slot.holding_mut();
                let end = holding.end(lease);
                if end > now {
                    // There was a renewal or progress since this was armed.
                    queues.move_end(id, holding, end);
                } else {
                    let reason = holding.reason(lease, now);
                    self.lose(id, reason);
                }
            }
        }
    }

    /// Moves renewals whose moment has come to the due queues of the shards that keep their names now. When more have
    /// come than become due in one turn, those whose leases end soonest are among them: what is urgent does not wait
    /// behind a backlog that came before it.
    fn move_due(&mut self, shard: usize, now: Instant, shard_of: &impl Fn(&Name) -> u32) {
        let queues = &mut self.shards[shard].queues;
        let next = std::iter::from_fn(|| queues.renewals.pop_until(now));
        let mut come: Vec<_> = next.take(STEPS_PER_TURN).collect();
        if queues.renewals.first_until(now).is_some() {
            let nearest = queues.ends.iter().take(LOOKED_AT).map(|(_, id)| id);
            let urgent = nearest.filter(|id| {
                let renew_at = self.slots[id.index()].holding().renew_at;
                renew_at <= now && queues.renewals.remove(*id, renew_at)
            });
            come.extend(urgent);
        }
        self.follow_all(come.iter().copied(), shard_of);
        // In a separate loop, so that the reads of leases that lie all over the memory overlap.
        let due = come.into_iter().map(|id| {
            let slot = &self.slots[id.index()];
            (slot.shard, slot.holding().deadline, id)
        });
        for (shard, deadline, id) in due.collect::<Vec<_>>() {
            self.shards[shard].queues.due.insert(id, deadline);
        }
    }

    /// Moves the leases whose names are kept elsewhere by now.
    fn follow_all(
        &mut self,
        ids: impl IntoIterator<Item = LeaseId>,
        shard_of: &impl Fn(&Name) -> u32,
    ) {
        for id in ids {
            let slot = &self.slots[id.index()];
            let number = shard_of(&slot.lease.name);
            if number != self.shards[slot.shard].number {
                self.follow(id, number);
            }
        }
    }

    fn take_batches(&mut self, shard: usize, now: Instant) -> Vec<Batch> {
        let leases = &self.shards[shard];
        // Pending losses are reported first: none of these leases may be renewed.
        if leases.queues.ends.first_until(now).is_some() {
            return Vec::new();
        }
        (0..leases.batch_room())
            .map_while(|_| self.take_batch(shard, now))
            .collect()
    }

    /// The lease nearest to its deadline, and those next to it that need about as much time for an answer. What is
    /// urgent and what is not do not share a batch, or the one would cut the other's time short.
    fn take_batch(&mut self, shard: usize, now: Instant) -> Option<Batch> {
        let (picked, limit) = self.pick(shard, now)?;
        let mut batch = Batch {
            shard: self.shards[shard].number,
            tickets: Vec::with_capacity(picked.len()),
            renewals: Vec::with_capacity(picked.len()),
            sent_at: now,
            limit,
            awaited: picked
                .iter()
                .map(|(deadline, _)| deadline.since(now))
                .max()?
                .max(limit),
        };
        for (deadline, id) in picked {
            self.shards[shard].queues.due.remove(id, deadline);
            self.push_into(&mut batch, id);
        }
        self.shards[shard].batches_in_flight += 1;
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
        let renewal = Renewal::new(name, lease.holder, token, ttl);
        batch.renewals.push(renewal);
    }

    fn take_releases(
        &mut self,
        shard: usize,
        now: Instant,
        shard_of: &impl Fn(&Name) -> u32,
    ) -> Vec<Leaving> {
        let mut releases = Vec::new();
        while self.shards[shard].has_release_room()
            && let Some(id) = self.shards[shard].queues.releases.first_until(now)
        {
            self.follow_all([id], shard_of);
            let is_here = self.slot(id).shard == shard;
            if is_here {
                self.shards[shard].queues.releases.pop_until(now);
                self.shards[shard].releases_in_flight += 1;
                releases.push(self.depart(id, true));
            }
        }
        releases
    }

    /// The renewals of a shard's next batch, and how long it may take.
    fn pick(&self, shard: usize, now: Instant) -> Option<(Vec<(Instant, LeaseId)>, Duration)> {
        let queues = &self.shards[shard].queues;
        let budget_of = |(deadline, id): &(Instant, LeaseId)| {
            let timing = &self.slots[id.index()].lease.timing;
            term::attempt_budget(timing, deadline.since(now))
        };
        let first = budget_of(&queues.due.iter().next()?);
        let is_alike = |budget: Duration| budget <= first * 2 && first <= budget * 2;
        let nearest = queues.due.iter().take(LOOKED_AT);
        let budgets = nearest.map(|due| (due, budget_of(&due)));
        let alike = budgets.filter(|(_, budget)| is_alike(*budget));
        let picked: Vec<_> = alike.take(MAX_BATCH).collect();
        let limit = picked.iter().map(|(_, budget)| *budget).min()?;
        Some((picked.into_iter().map(|(due, _)| due).collect(), limit))
    }
}
