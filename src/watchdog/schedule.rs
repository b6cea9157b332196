//! Decides what the watchdog does next: who is lost, what to renew, what to release. Knows no clock and does no I/O: `now`
//! is always an argument, so every test runs in zero time.
//!
//! # Invariants
//! 1. An entry stands in `ends` exactly while it is held, in `renewals` while it is held and no renewal of it is in
//!    flight, and in `releases` while it leaves and the loop has no release of it in flight.
//! 2. A reply counts only for the attempt that it belongs to. An entry that has left has no attempt, so a late reply finds
//!    nothing to change.
//! 3. Losses are taken before renewals: on waking late, cancel first.
//! 4. Every exit goes through [`Schedule::leave`] or [`Schedule::withdraw`], once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::doubtful::Doubt;
use super::signal::{Reason, Signal};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Outcome, Renewal};
use crate::term::{self, Instant, Term, Timing};

/// Keys in one batch: 256 keep a Redis server busy for 0.3 to 0.45 ms, 1,000 would block it for 1.2 to 1.7 ms.
pub const BATCH: usize = 256;
/// Batches in flight: from two on the server is never idle between them; more only queue.
pub const BATCHES_IN_FLIGHT: usize = 4;
/// Releases in flight: enough to free a burst of dropped leases, few enough not to crowd out renewals.
pub const RELEASES_IN_FLIGHT: usize = 64;
/// Losses told in one turn, so that a turn stays short; the next turn follows at once.
const LOSSES_PER_TURN: usize = 4_096;
/// How much before its deadline a lease is ended, so that a late timer still ends it in time.
pub const EARLY: Duration = Duration::from_millis(5);

/// Where an entry stands.
pub type Key = usize;
type Queue = BTreeSet<(Instant, Key)>;

/// All leases of one client, and what is left of former ones.
#[derive(Debug)]
pub struct Schedule {
    entries: Slab<Entry>,
    ends: Queue,
    renewals: Queue,
    releases: Queue,
    attempts: u64,
    /// Up to when the loop sleeps: only what is armed earlier needs to wake it.
    asleep_until: Instant,
    /// Source of jitter.
    random: fastrand::Rng,
    is_closing: bool,
}

/// What the holder allows itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest hold, from the send of the claim.
    pub max_hold: Option<Duration>,
    /// The longest time without a sign of progress.
    pub progress_within: Option<Duration>,
}

#[derive(Debug)]
struct Entry {
    name: Name,
    holder: Holder,
    timing: Timing,
    limits: Limits,
    signal: Arc<Signal>,
    /// When the last request that can prolong it was sent.
    last_sent: Instant,
    /// Until when an attempt of its claim that got no answer can still do something.
    unanswered_until: Option<Instant>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The claim is under way. Exits: Held (granted), Leaving (given up, in doubt), gone (given up, answered).
    Claiming,
    /// Renewed until further notice. Exits: Lost, Leaving (its guard is gone).
    Held(Hold),
    /// Told. Exits: Leaving (its guard is gone), gone (its guard is gone, and the store said that it is not ours).
    Lost(Reason),
    /// Nobody's, but perhaps still in the store. Exits: gone (released, or run out).
    Leaving(Leave),
}

#[derive(Debug)]
struct Hold {
    deadline: Instant,
    /// The end of the longest hold.
    hold_until: Instant,
    ends_at: Instant,
    renew_at: Instant,
    attempt: Option<u64>,
}

