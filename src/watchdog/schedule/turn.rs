//! What is due: holders to be told, batches to be sent, releases to be sent.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::{Key, Phase, STEPS_PER_TURN, Schedule};
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
pub struct Turn {
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
    /// Through which the holder is told.
    pub signal: Arc<Signal>,
}

/// Renewals to be sent together.
#[derive(Debug)]
pub struct Batch {
    /// The entries and their attempts, in the order of the renewals.
    pub tickets: Vec<(Key, u64)>,
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
    /// The entry and its attempt.
    pub ticket: (Key, u64),
    /// What is released.
    pub name: Name,
    /// Whose it was.
    pub holder: Holder,
    /// How long the name is to stay taken.
    pub keep_for: Option<Duration>,
    /// How long it may take.
    pub limit: Duration,
}

impl Schedule {
    /// What is to be done now, with so much room for further batches and releases.
    pub fn turn(&mut self, now: Instant, batch_room: usize, release_room: usize) -> Turn {
        Turn {
            losses: self.take_losses(now),
            batches: self.take_batches(now, batch_room),
            releases: self.take_releases(now, release_room),
        }
    }

    fn take_losses(&mut self, now: Instant) -> Vec<Loss> {
        let mut losses = Vec::new();
        for _ in 0..STEPS_PER_TURN {
            let Some(&(at, key)) = self.ends.first().filter(|(at, _)| *at <= now) else {
                break;
            };
            let entry = &mut self.entries[key];
            let Phase::Held(hold) = &mut entry.phase else {
                unreachable!("only what is held stands in `ends`");
            };
            let end = hold.end(entry.bounds.as_deref(), &entry.signal);
            if end > now {
                // There was a renewal or progress since this was armed.
                hold.ends_at = end;
                self.ends.remove(&(at, key));
                self.ends.insert((end, key));
            } else {
                let reason = hold.reason(entry.bounds.as_deref(), now);
                losses.extend(self.lose(key, reason));
            }
        }
        losses
    }

    fn take_batches(&mut self, now: Instant, room: usize) -> Vec<Batch> {
        // What is left to be told is told first: none of it may be renewed.
        let has_lost = self.ends.first().is_some_and(|(at, _)| *at <= now);
        if has_lost || room == 0 {
            return Vec::new();
        }
        self.fall_due(now);
        if self.renewals.first().is_some_and(|(at, _)| *at <= now) {
            self.hasten(now);
        }
        (0..room).map_while(|_| self.take_batch(now)).collect()
    }

    fn fall_due(&mut self, now: Instant) {
        let mut fallen = Vec::new();
        while fallen.len() < STEPS_PER_TURN
            && let Some(&(at, key)) = self.renewals.first()
            && at <= now
        {
            self.renewals.pop_first();
            fallen.push(key);
        }
        // In a loop of its own: the entries lie all over the memory, and so their reads overlap.
        let deadlines = fallen.into_iter().map(|key| {
            let Phase::Held(hold) = &self.entries[key].phase else {
                unreachable!("only what is held stands in `renewals`");
            };
            (hold.deadline, key)
        });
        let deadlines: Vec<_> = deadlines.collect();
        self.due.extend(deadlines);
    }

    /// Has renewals fall due out of their turn whose leases end soonest, when more are waiting to than fall in one turn:
    /// what is urgent does not wait behind a backlog that was due before it.
    fn hasten(&mut self, now: Instant) {
        let nearest = self.ends.iter().take(LOOKED_AT).filter_map(|&(_, key)| {
            let Phase::Held(hold) = &self.entries[key].phase else {
                unreachable!("only what is held stands in `ends`");
            };
            (hold.renew_at <= now).then_some((hold.renew_at, hold.deadline, key))
        });
        for (renew_at, deadline, key) in nearest.collect::<Vec<_>>() {
            // Not there: it has fallen due already, or its renewal is in flight.
            if self.renewals.remove(&(renew_at, key)) {
                self.due.insert((deadline, key));
            }
        }
    }

    /// The lease nearest to its deadline, and those next to it that need about as much time for an answer. What is urgent
    /// and what is not do not share a batch, or the one would cut the other's time short.
    fn take_batch(&mut self, now: Instant) -> Option<Batch> {
        let budget_of = |(deadline, key): &(Instant, Key)| {
            term::attempt_budget(&self.entries[*key].timing, deadline.since(now))
        };
        let first = budget_of(self.due.first()?);
        let is_alike = |budget: Duration| budget <= first * 2 && first <= budget * 2;
        let nearest = self.due.iter().take(LOOKED_AT);
        let budgets = nearest.map(|due| (*due, budget_of(due)));
        let alike = budgets.filter(|(_, budget)| is_alike(*budget));
        let picked: Vec<_> = alike.take(MAX_BATCH).collect();
        let limit = picked.iter().map(|(_, budget)| *budget).min()?;
        let mut batch = Batch {
            tickets: Vec::with_capacity(picked.len()),
            renewals: Vec::with_capacity(picked.len()),
            sent_at: now,
            limit,
        };
        for (due, _) in picked {
            self.due.remove(&due);
            self.put_in(&mut batch, due.1);
        }
        self.planted.skip(&mut batch, &mut self.random);
        Some(batch)
    }

    fn put_in(&mut self, batch: &mut Batch, key: Key) {
        let attempt = self.next_attempt();
        let entry = &mut self.entries[key];
        entry.last_sent = batch.sent_at;
        if let Phase::Held(hold) = &mut entry.phase {
            hold.attempt = NonZeroU64::new(attempt);
        }
        batch.tickets.push((key, attempt));
        let (name, ttl) = (entry.name.clone(), entry.timing.ttl());
        batch.renewals.push(Renewal::new(name, entry.holder, ttl));
    }

    fn take_releases(&mut self, now: Instant, room: usize) -> Vec<Departure> {
        let mut departures = Vec::new();
        while departures.len() < room
            && let Some(&(at, key)) = self.releases.first()
            && at <= now
        {
            self.releases.pop_first();
            departures.push(self.depart(key));
        }
        departures
    }

    /// What is to be sent for an entry that leaves, as its next attempt.
    pub(super) fn depart(&mut self, key: Key) -> Departure {
        let attempt = self.next_attempt();
        let entry = &mut self.entries[key];
        let Phase::Leaving(leave) = &mut entry.phase else {
            unreachable!("only what leaves is released");
        };
        leave.attempt = Some(attempt);
        Departure {
            ticket: (key, attempt),
            name: entry.name.clone(),
            holder: entry.holder,
            keep_for: leave.keep_for,
            limit: term::request_limit(entry.timing.ttl()),
        }
    }
}
