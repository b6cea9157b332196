//! Takes a lease into the schedule and out of it: from its claim to the grant, and from the end of its guard to the
//! last answer to its release.
//!
//! The enrollment ends before the release is sent, so that no renewal follows it. If the sender of a release gives up,
//! the watchdog's loop sends it again.

use std::sync::Arc;
use std::time::Duration;

use super::slot::{Bounds, Holding, Leased, Leave, Phase, Slot};
use super::{LeaseId, Limits, Schedule, Ticket, Useless};
use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::reason::LossReason;
use crate::store::{Release, gives_up_after};
use crate::term::{self, Instant, Timing};
use crate::token::Token;
use crate::watchdog::doubtful::Doubt;
use crate::watchdog::signal::Signal;
use crate::words::words;

words! {
    /// The outcome of a release. With each of them this client no longer holds the lease. The enum is complete: a
    /// `match` on it needs no `_` arm.
    pub enum ReleaseOutcome {
        /// The name is free, or stays taken for the requested time.
        Released = "released",
        /// The lease was lost before the release.
        AlreadyLost = "already_lost",
        /// Unknown outcome: the store did not answer. The client retries the release in the background; at the latest
        /// the lease expires by itself.
        Unknown = "unknown",
    }
}

/// A release to be sent, or under way.
#[derive(Debug)]
#[must_use = "a release has to be sent and reported, or given up"]
pub struct Leaving {
    /// The lease and its attempt.
    pub ticket: Ticket,
    /// The shard to which it counts, as the store calls it.
    pub shard: u32,
    /// The name that is released.
    pub name: Name,
    /// The holder that releases it.
    pub holder: Holder,
    /// How long the name is to stay taken.
    pub keep_for: Option<Duration>,
    /// The limit of the release.
    pub limit: Duration,
    /// Whether the lease was held until its enrollment ended.
    was_held: bool,
    /// Whether each attempt of the claim was answered. Then the lease had one grant, and a release that was carried out
    /// released that one.
    pub is_of_one_grant: bool,
    /// Whether the loop sends it and counts it among its releases in flight.
    is_of_the_loop: bool,
}

impl Leaving {
    /// Records the answer.
    pub fn answered(
        self,
        schedule: &mut Schedule,
        answer: Result<Release, Error>,
        now: Instant,
    ) -> ReleaseOutcome {
        if self.is_of_the_loop {
            schedule.release_landed(self.shard, answer.is_err());
        }
        schedule.settle_release(self.ticket, answer.is_ok(), now);
        match answer {
            Err(_) => ReleaseOutcome::Unknown,
            Ok(Release::Released) if self.was_held => ReleaseOutcome::Released,
            Ok(_) => ReleaseOutcome::AlreadyLost,
        }
    }

    /// Leaves the release to the loop, because it may never have been sent. The loop gives up none of its own releases:
    /// they end with its thread.
    pub fn given_up(self, schedule: &mut Schedule, now: Instant) {
        if !self.is_of_the_loop {
            schedule.take_over(self.ticket, now);
        }
    }
}

/// From the claim to the grant.
impl Schedule {
    /// Enrolls a claim before it is sent; `shard` is the store's number of the part that keeps the name. Returns `None`
    /// if the schedule is closing.
    pub fn enroll(
        &mut self,
        name: Name,
        holder: Holder,
        shard: u32,
        timing: Timing,
        signal: Arc<Signal>,
    ) -> Option<LeaseId> {
        if self.is_closing {
            return None;
        }
        let shard = self.index_of(shard);
        let index = self.slots.insert(Slot {
            lease: Leased {
                name,
                holder,
                timing,
                bounds: None,
                signal,
            },
            shard,
            last_sent: Instant::ZERO,
            unanswered_until: Instant::ZERO,
            phase: Phase::Claiming { is_in_store: false },
        });
        Some(LeaseId::new(index))
    }

    /// Records that an attempt of the claim is sent now. Once it is answered, pass the returned value to
    /// [`claim_answered`](Self::claim_answered); until then the attempt is in doubt.
    pub fn claim_sent(&mut self, id: LeaseId, now: Instant) -> Instant {
        let slot = self.slot_mut(id);
        slot.last_sent = now;
        let until = now.after(slot.lease.timing.ttl());
        std::mem::replace(&mut slot.unanswered_until, until)
    }

