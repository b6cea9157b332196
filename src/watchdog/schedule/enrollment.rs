//! Takes a lease into the schedule: from its claim to the grant.

use std::sync::Arc;
use std::time::Duration;

use super::slot::{Bounds, Holding, Leased, Phase, Slot};
use super::{LeaseId, Limits, Schedule, Useless};
use crate::holder::Holder;
use crate::name::Name;
use crate::term::{Instant, Timing};
use crate::token::Token;
use crate::watchdog::signal::Signal;

impl Schedule {
    /// Enrolls a claim before it is sent; `shard` is the store's number of the part that keeps the name. Returns `None`
    /// if the schedule is closing.
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
        let bounds = (limits != Limits::default()).then(|| {
            let hold_until = Instant::FAR_FUTURE;
            Box::new(Bounds { limits, hold_until })
        });
        let shard = self.index_of(shard);
        let index = self.slots.insert(Slot {
            lease: Leased {
                name,
                holder,
                timing,
                bounds,
                signal,
            },
            shard,
            last_sent: Instant::ZERO,
            unanswered_until: Instant::ZERO,
            phase: Phase::Claiming { is_granted: false },
        });
        Some(LeaseId::new(index))
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

    /// Notes that the last attempt of the claim was answered; `before` is what [`claim_sent`](Self::claim_sent)
    /// returned.
    pub fn claim_answered(&mut self, id: LeaseId, before: Option<Instant>) {
        self.slot_mut(id).unanswered_until = before.unwrap_or(Instant::ZERO);
    }

    /// Begins to renew a lease that was granted, with this token, to the attempt that left at `sent_at`.
    ///
    /// # Errors
    /// Why the grant is of no use. After `Late` the claim is still enrolled: ask again or give it up, which releases
    /// it.
    pub fn hold(
        &mut self,
        id: LeaseId,
        token: Token,
        sent_at: Instant,
        now: Instant,
    ) -> Result<(), Useless> {
        let slot = &mut self.slots[id.index()];
        let shard = &self.shards[slot.shard];
        if matches!(slot.phase, Phase::Lost(_)) {
            return Err(Useless::Ended);
        }
        // The server may have granted it before its clock stepped.
        let gained = shard.server.gained_since(sent_at).unwrap_or_default();
        let lease = &mut slot.lease;
        let term = lease.timing.term(sent_at.before(gained));
        if !term.is_fresh(now) {
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
            failures: 0,
        };
        holding.ends_at = holding.end(lease);
        self.note_armed(holding.ends_at.min(holding.renew_at));
        self.transition(id, Phase::Held(holding));
        Ok(())
    }
}
