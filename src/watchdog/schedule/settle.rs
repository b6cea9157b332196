//! Applies the outcomes of renewals to the schedule.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::shard::Shard;
use super::slot::Phase;
use super::{Batch, LeaseId, Schedule, Ticket};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::{Outcome, Renewed};
use crate::telemetry::{self, LeaseLabel, RenewalStats};
use crate::term::{Instant, Timing};
use crate::watchdog::server_time::{Finding, Reading};
use crate::watchdog::signal::Signal;

/// A lease that a task may wait for.
#[derive(Debug)]
pub struct Awaited {
    /// The name that is held.
    pub name: Name,
    /// Wakes the task.
    pub signal: Arc<Signal>,
}

impl Schedule {
    /// Applies the reply to a batch that is in flight. Leases that a short reply leaves out got no answer.
    pub fn settle(&mut self, batch: &Batch, reply: Renewed, now: Instant) -> RenewalStats {
        let sent_to = self.index_of(batch.shard);
        let in_flight = &mut self.shards[sent_to].batches_in_flight;
        *in_flight = in_flight.saturating_sub(1);
        self.take_in(batch, reply, now)
    }

    /// Records that a batch got no answer within its limit, so its leases need another renewal. It is no longer in
    /// flight, but its answer may still come.
    pub fn overdue(&mut self, batch: &Batch, now: Instant) -> RenewalStats {
        self.effects.must_wake = true;
        self.settle(batch, Renewed::new(Vec::new()), now)
    }

    /// Takes in the reply to a batch that was overdue. It counts from when the batch was sent, unless a later one was
    /// confirmed before: a slow line is not a dead server.
    pub fn settle_late(&mut self, batch: &Batch, reply: Renewed, now: Instant) -> RenewalStats {
        self.take_in(batch, reply, now)
    }

    fn take_in(&mut self, batch: &Batch, mut reply: Renewed, now: Instant) -> RenewalStats {
        let mut stats = RenewalStats {
            size: batch.tickets.len(),
            took: now.since(batch.sent_at),
            ..RenewalStats::default()
        };
        let sent_to = self.index_of(batch.shard);
        reply.outcomes.resize_with(batch.tickets.len(), unanswered);
        let sent_at = self.take_server_time(batch, &reply, now, &mut stats);
        let is_unknown = |outcome: &Outcome| matches!(outcome, Outcome::Unknown(_));
        self.shards[sent_to].has_failed |= reply.outcomes.iter().any(is_unknown);
        // All are read before any is changed. They lie all over the memory: reads of them overlap, while each change
        // would wait for its own.
        let tickets = batch.tickets.iter();
        let deadlines: Vec<_> = tickets.map(|ticket| self.deadline_of(*ticket)).collect();
        let answers = batch.tickets.iter().zip(deadlines).zip(reply.outcomes);
        for ((&ticket, deadline), outcome) in answers {
            let (id, Some(deadline)) = (ticket.id, deadline) else {
                continue;
            };
            let lost = match outcome {
                Outcome::Renewed => deadline
                    .and_then(|_| self.renewed(ticket, sent_at, now, &mut stats))
                    .err(),
                Outcome::Refused => Some(LossReason::Refused),
                Outcome::Evicted => Some(LossReason::Evicted),
                Outcome::Unknown(error) => {
                    if self.renew_again(ticket, batch.sent_at, now) {
                        stats.unknown += 1;
                        stats.first_error.get_or_insert(error);
                    }
                    None
                }
            };
            if let Some(reason) = lost {
                stats.refused += 1;
                self.lose(id, reason);
            }
        }
        stats
    }

    /// Takes what the server's clock gained on ours off the deadlines, before what this reply confirms is counted.
    /// Returns from when that is counted.
    ///
    /// The clock belongs to the server that answered. The leases that it confirmed move to that server's shard,
    /// whichever shard the batch was sent to: clocks of two servers are never compared.
    fn take_server_time(
        &mut self,
        batch: &Batch,
        reply: &Renewed,
        now: Instant,
        stats: &mut RenewalStats,
    ) -> Instant {
        let Some(shown) = reply.server_time else {
            return batch.sent_at;
        };
        let outcomes = &reply.outcomes;
        self.follow_confirmed(batch, outcomes, shown.shard);
        let reading = Reading {
            sent_at: batch.sent_at,
            seen_at: now,
            server: shown.time,
        };
        let server = self.index_of(shown.shard);
        let shard = &mut self.shards[server];
        // Judged by all leases that a step would harm, not only by those in this batch.
        let tolerance = shard.timings.least_margin();
        let memory = shard.timings.longest_ttl();
        // Where nothing is held there is no margin, and drift alone looks like a step.
        let is_concerned = !memory.is_zero();
        match shard.server.read(reading, tolerance, memory) {
            Finding::Alike => {}
            Finding::Forward(by) => {
                let confirmed = self.confirmed_by(batch, outcomes).collect();
                self.shorten(server, by, &confirmed);
                stats.step = is_concerned.then_some(("forward", by));
            }
            Finding::Backward(by) => {
                stats.step = is_concerned.then_some(("backward", by));
            }
            Finding::Before(by) => return batch.sent_at.before(by),
        }
        batch.sent_at
    }

    /// Moves the leases that this reply confirms to the shard of the server that answered.
    fn follow_confirmed(&mut self, batch: &Batch, outcomes: &[Outcome], number: u32) {
        let server = self.index_of(number);
        let confirmed = self.confirmed_by(batch, outcomes);
        let elsewhere = confirmed.filter(|id| self.slot(*id).shard != server);
        for id in elsewhere.collect::<Vec<_>>() {
            self.follow(id, number);
        }
    }

