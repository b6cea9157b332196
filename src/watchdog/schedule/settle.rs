//! What came back: outcomes of renewals and answers to releases.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::{Batch, Key, Loss, Phase, Schedule};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::{Outcome, Renewed};
use crate::term::Instant;
use crate::watchdog::server_time::{Finding, Reading};
use crate::watchdog::signal::Signal;

/// How a batch went.
#[derive(Debug, Default)]
pub struct Settled {
    /// Leases that the store refused to renew.
    pub losses: Vec<Loss>,
    /// Leases that were renewed while somebody may wait for that.
    pub wakes: Vec<Awaited>,
    /// How many were renewed.
    pub renewed: u64,
    /// How many got no answer.
    pub unknown: u64,
    /// Why the first of them got none.
    pub first_error: Option<Error>,
    /// The least share of its ttl that a renewed lease had left.
    pub least_left: Option<f64>,
    /// Which way the server's clock stepped, and by how much.
    pub step: Option<(Jump, Duration)>,
}

/// Which way the server's clock stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// Leases end earlier than was believed.
    Forward,
    /// Leases end later.
    Backward,
}

/// A lease whose renewal somebody may wait for.
#[derive(Debug)]
pub struct Awaited {
    /// What is held.
    pub name: Name,
    /// Through which they are woken.
    pub signal: Arc<Signal>,
}

impl Schedule {
    /// Takes the reply to a batch in. Leases that a short reply leaves out got no answer.
    pub fn settle(&mut self, batch: &Batch, mut reply: Renewed, now: Instant) -> Settled {
        let mut settled = Settled::default();
        reply.outcomes.resize_with(batch.tickets.len(), || {
            Outcome::Unknown(Error::new(
                ErrorKind::TimedOut,
                "renew failed: the store gave no answer in time",
            ))
        });
        self.planted.distort(&mut reply.outcomes);
        let sent_at = match reply.server_time {
            Some(server) => self.heed(batch, &reply.outcomes, server, now, &mut settled),
            None => batch.sent_at,
        };
        let sent_at = self.planted.counted_from(sent_at, now);
        // All are looked at before any is changed. They lie all over the memory: reads of them overlap, while each change
        // would wait for its own.
        let tickets = batch.tickets.iter();
        let standings: Vec<_> = tickets.map(|ticket| self.standing(*ticket)).collect();
        let answers = batch.tickets.iter().zip(standings).zip(reply.outcomes);
        for ((&(key, _), standing), outcome) in answers {
            let Some(standing) = standing else {
                self.answered_late(key, &outcome, sent_at);
                continue;
            };
            match outcome {
                Outcome::Renewed => match standing {
                    Ok(_) => self.renewed(key, sent_at, now, &mut settled),
                    Err(reason) => settled.losses.extend(self.lose(key, reason)),
                },
                Outcome::Refused => settled.losses.extend(self.lose(key, LossReason::Refused)),
                Outcome::Evicted => settled.losses.extend(self.lose(key, LossReason::Evicted)),
                Outcome::Unknown(error) => {
                    settled.unknown += 1;
                    settled.first_error.get_or_insert(error);
                    self.renew_again(key, batch.sent_at, now);
                }
            }
        }
        settled
    }

    /// Takes what the server's clock gained on ours off the deadlines, before what this reply confirms is counted. Answers
    /// from when that is counted.
    fn heed(
        &mut self,
        batch: &Batch,
        outcomes: &[Outcome],
        server: Duration,
        now: Instant,
        settled: &mut Settled,
    ) -> Instant {
        let reading = Reading {
            sent_at: batch.sent_at,
            seen_at: now,
            server,
        };
        // By all that a step would harm, and not by what happens to be in this batch.
        let tolerance = self.timings.least_margin();
        let memory = self.timings.longest_ttl();
        match self.server.read(reading, tolerance, memory) {
            Finding::Alike => {}
            Finding::Forward(by) => {
                let renewed = self.confirmed_by(batch, outcomes);
                self.shorten(by, &renewed);
                settled.step = Some((Jump::Forward, by));
            }
            Finding::Backward(by) => settled.step = Some((Jump::Backward, by)),
            Finding::Before(by) => return batch.sent_at.before(by),
        }
        batch.sent_at
    }