    /// Records that the last attempt of the claim was answered; `before` is what [`claim_sent`](Self::claim_sent)
    /// returned.
    pub fn claim_answered(&mut self, id: LeaseId, before: Instant) {
        self.slot_mut(id).unanswered_until = before;
    }

    /// Records that the claim waits in the store's queue: it may be granted the name from now on, and has to be
    /// released.
    pub fn claim_waits(&mut self, id: LeaseId) {
        if let Phase::Claiming { is_in_store } = &mut self.slot_mut(id).phase {
            *is_in_store = true;
        }
    }

    /// Begins to renew a lease that was granted with this token. Its term began with the attempt that left at
    /// `sent_at`, and is as long as `span`: the ttl, or less if a place in the queue was granted the name.
    ///
    /// # Errors
    /// Why the grant cannot be used. After `Late` the claim is still enrolled: ask again or give it up, which releases
    /// it.
    pub fn hold(
        &mut self,
        id: LeaseId,
        token: Token,
        sent_at: Instant,
        span: Duration,
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
        let since = sent_at.before(gained);
        let deadline = since.after(span.saturating_sub(lease.timing.margin()));
        let left = deadline.since(now);
        if left < Timing::FRESH.of(span) {
            self.transition(id, Phase::Claiming { is_in_store: true });
            return Err(Useless::Late);
        }
        if lease.signal.extend(deadline).is_err() {
            return Err(Useless::Ended);
        }
        lease.signal.note_grant(token);
        let renew_at = match span < lease.timing.ttl() {
            true => now.after(Timing::RENEWED_AFTER.of(left)),
            false => lease.timing.term(since).renew_at(true, self.random.u16(..)),
        };
        let mut holding = Holding {
            deadline,
            ends_at: Instant::ZERO,
            renew_at,
            attempt: None,
            counts_from: self.attempts + 1,
            failures: 0,
        };
        holding.ends_at = holding.end(lease);
        self.note_armed(holding.ends_at.min(holding.renew_at));
        self.transition(id, Phase::Held(holding));
        Ok(())
    }

    /// Begins the limits of a lease, when its caller receives it. A lease that no caller receives, such as the door of
    /// a pool, has none.
    pub fn limit(&mut self, id: LeaseId, limits: Limits, now: Instant) {
        let (slot, shard) = self.with_shard(id);
        let Slot { lease, phase, .. } = slot;
        let hold_until = now.after(limits.max_hold.unwrap_or(Duration::MAX));
        lease.bounds = Some(Box::new(Bounds { limits, hold_until }));
        lease.signal.note_progress(now);
        // Otherwise it was lost meanwhile.
        if let Phase::Held(holding) = phase {
            let end = holding.end(lease);
            shard.queues.move_end(id, holding, end);
            self.note_armed(end);
        }
    }
}

/// The end of a lease.
impl Schedule {
    /// Ends the enrollment of a lease before the caller sends its release, which keeps the name for this long. Returns
    /// the release, or `None` if there is nothing to release; and whether the lease was held until now. If no answer is
    /// reported in time, the loop sends the release.
    pub fn withdraw(
        &mut self,
        id: LeaseId,
        keep_for: Option<Duration>,
        now: Instant,
    ) -> (Option<Leaving>, bool) {
        let was_held = self.last_check(id, now);
        if !self.end_enrollment(id, keep_for) {
            return (None, was_held);
        }
        let leaving = Leaving {
            was_held,
            ..self.depart(id, false)
        };
        self.release_at(id, now.after(gives_up_after(leaving.limit)));
        (Some(leaving), was_held)
    }

    /// Ends the enrollment of a lease whose guard was dropped, and leaves its release to the loop. Returns whether the
    /// lease was held until now.
    pub fn leave(&mut self, id: LeaseId, keep_for: Option<Duration>, now: Instant) -> bool {
        let was_held = self.last_check(id, now);
        if self.end_enrollment(id, keep_for) {
            self.release_at(id, now);
        }
        was_held
    }

    /// Ends the enrollment of a claim that was given up, and leaves its release to the loop.
    pub fn give_up(&mut self, id: LeaseId, now: Instant) {
        if self.end_enrollment(id, None) {
            self.release_at(id, now);
        }
    }

    /// Returns whether a lease is held whose guard is about to go. Queues the news for the holder, if a `check()`, this
    /// one included, found a loss, and for the handles. None of their checks succeeds from then on.
    fn last_check(&mut self, id: LeaseId, now: Instant) -> bool {
        // Before the caller unlocks the schedule: from then on the release may be sent, and a rival granted the name.
        let end = self.slot(id).lease.signal.end(now);
        let was_held = end == LossReason::Released;
        if was_held {
            self.wake_waiters(id);
        } else {
            self.lose(id, end);
        }
        was_held
    }

