//! What came back: outcomes of renewals and answers to releases.

use std::time::Duration;

use super::{Batch, Key, Loss, Phase, Schedule};
use crate::store::Outcome;
use crate::term::Instant;
use crate::watchdog::signal::Reason;

/// How a batch went.
#[derive(Debug, Default)]
pub struct Settled {
    /// Leases that the store refused to renew.
    pub losses: Vec<Loss>,
    /// How many were renewed.
    pub renewed: u64,
    /// How many got no answer.
    pub unknown: u64,
    /// The least share of its ttl that a renewed lease had left.
    pub least_left: Option<f64>,
}

impl Schedule {
    /// Takes the outcomes of a batch in.
    pub fn settle(&mut self, batch: &Batch, outcomes: Vec<Outcome>, now: Instant) -> Settled {
        let mut settled = Settled::default();
        for (ticket, outcome) in batch.tickets.iter().zip(outcomes) {
            if !self.is_waiting_for(*ticket) {
                continue;
            }
            let key = ticket.0;
            match outcome {
                Outcome::Renewed => self.renewed(key, batch.sent_at, now, &mut settled),
                Outcome::Refused => settled.losses.extend(self.lose(key, Reason::Refused)),
                Outcome::Evicted => settled.losses.extend(self.lose(key, Reason::Evicted)),
                Outcome::Unknown(_) => {
                    settled.unknown += 1;
                    self.renew_again(key, batch.sent_at, now);
                }
            }
        }
        settled
    }

    fn is_waiting_for(&self, (key, attempt): (Key, u64)) -> bool {
        let entry = self.entries.get(key);
        match entry.map(|entry| &entry.phase) {
            Some(Phase::Held(hold)) => hold.attempt == Some(attempt),
            Some(Phase::Leaving(leave)) => leave.attempt == Some(attempt),
            _ => false,
        }
    }

    fn renewed(&mut self, key: Key, sent_at: Instant, now: Instant, settled: &mut Settled) {
        let entry = &mut self.entries[key];
        let term = entry.timing.term(sent_at);
        let Phase::Held(hold) = &mut entry.phase else {
            unreachable!("it waits for this attempt");
        };
        hold.attempt = None;
        // A reply that comes after the end, or after a `check()` saw the deadline pass, revives nothing.
        if now >= hold.ends_at {
            let reason = hold.reason(now);
            settled.losses.extend(self.lose(key, reason));
            return;
        }
        if let Err(reason) = entry.signal.extend(term.deadline()) {
            settled.losses.extend(self.lose(key, reason));
            return;
        }
        let left = hold.deadline.since(now).as_secs_f64() / entry.timing.ttl().as_secs_f64();
        settled.least_left = Some(settled.least_left.map_or(left, |least| least.min(left)));
        settled.renewed += 1;
        self.ends.remove(&(hold.ends_at, key));
        hold.deadline = term.deadline();
        hold.ends_at = hold.end(entry.limits, &entry.signal);
        hold.renew_at = term.renew_at(false, self.random.u16(..));
        self.ends.insert((hold.ends_at, key));
        self.renewals.insert((hold.renew_at, key));
    }

    /// Arms another attempt, a little after the last one left, so that a store that refuses at once is not hammered.
    fn renew_again(&mut self, key: Key, sent_at: Instant, now: Instant) {
        let entry = &mut self.entries[key];
        if let Phase::Held(hold) = &mut entry.phase {
            let pause = (entry.timing.ttl() / 50).max(Duration::from_millis(10));
            hold.attempt = None;
            hold.renew_at = sent_at.after(pause).max(now);
            self.renewals.insert((hold.renew_at, key));
        }
    }

    /// Takes the answer to a release in: `is_clear` if the store said what it did.
    pub fn settle_release(&mut self, ticket: (Key, u64), is_clear: bool, now: Instant) -> bool {
        if !self.is_waiting_for(ticket) {
            return false;
        }
        let key = ticket.0;
        let entry = &mut self.entries[key];
        let ttl = entry.timing.ttl();
        let Phase::Leaving(leave) = &mut entry.phase else {
            return false;
        };
        self.releases.remove(&(leave.release_at, key));
        leave.attempt = None;
        let next = if is_clear {
            leave.keep_for = None;
            leave.doubt.answered(now, ttl)
        } else {
            leave.doubt.again(now, ttl)
        };
        match next {
            Some(at) => {
                self.release_at(key, at);
                self.is_earlier(at)
            }
            None => {
                self.entries.remove(key);
                false
            }
        }
    }
}