    /// The leases that this reply confirms: by the new time, if it has one.
    fn confirmed_by(&self, batch: &Batch, outcomes: &[Outcome]) -> impl Iterator<Item = LeaseId> {
        let answers = batch.tickets.iter().zip(outcomes);
        let confirmed = answers.filter(|(ticket, outcome)| {
            matches!(outcome, Outcome::Renewed) && self.is_waiting_for(**ticket)
        });
        confirmed.map(|(ticket, _)| ticket.id)
    }

    /// The deadline of the lease, or why it ended, if it still waits for this attempt.
    fn deadline_of(&self, ticket: Ticket) -> Option<Result<Instant, LossReason>> {
        self.is_waiting_for(ticket)
            .then(|| self.slot(ticket.id).lease.signal.deadline())
    }

    /// Returns whether the answer to this attempt still counts.
    pub(super) fn is_waiting_for(&self, Ticket { id, attempt }: Ticket) -> bool {
        let slot = self.slots.get(id.index());
        slot.is_some_and(|slot| slot.is_waiting_for(attempt))
    }

    /// Counts a renewal that the store confirmed.
    ///
    /// # Errors
    /// Why the lease ends instead. A reply after the end, or after a `check()` saw the deadline pass, revives nothing.
    fn renewed(
        &mut self,
        Ticket { id, attempt }: Ticket,
        sent_at: Instant,
        now: Instant,
        stats: &mut RenewalStats,
    ) -> Result<(), LossReason> {
        let slot = &mut self.slots[id.index()];
        let queues = &mut self.shards[slot.shard].queues;
        let last_sent = slot.last_sent;
        let (holding, lease) = slot.holding_mut();
        let term = lease.timing.term(sent_at);
        let is_late = holding.attempt != Some(attempt);
        if !is_late {
            holding.attempt = None;
        } else if holding.attempt.is_none() {
            // It was overdue, and the next one is not sent yet.
            let is_planned = queues.renewals.remove(id, holding.renew_at);
            let _ = is_planned || queues.due.remove(id, holding.deadline);
        }
        // The armed end may be older than the last sign of progress.
        if now >= holding.end(lease) {
            return Err(holding.reason(lease, now));
        }
        lease.signal.extend(term.deadline())?;
        stats.note_renewed(lease.timing.ttl(), holding.deadline.since(now));
        holding.failures = 0;
        holding.counts_from = attempt.get() + 1;
        holding.deadline = term.deadline();
        if holding.attempt.is_none() {
            holding.renew_at = term.renew_at(false, self.random.u16(..));
            if is_late {
                // It may come so late that the next renewal is due already.
                let soonest = last_sent.after(pause(&lease.timing));
                holding.renew_at = holding.renew_at.max(soonest);
            }
            queues.renewals.insert(id, holding.renew_at);
        }
        let end = holding.end(lease);
        // An instant that is armed too early is checked again when it comes due. While it is far off, the next renewal
        // comes first.
        let is_far = holding.ends_at <= end && holding.ends_at.since(now) > lease.timing.ttl() / 2;
        if !is_far {
            queues.move_end(id, holding, end);
        }
        self.tell_renewed(id, stats);
        Ok(())
    }

    /// Reports a renewal to the log, if that shows each, and to the tasks that wait for it.
    fn tell_renewed(&mut self, id: LeaseId, stats: &mut RenewalStats) {
        let lease = &self.slots[id.index()].lease;
        if telemetry::tells_each_renewal() {
            stats.named.push(LeaseLabel {
                name: lease.name.clone(),
                token: lease.signal.token_of_grant(),
            });
        }
        self.wake_waiters(id);
    }

    /// Arms another attempt, a little after the last one left, so that a store that refuses at once is not hammered.
    /// Has no effect if this attempt is not the last one. Returns whether it was.
    fn renew_again(&mut self, ticket: Ticket, sent_at: Instant, now: Instant) -> bool {
        let Ticket { id, attempt } = ticket;
        let slot = &mut self.slots[id.index()];
        let queues = &mut self.shards[slot.shard].queues;
        if let Phase::Held(holding) = &mut slot.phase
            && holding.attempt == Some(attempt)
        {
            holding.attempt = None;
            holding.renew_at = sent_at.after(pause(&slot.lease.timing)).max(now);
            queues.renewals.insert(id, holding.renew_at);
            holding.failures += 1;
            return true;
        }
        false
    }

    /// Brings forward every deadline on this server except these, and every renewal that is still to be sent.
    fn shorten(&mut self, server: usize, by: Duration, but: &HashSet<LeaseId>) {
        let Shard { queues, .. } = &mut self.shards[server];
        let held = queues.ends.iter().filter(|(_, id)| !but.contains(id));
        for (_, id) in held.collect::<Vec<_>>() {
            let (holding, lease) = self.slots[id.index()].holding_mut();
            let renewal = queues.disarm(id, holding);
            holding.deadline = holding.deadline.before(by);
            holding.renew_at = holding.renew_at.before(by);
            holding.ends_at = holding.end(lease);
            queues.arm(id, holding, renewal);
            // A loss that was found first stands.
            let _ = lease.signal.extend(holding.deadline);
        }
    }
}

/// Returns the least time between two attempts to renew a lease.
fn pause(timing: &Timing) -> Duration {
    (timing.ttl() / 50).max(Duration::from_millis(10))
}

fn unanswered() -> Outcome {
    let what = "renew failed: the store gave no answer in time";
    Outcome::Unknown(Error::new(ErrorKind::TimedOut, what))
}