    /// Stops the renewals of a lease. Returns whether something is left to release; if not, the lease is removed.
    fn end_enrollment(&mut self, id: LeaseId, keep_for: Option<Duration>) -> bool {
        let slot = self.slot(id);
        let is_in_store = match &slot.phase {
            Phase::Claiming { is_in_store: false } | Phase::Lost(LossReason::Refused) => {
                slot.is_doubtful()
            }
            Phase::Claiming { is_in_store: true } | Phase::Held(_) | Phase::Lost(_) => true,
            Phase::Leaving(_) => unreachable!("an enrollment ends once"),
        };
        if !is_in_store {
            self.forget(id);
            return false;
        }
        let keep_for = keep_for.filter(|_| match slot.phase {
            Phase::Held(_) => true,
            Phase::Lost(reason) => reason.is_of_the_client(),
            _ => false,
        });
        let ttl = slot.lease.timing.ttl();
        let leave = Leave {
            doubt: Doubt::new(slot.last_sent, ttl, slot.unanswered_until),
            keep_for,
            release_at: Instant::FAR_FUTURE,
            attempt: None,
        };
        self.transition(id, Phase::Leaving(Box::new(leave)));
        true
    }

    /// Plans the loop's release of a lease that is leaving, at this moment.
    fn release_at(&mut self, id: LeaseId, at: Instant) {
        let (slot, shard) = self.with_shard(id);
        if let Phase::Leaving(leave) = &mut slot.phase {
            leave.release_at = at;
            shard.queues.releases.insert(id, at);
        }
        self.note_armed(at);
    }

    /// The next release to send for a lease that is leaving.
    pub(super) fn depart(&mut self, id: LeaseId, is_of_the_loop: bool) -> Leaving {
        let attempt = self.next_attempt();
        let (slot, shard) = self.with_shard(id);
        let is_of_one_grant = slot.unanswered_until == Instant::ZERO;
        let Slot { lease, phase, .. } = slot;
        let Phase::Leaving(leave) = phase else {
            unreachable!("only what leaves is released");
        };
        leave.attempt = Some(attempt);
        Leaving {
            ticket: Ticket { id, attempt },
            shard: shard.number,
            name: lease.name.clone(),
            holder: lease.holder,
            keep_for: leave.keep_for,
            limit: term::answer_limit(lease.timing.ttl()),
            was_held: true,
            is_of_one_grant,
            is_of_the_loop,
        }
    }

    /// Records that a release of the loop to this shard was answered or failed: there is room for another.
    pub(super) fn release_landed(&mut self, shard: u32, has_failed: bool) {
        let shard = self.index_of(shard);
        let shard = &mut self.shards[shard];
        shard.releases_in_flight = shard.releases_in_flight.saturating_sub(1);
        shard.has_failed |= has_failed;
    }

    /// Records the answer to a release: `is_clear` if the store said what it did.
    pub(super) fn settle_release(&mut self, ticket: Ticket, is_clear: bool, now: Instant) {
        let Some((leave, ttl)) = self.take_leave(ticket) else {
            return;
        };
        let next = if is_clear {
            leave.keep_for = None;
            leave.doubt.answered(now, ttl)
        } else {
            leave.doubt.again(now, ttl)
        };
        match next {
            Some(at) => self.release_at(ticket.id, at),
            None => self.forget(ticket.id),
        }
    }

    /// Hands an abandoned release to the loop, which sends it again.
    pub(super) fn take_over(&mut self, ticket: Ticket, now: Instant) {
        if self.take_leave(ticket).is_some() {
            self.release_at(ticket.id, now);
        }
    }

    /// Returns the lease that still waits for the answer to this release, and its ttl. From then on it no longer waits.
    fn take_leave(&mut self, ticket: Ticket) -> Option<(&mut Leave, Duration)> {
        if !self.is_waiting_for(ticket) {
            return None;
        }
        let (slot, shard) = self.with_shard(ticket.id);
        let Phase::Leaving(leave) = &mut slot.phase else {
            return None;
        };
        shard.queues.releases.remove(ticket.id, leave.release_at);
        leave.attempt = None;
        Some((leave, slot.lease.timing.ttl()))
    }
}
