//! How a lease enters and leaves the schedule: from its claim to the grant, and from the end of its guard to the release.

use std::sync::Arc;
use std::time::Duration;

use super::shard::Shard;
use super::slot::{Bounds, Holding, Leased, Leave, Phase, Slot};
use super::{Departure, LeaseId, Limits, MustWake, Schedule, Useless};
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::gives_up_after;
use crate::term::{Instant, Timing};
use crate::token::Token;
use crate::watchdog::doubtful::Doubt;
use crate::watchdog::signal::Signal;

impl Schedule {
    /// Enrolls a claim before it is sent; `shard` is the store's number of the part that keeps the name. Returns `None` if
    /// the schedule is closing.
    pub fn enroll(
        &mut self,
        (name, holder): (Name, Holder),
        shard: u32,
        timing: Timing,
        limits: Limits,
        signal: Arc<Signal>,
    ) -> Option<LeaseId> {
        if self.is_closing {
            return None;
        }
        let (timing, limits) = (self.planted.timing(timing), self.planted.limits(limits));
        let bounds = (limits != Limits::default()).then(|| {
            let hold_until = Instant::FAR_FUTURE;
            Box::new(Bounds { limits, hold_until })
        });
        let shard = self.index_of(self.planted.shard(shard));
        let index = self.shards[shard].slots.insert(Slot {
            lease: Leased {
                name,
                holder,
                timing,
                bounds,
                signal,
            },
            last_sent: Instant::ZERO,
            unanswered_until: Instant::ZERO,
            phase: Phase::Claiming { is_granted: false },
        });
        Some(LeaseId::new(index, shard))
    }

    /// Where the leases of this shard are. Shards are few, and most stores have one.
    fn index_of(&mut self, number: u32) -> usize {
        let known = self.shards.iter().position(|shard| shard.number == number);
        known.unwrap_or_else(|| {
            self.shards.push(Shard::new(number));
            self.shards.len() - 1
        })
    }

    /// Notes that an attempt of the claim is sent now. Once it is answered, pass the returned value to
    /// [`claim_answered`](Self::claim_answered); until then the attempt is in doubt.
    pub fn claim_sent(&mut self, id: LeaseId, now: Instant) -> Option<Instant> {
        let slot = self.slot_mut(id);
        slot.last_sent = now;
        let before = slot.unanswered_until();
        slot.unanswered_until = now.after(slot.lease.timing.ttl());
        before
    }

    /// Notes that the last attempt of the claim was answered; `before` is what [`claim_sent`](Self::claim_sent) returned.
    pub fn claim_answered(&mut self, id: LeaseId, before: Option<Instant>) {
        self.slot_mut(id).unanswered_until = before.unwrap_or(Instant::ZERO);
    }

    /// Begins to renew a lease that was granted, with this token, to the attempt that left at `sent_at`.
    ///
    /// # Errors
    /// Why the grant is of no use. After `Late` the claim is still enrolled: ask again or give it up, which releases it.
    pub fn hold(
        &mut self,
        id: LeaseId,
        token: Token,
        sent_at: Instant,
        now: Instant,
    ) -> Result<MustWake, Useless> {
        let shard = &mut self.shards[id.shard()];
        let slot = &mut shard.slots[id.index()];
        if matches!(slot.phase, Phase::Lost(_)) {
            return Err(Useless::Ended);
        }
        // The server may have granted it before its clock stepped.
        let gained = shard.server.gained_since(sent_at).unwrap_or_default();
        let lease = &mut slot.lease;
        let term = lease.timing.term(sent_at.before(gained));
        if !self.planted.is_fresh(term.is_fresh(now)) {
            self.transition(id, Phase::Claiming { is_granted: true });
            return Err(Useless::Late);
        }
        if lease.signal.extend(term.deadline()).is_err() {
            return Err(Useless::Ended);
        }
        lease.signal.note_grant(token);
        // The work begins here: the wait for the name was no lack of progress.
        lease.signal.note_progress(sent_at);
        if let Some(bounds) = &mut lease.bounds {
            let most = bounds.limits.max_hold.unwrap_or(Duration::MAX);
            bounds.hold_until = sent_at.after(most);
        }
        let mut holding = Holding {
            deadline: term.deadline(),
            ends_at: Instant::ZERO,
            renew_at: term.renew_at(true, self.random.u16(..)),
            attempt: None,
        };
        holding.renew_at =
            (self.planted).renew_at(holding.renew_at, &lease.timing, &mut self.random);
        holding.ends_at = holding.end(lease);
        let armed = holding.ends_at.min(holding.renew_at);
        self.transition(id, Phase::Held(holding));
        Ok(self.must_wake(armed))
    }

    /// Ends an enrollment whose guard is gone, and leaves the release to the loop.
    pub fn leave(&mut self, id: LeaseId, now: Instant, keep_for: Option<Duration>) -> MustWake {
        if !self.end_enrollment(id, keep_for) {
            return self.must_wake(Instant::FAR_FUTURE);
        }
        self.release_at(id, now);
        self.must_wake(now)
    }

    /// Ends an enrollment whose guard sends the release itself. Returns what it is to send and to report to
    /// [`settle_release`](Self::settle_release), or `None` if there is nothing to release. If the report does not come in
    /// time, the loop sends the release.
    pub fn withdraw(
        &mut self,
        id: LeaseId,
        now: Instant,
        keep_for: Option<Duration>,
    ) -> (Option<Departure>, MustWake) {
        if !self.end_enrollment(id, keep_for) {
            return (None, self.must_wake(Instant::FAR_FUTURE));
        }
        let departure = self.depart(id);
        let takes_over_at = now.after(gives_up_after(departure.limit));
        self.release_at(id, takes_over_at);
        (Some(departure), self.must_wake(takes_over_at))
    }

    /// Takes a lease out of the renewals. Returns whether something is left to release; if not, the lease is forgotten.
    fn end_enrollment(&mut self, id: LeaseId, keep_for: Option<Duration>) -> bool {
        let slot = self.slot(id);
        let unanswered_until = self.planted.unanswered_until(slot.unanswered_until());
        let is_in_store = match &slot.phase {
            Phase::Claiming { is_granted: false } | Phase::Lost(LossReason::Refused) => {
                unanswered_until.is_some()
            }
            Phase::Claiming { is_granted: true } | Phase::Held(_) | Phase::Lost(_) => true,
            Phase::Leaving(_) => unreachable!("an enrollment ends once"),
        };
        if !is_in_store {
            self.forget(id);
            return false;
        }
        let keep_for = keep_for.filter(|_| matches!(slot.phase, Phase::Held(_)));
        let leave = Leave {
            doubt: Doubt::new(slot.last_sent, slot.lease.timing.ttl(), unanswered_until),
            keep_for,
            release_at: Instant::FAR_FUTURE,
            attempt: None,
        };
        self.transition(id, Phase::Leaving(Box::new(leave)));
        true
    }

    /// Has the loop release a lease that is leaving, at this moment.
    pub(super) fn release_at(&mut self, id: LeaseId, at: Instant) {
        let shard = &mut self.shards[id.shard()];
        if let Phase::Leaving(leave) = &mut shard.slots[id.index()].phase {
            leave.release_at = at;
            shard.queues.arm_release(id, at);
        }
    }
}
