//! The way in and the way out of the schedule: from the claim to the grant, and from the guard's end to the release.

use std::sync::Arc;
use std::time::Duration;

use super::{Bounds, Departure, Entry, Hold, Key, Leave, Limits, Phase, Schedule};
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::limit;
use crate::term::{Instant, Timing};
use crate::watchdog::doubtful::Doubt;
use crate::watchdog::signal::Signal;

impl Schedule {
    /// Takes a claim in before it is sent. `None` when the schedule is closing.
    pub fn enroll(
        &mut self,
        name: Name,
        holder: Holder,
        timing: Timing,
        limits: Limits,
        signal: Arc<Signal>,
    ) -> Option<Key> {
        let (timing, limits) = (self.planted.timing(timing), self.planted.limits(limits));
        (!self.is_closing).then(|| {
            self.entries.insert(Entry {
                name,
                holder,
                timing,
                bounds: (limits != Limits::default()).then(|| {
                    let hold_until = Instant::FAR_FUTURE;
                    Box::new(Bounds { limits, hold_until })
                }),
                signal,
                last_sent: Instant::ZERO,
                unanswered_until: Instant::ZERO,
                phase: Phase::Claiming { is_granted: false },
            })
        })
    }

    /// Notes that an attempt of the claim is leaving. Give the answer back to [`claim_answered`](Self::claim_answered);
    /// an attempt for which that does not happen stays in doubt.
    pub fn claim_sent(&mut self, key: Key, now: Instant) -> Option<Instant> {
        let entry = &mut self.entries[key];
        entry.last_sent = now;
        let before = entry.unanswered_until();
        entry.unanswered_until = now.after(entry.timing.ttl());
        before
    }

    /// Notes that the last attempt of the claim was answered; `before` is what its sending gave.
    pub fn claim_answered(&mut self, key: Key, before: Option<Instant>) {
        self.entries[key].unanswered_until = before.unwrap_or(Instant::ZERO);
    }

    /// Begins to renew a lease that was granted to the attempt that left at `sent_at`. Answers whether the loop has to be woken.
    ///
    /// # Errors
    /// The reason, where it was lost before it was held: the client is shutting down. `Late`, where too little is left of its
    /// term: the claim goes on, and is released should it be given up.
    pub fn hold(&mut self, key: Key, sent_at: Instant, now: Instant) -> Result<bool, LossReason> {
        let entry = &mut self.entries[key];
        if let Phase::Lost(reason) = entry.phase {
            return Err(reason);
        }
        // The server may have granted it before its clock stepped.
        let gained = self.server.gained_since(sent_at).unwrap_or_default();
        let term = entry.timing.term(sent_at.before(gained));
        if !self.planted.is_fresh(term.is_fresh(now)) {
            entry.phase = Phase::Claiming { is_granted: true };
            return Err(LossReason::Late);
        }
        entry.signal.extend(term.deadline())?;
        // The work begins here: the wait for the name was no lack of progress.
        entry.signal.note_progress(sent_at);
        if let Some(bounds) = &mut entry.bounds {
            let most = bounds.limits.max_hold.unwrap_or(Duration::MAX);
            bounds.hold_until = sent_at.after(most);
        }
        let mut hold = Hold {
            deadline: term.deadline(),
            ends_at: Instant::ZERO,
            renew_at: term.renew_at(true, self.random.u16(..)),
            attempt: None,
        };
        hold.renew_at = (self.planted).renew_at(hold.renew_at, &entry.timing, &mut self.random);
        hold.ends_at = hold.end(entry.bounds.as_deref(), &entry.signal);
        let armed = hold.ends_at.min(hold.renew_at);
        self.ends.insert((hold.ends_at, key));
        self.renewals.insert((hold.renew_at, key));
        self.timings.add(&entry.timing);
        entry.phase = Phase::Held(hold);
        Ok(self.must_wake(armed))
    }

    /// The guard is gone: its release is left to the loop. Answers whether the loop has to be woken.
    pub fn leave(&mut self, key: Key, now: Instant, keep_for: Option<Duration>) -> bool {
        if !self.end_enrollment(key, keep_for) {
            return self.must_wake(Instant::FAR_FUTURE);
        }
        self.release_at(key, now);
        self.must_wake(now)
    }

    /// The guard releases by itself: what it is to send and to report to [`settle_release`](Self::settle_release), unless
    /// there is nothing to release. Should the report not come in time, the loop takes over. Also answers whether the loop
    /// has to be woken.
    pub fn withdraw(
        &mut self,
        key: Key,
        now: Instant,
        keep_for: Option<Duration>,
    ) -> (Option<Departure>, bool) {
        if !self.end_enrollment(key, keep_for) {
            return (None, self.must_wake(Instant::FAR_FUTURE));
        }
        let departure = self.depart(key);
        let takes_over_at = now.after(limit::at_most(departure.limit));
        self.release_at(key, takes_over_at);
        (Some(departure), self.must_wake(takes_over_at))
    }

    /// Takes an entry out of the renewals. Answers whether something is left to release; if not, it is gone.
    fn end_enrollment(&mut self, key: Key, keep_for: Option<Duration>) -> bool {
        self.disarm(key);
        let entry = &mut self.entries[key];
        let unanswered_until = self.planted.unanswered_until(entry.unanswered_until());
        let is_in_store = match &entry.phase {
            Phase::Claiming { is_granted: false } | Phase::Lost(LossReason::Refused) => {
                unanswered_until.is_some()
            }
            Phase::Claiming { is_granted: true } | Phase::Held(_) | Phase::Lost(_) => true,
            Phase::Leaving(_) => unreachable!("an enrollment ends once"),
        };
        if !is_in_store {
            self.entries.remove(key);
            return false;
        }
        let keep_for = keep_for.filter(|_| matches!(entry.phase, Phase::Held(_)));
        entry.phase = Phase::Leaving(Box::new(Leave {
            doubt: Doubt::new(entry.last_sent, entry.timing.ttl(), unanswered_until),
            keep_for,
            release_at: Instant::FAR_FUTURE,
            attempt: None,
        }));
        true
    }

    pub(super) fn release_at(&mut self, key: Key, at: Instant) {
        if let Phase::Leaving(leave) = &mut self.entries[key].phase {
            leave.release_at = at;
            self.releases.insert((at, key));
        }
    }
}