#[derive(Debug)]
struct Leave {
    doubt: Doubt,
    keep_for: Option<Duration>,
    release_at: Instant,
    attempt: Option<u64>,
}

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
    pub reason: Reason,
    /// The deadline that it had.
    pub deadline: Instant,
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
    /// The least margin in it.
    pub margin: Duration,
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
    /// An empty schedule; the seed is for the jitter.
    pub fn new(seed: u64) -> Self {
        Self {
            entries: Slab::new(),
            ends: Queue::new(),
            renewals: Queue::new(),
            releases: Queue::new(),
            attempts: 0,
            asleep_until: Instant::FAR_FUTURE,
            random: fastrand::Rng::with_seed(seed),
            is_closing: false,
        }
    }

    /// Takes a claim in before it is sent. `None` when the schedule is closing.
    pub fn enroll(
        &mut self,
        name: Name,
        holder: Holder,
        timing: Timing,
        limits: Limits,
        signal: Arc<Signal>,
    ) -> Option<Key> {
        (!self.is_closing).then(|| {
            self.entries.insert(Entry {
                name,
                holder,
                timing,
                limits,
                signal,
                last_sent: Instant::ZERO,
                unanswered_until: None,
                phase: Phase::Claiming,
            })
        })
    }

    /// Notes that an attempt of the claim is leaving. Give the answer back to [`claim_answered`](Self::claim_answered);
    /// an attempt for which that does not happen stays in doubt.
    pub fn claim_sent(&mut self, key: Key, now: Instant) -> Option<Instant> {
        let entry = &mut self.entries[key];
        entry.last_sent = now;
        entry
            .unanswered_until
            .replace(now.after(entry.timing.ttl()))
    }

    /// Notes that the last attempt of the claim was answered; `before` is what its sending gave.
    pub fn claim_answered(&mut self, key: Key, before: Option<Instant>) {
        self.entries[key].unanswered_until = before;
    }

    /// Begins to renew a lease that was granted. Answers whether the loop has to be woken.
    ///
    /// # Errors
    /// The reason, where it was lost before it was held: the client is shutting down.
    pub fn hold(&mut self, key: Key, term: Term) -> Result<bool, Reason> {
        let entry = &mut self.entries[key];
        if let Phase::Lost(reason) = entry.phase {
            return Err(reason);
        }
        entry.signal.extend(term.deadline())?;
        let hold_until = entry
            .limits
            .max_hold
            .map_or(Instant::FAR_FUTURE, |most| term.sent_at().after(most));
        let mut hold = Hold {
            deadline: term.deadline(),
            hold_until,
            ends_at: Instant::ZERO,
            renew_at: term.renew_at(true, self.random.u16(..)),
            attempt: None,
        };
        hold.ends_at = hold.end(entry.limits, &entry.signal);
        let armed = hold.ends_at.min(hold.renew_at);
        self.ends.insert((hold.ends_at, key));
        self.renewals.insert((hold.renew_at, key));
        entry.phase = Phase::Held(hold);
        Ok(self.is_earlier(armed))
    }

    /// The guard is gone: its release is left to the loop. Answers whether the loop has to be woken.
    pub fn leave(&mut self, key: Key, now: Instant, keep_for: Option<Duration>) -> bool {
        if !self.end_enrollment(key, keep_for) {
            return false;
        }
        self.release_at(key, now);
        self.is_earlier(now)
    }

    /// The guard releases by itself: the attempt to report to [`settle_release`](Self::settle_release), unless there is
    /// nothing to release. Should the report not come within `limit`, the loop takes over. Also answers whether the loop
    /// has to be woken.
    pub fn withdraw(
        &mut self,
        key: Key,
        now: Instant,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> (Option<u64>, bool) {
        if !self.end_enrollment(key, keep_for) {
            return (None, false);
        }
        let attempt = self.next_attempt();
        let takes_over_at = now.after(limit);
        self.release_at(key, takes_over_at);
        if let Phase::Leaving(leave) = &mut self.entries[key].phase {
            leave.attempt = Some(attempt);
        }
        (Some(attempt), self.is_earlier(takes_over_at))
    }

    /// Takes an entry out of the renewals. Answers whether something is left to release; if not, it is gone.
    fn end_enrollment(&mut self, key: Key, keep_for: Option<Duration>) -> bool {
        let entry = &mut self.entries[key];
        let is_in_store = match &entry.phase {
            Phase::Claiming | Phase::Lost(Reason::Refused) => entry.unanswered_until.is_some(),
            Phase::Held(hold) => {
                self.ends.remove(&(hold.ends_at, key));
                self.renewals.remove(&(hold.renew_at, key));
                true
            }
            Phase::Lost(_) => true,
            Phase::Leaving(_) => unreachable!("an enrollment ends once"),
        };
        if !is_in_store {
            self.entries.remove(key);
            return false;
        }
        let keep_for = keep_for.filter(|_| matches!(entry.phase, Phase::Held(_)));
        entry.phase = Phase::Leaving(Leave {
            doubt: Doubt::new(entry.last_sent, entry.timing.ttl(), entry.unanswered_until),
            keep_for,
            release_at: Instant::FAR_FUTURE,
            attempt: None,
        });
        true
    }

    fn release_at(&mut self, key: Key, at: Instant) {
        if let Phase::Leaving(leave) = &mut self.entries[key].phase {
            leave.release_at = at;
            self.releases.insert((at, key));
        }
    }

    /// What is to be done now, with so much room for further batches and releases.
    pub fn turn(&mut self, now: Instant, batch_room: usize, release_room: usize) -> Turn {
        Turn {
            losses: self.take_losses(now),
            batches: self.take_batches(now, batch_room),
            releases: self.take_releases(now, release_room),
        }
    }

    /// When the next turn is due, with so much room. The loop sleeps until then unless it is woken.
    pub fn sleep(&mut self, batch_room: usize, release_room: usize) -> Instant {
        let first = |queue: &Queue, has_room| {
            let first = queue.first().filter(|_| has_room);
            first.map_or(Instant::FAR_FUTURE, |(at, _)| *at)
        };
        self.asleep_until = first(&self.ends, true)
            .min(first(&self.renewals, batch_room > 0))
            .min(first(&self.releases, release_room > 0));
        self.asleep_until
    }

    fn is_earlier(&self, armed: Instant) -> bool {
        armed < self.asleep_until
    }

    fn take_losses(&mut self, now: Instant) -> Vec<Loss> {
        let mut losses = Vec::new();
        while losses.len() < LOSSES_PER_TURN {
            let Some(&(at, key)) = self.ends.first().filter(|(at, _)| *at <= now) else {
                break;
            };
            let entry = &mut self.entries[key];
            let Phase::Held(hold) = &mut entry.phase else {
                unreachable!("only what is held stands in `ends`");
            };
            let end = hold.end(entry.limits, &entry.signal);
            if end > now {
                // There was progress since this was armed.
                hold.ends_at = end;
                self.ends.remove(&(at, key));
                self.ends.insert((end, key));
                continue;
            }
            let reason = hold.reason(now);
            losses.extend(self.lose(key, reason));
        }
        losses
    }

    /// Ends a lease that is held or claimed; nothing if it has ended already.
    fn lose(&mut self, key: Key, reason: Reason) -> Option<Loss> {
        let entry = &mut self.entries[key];
        let deadline = match &entry.phase {
            Phase::Held(hold) => {
                self.ends.remove(&(hold.ends_at, key));
                self.renewals.remove(&(hold.renew_at, key));
                hold.deadline
            }
            Phase::Claiming => Instant::FAR_FUTURE,
            Phase::Lost(_) | Phase::Leaving(_) => return None,
        };
        let reason = entry.signal.lose(reason);
        entry.phase = Phase::Lost(reason);
        Some(Loss {
            name: entry.name.clone(),
            reason,
            deadline,
            signal: entry.signal.clone(),
        })
    }

    fn take_batches(&mut self, now: Instant, room: usize) -> Vec<Batch> {
        let mut due = Vec::new();
        while due.len() < room * BATCH
            && let Some(&(at, key)) = self.renewals.first()
            && at <= now
        {
            self.renewals.pop_first();
            let Phase::Held(hold) = &self.entries[key].phase else {
                unreachable!("only what is held stands in `renewals`");
            };
            due.push((hold.deadline, key));
        }
        due.sort_unstable();
        let mut batches: Vec<Batch> = Vec::new();
        for (deadline, key) in due {
            let timing = self.entries[key].timing;
            let budget = term::attempt_budget(&timing, deadline.since(now));
            // What is urgent and what is not do not share a batch, or the one would cut the other's time short.
            let fits = batches
                .last()
                .is_some_and(|batch| batch.renewals.len() < BATCH && budget <= batch.limit * 2);
            if !fits {
                batches.push(Batch {
                    tickets: Vec::new(),
                    renewals: Vec::new(),
                    sent_at: now,
                    limit: budget,
                    margin: timing.margin(),
                });
            }
            let batch = batches.last_mut().expect("one was pushed if none fitted");
            self.put_in(batch, key, budget);
        }
        batches
    }

    fn put_in(&mut self, batch: &mut Batch, key: Key, budget: Duration) {
        let attempt = self.next_attempt();
        let entry = &mut self.entries[key];
        entry.last_sent = batch.sent_at;
        if let Phase::Held(hold) = &mut entry.phase {
            hold.attempt = Some(attempt);
        }
        batch.limit = batch.limit.min(budget);
        batch.margin = batch.margin.min(entry.timing.margin());
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
            let attempt = self.next_attempt();
            let entry = &mut self.entries[key];
            let Phase::Leaving(leave) = &mut entry.phase else {
                unreachable!("only what leaves stands in `releases`");
            };
            leave.attempt = Some(attempt);
            departures.push(Departure {
                ticket: (key, attempt),
                name: entry.name.clone(),
                holder: entry.holder,
                keep_for: leave.keep_for,
                limit: term::request_limit(entry.timing.ttl()),
            });
        }
        departures
    }

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

    /// Moves every deadline forward in time by what the server's clock gained on ours.
    pub fn shorten(&mut self, by: Duration) {
        let held: Vec<Key> = self.ends.iter().map(|(_, key)| *key).collect();
        for key in held {
            let entry = &mut self.entries[key];
            if let Phase::Held(hold) = &mut entry.phase {
                self.ends.remove(&(hold.ends_at, key));
                hold.deadline = hold.deadline.before(by);
                hold.ends_at = hold.ends_at.before(by);
                self.ends.insert((hold.ends_at, key));
                // A loss that was found first stands.
                let _ = entry.signal.extend(hold.deadline);
            }
        }
    }

    /// Takes no more claims in, and ends all leases.
    pub fn close(&mut self, reason: Reason) -> Vec<Loss> {
        self.is_closing = true;
        let keys: Vec<Key> = self.entries.iter().map(|(key, _)| key).collect();
        let losses = keys.into_iter().filter_map(|key| self.lose(key, reason));
        losses.collect()
    }

    /// Takes no more claims in; what is held is renewed on.
    pub fn retire(&mut self) {
        self.is_closing = true;
    }

    /// Whether no more claims are taken in.
    pub const fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Whether there is nothing to renew, to release, or to wait for.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many leases are held.
    pub fn held(&self) -> usize {
        self.ends.len()
    }

    fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }
}

impl Hold {
    /// When the lease ends unless something happens first.
    fn end(&self, limits: Limits, signal: &Signal) -> Instant {
        let idle = limits
            .progress_within
            .map_or(Instant::FAR_FUTURE, |within| {
                signal.progress().after(within)
            });
        self.deadline.before(EARLY).min(self.hold_until).min(idle)
    }

    /// Why it ends now.
    fn reason(&self, now: Instant) -> Reason {
        if now >= self.hold_until {
            Reason::MaxHold
        } else if now >= self.deadline.before(EARLY) {
            Reason::Deadline
        } else {
            Reason::NoProgress
        }
    }
}