    /// The leases that this reply confirms: by the new time, if it tells of one.
    fn confirmed_by(&self, batch: &Batch, outcomes: &[Outcome]) -> HashSet<Key> {
        let confirmed = batch
            .tickets
            .iter()
            .zip(outcomes)
            .filter(|(ticket, outcome)| {
                matches!(outcome, Outcome::Renewed) && self.is_waiting_for(**ticket)
            });
        confirmed.map(|(ticket, _)| ticket.0).collect()
    }

    /// Moves every deadline but these, and every renewal that is still to be sent, forward in time.
    fn shorten(&mut self, by: Duration, but: &HashSet<Key>) {
        let held = self.ends.iter().map(|(_, key)| *key);
        let held: Vec<Key> = held.filter(|key| !but.contains(key)).collect();
        for key in held {
            let entry = &mut self.entries[key];
            let Phase::Held(hold) = &mut entry.phase else {
                unreachable!("only what is held stands in `ends`");
            };
            let is_due = self.due.remove(&(hold.deadline, key));
            self.ends.remove(&(hold.ends_at, key));
            hold.deadline = hold.deadline.before(by);
            hold.ends_at = hold.end(entry.bounds.as_deref(), &entry.signal);
            self.ends.insert((hold.ends_at, key));
            if is_due {
                self.due.insert((hold.deadline, key));
            }
            if self.renewals.remove(&(hold.renew_at, key)) {
                hold.renew_at = hold.renew_at.before(by);
                self.renewals.insert((hold.renew_at, key));
            }
            // A loss that was found first stands.
            let _ = entry.signal.extend(hold.deadline);
        }
    }

    /// What the lease says of itself, if it still waits for this attempt.
    fn standing(&self, ticket: (Key, u64)) -> Option<Result<Instant, LossReason>> {
        self.is_waiting_for(ticket)
            .then(|| self.entries[ticket.0].signal.deadline())
    }

    fn is_waiting_for(&self, (key, attempt): (Key, u64)) -> bool {
        let entry = self.entries.get(key);
        match entry.map(|entry| &entry.phase) {
            Some(Phase::Held(hold)) => hold.attempt == NonZeroU64::new(attempt),
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
        // A reply that comes after the end, or after a `check()` saw the deadline pass, revives nothing. The end that is
        // armed may be older than the last sign of progress.
        if now >= hold.end(entry.bounds.as_deref(), &entry.signal) {
            let reason = hold.reason(entry.bounds.as_deref(), now);
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
        if entry.signal.has_waiters() {
            settled.wakes.push(Awaited {
                name: entry.name.clone(),
                signal: entry.signal.clone(),
            });
        }
        hold.deadline = term.deadline();
        hold.renew_at = term.renew_at(false, self.random.u16(..));
        hold.renew_at = (self.planted).renew_at(hold.renew_at, &entry.timing, &mut self.random);
        self.renewals.insert((hold.renew_at, key));
        let end = hold.end(entry.bounds.as_deref(), &entry.signal);
        // What is armed too early is looked at again when it comes due. While it is far off, the next renewal comes first.
        let is_far = hold.ends_at <= end && hold.ends_at.since(now) > entry.timing.ttl() / 2;
        if !is_far {
            self.ends.remove(&(hold.ends_at, key));
            hold.ends_at = end;
            self.ends.insert((end, key));
        }
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

    /// Takes the answer to a release in: `is_clear` if the store said what it did. Answers whether the loop has to be woken.
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
                self.must_wake(at)
            }
            None => {
                self.entries.remove(key);
                self.must_wake(Instant::FAR_FUTURE)
            }
        }
    }
    /// Has the loop send a release anew that its caller gave up: perhaps it never left. Answers whether the loop has to be
    /// woken.
    pub fn take_over(&mut self, ticket: (Key, u64), now: Instant) -> bool {
        if !self.is_waiting_for(ticket) {
            return false;
        }
        let key = ticket.0;
        if let Phase::Leaving(leave) = &mut self.entries[key].phase {
            self.releases.remove(&(leave.release_at, key));
            leave.attempt = None;
        }
        self.release_at(key, now);
        self.must_wake(now)
    }
}
