//! The entries of one shard that wait for their moments: four queues, ordered by time.
//!
//! # Invariant
//! A lease is in `ends` exactly while it is held, in `renewals` or in `due` while it is held and no renewal of it is in
//! flight, and in `releases` while it leaves and the loop has no release of it in flight. It is there under the moments
//! of its [`Holding`], or of its release; a moment is changed here, together with the queue.

use std::collections::BTreeSet;

use super::LeaseId;
use super::slot::Holding;
use crate::term::Instant;

type Queue = BTreeSet<(Instant, LeaseId)>;

/// The queues of one shard.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// By the end of the hold, or an earlier one that a renewal has put off since.
    ends: Queue,
    /// By the moment of the next renewal.
    renewals: Queue,
    /// Renewals whose moment has come, by the deadline: what is nearest to it goes first.
    due: Queue,
    /// By the moment of the next release.
    releases: Queue,
}

impl Queues {
    /// Takes in a lease that is held from now on.
    pub(super) fn arm(&mut self, id: LeaseId, holding: &Holding) {
        self.ends.insert((holding.ends_at, id));
        self.arm_renewal(id, holding);
    }

    /// Takes out a lease that is held no longer.
    pub(super) fn disarm(&mut self, id: LeaseId, holding: &Holding) {
        self.ends.remove(&(holding.ends_at, id));
        self.renewals.remove(&(holding.renew_at, id));
        self.due.remove(&(holding.deadline, id));
    }

    /// Hands a lease that is held over to the queues of another shard.
    pub(super) fn hand_over(&mut self, to: &mut Self, id: LeaseId, holding: &Holding) {
        let hand_over = |from: &mut Queue, to: &mut Queue, at| {
            if from.remove(&(at, id)) {
                to.insert((at, id));
            }
        };
        hand_over(&mut self.ends, &mut to.ends, holding.ends_at);
        hand_over(&mut self.renewals, &mut to.renewals, holding.renew_at);
        hand_over(&mut self.due, &mut to.due, holding.deadline);
    }

    /// Changes the moments of a lease, wherever it is queued.
    pub(super) fn rearm(
        &mut self,
        id: LeaseId,
        holding: &mut Holding,
        change: impl FnOnce(&mut Holding),
    ) {
        self.ends.remove(&(holding.ends_at, id));
        let is_due = self.due.remove(&(holding.deadline, id));
        let is_armed = self.renewals.remove(&(holding.renew_at, id));
        change(holding);
        self.ends.insert((holding.ends_at, id));
        if is_due {
            self.due.insert((holding.deadline, id));
        }
        if is_armed {
            self.arm_renewal(id, holding);
        }
    }

    /// Arms the next renewal of a lease that has none in flight any more.
    pub(super) fn arm_renewal(&mut self, id: LeaseId, holding: &Holding) {
        self.renewals.insert((holding.renew_at, id));
    }

    /// Moves the end of a lease.
    pub(super) fn move_end(&mut self, id: LeaseId, holding: &mut Holding, ends_at: Instant) {
        self.ends.remove(&(holding.ends_at, id));
        holding.ends_at = ends_at;
        self.ends.insert((ends_at, id));
    }

    /// All leases that are held, by their end.
    pub(super) fn by_end(&self) -> impl Iterator<Item = LeaseId> {
        self.ends.iter().map(|(_, id)| *id)
    }

    /// The first lease whose end has come.
    pub(super) fn ended(&self, now: Instant) -> Option<LeaseId> {
        first_until(&self.ends, now)
    }
}

/// Renewals that fall due.
impl Queues {
    /// Returns whether the moment of a renewal has come.
    pub(super) fn has_renewal(&self, now: Instant) -> bool {
        first_until(&self.renewals, now).is_some()
    }

    /// Takes out renewals whose moment has come, at most this number. They go on in [`push_due`](Self::push_due).
    pub(super) fn take_renewals(&mut self, now: Instant, most: usize) -> Vec<LeaseId> {
        let next = || {
            let id = first_until(&self.renewals, now)?;
            self.renewals.pop_first();
            Some(id)
        };
        std::iter::from_fn(next).take(most).collect()
    }

    /// Takes out a renewal before its turn. Returns whether it was there, and not due already or in flight.
    pub(super) fn take_renewal(&mut self, renew_at: Instant, id: LeaseId) -> bool {
        self.renewals.remove(&(renew_at, id))
    }

    /// Takes in a renewal that is due, by its deadline.
    pub(super) fn push_due(&mut self, deadline: Instant, id: LeaseId) {
        self.due.insert((deadline, id));
    }

    /// The renewals that are due, by their deadlines.
    pub(super) fn due(&self) -> impl Iterator<Item = (Instant, LeaseId)> {
        self.due.iter().copied()
    }

    /// Takes out a renewal that is sent now.
    pub(super) fn take_due(&mut self, due: (Instant, LeaseId)) {
        self.due.remove(&due);
    }
}

/// Releases.
impl Queues {
    /// Takes in a release that is to be sent then.
    pub(super) fn arm_release(&mut self, id: LeaseId, release_at: Instant) {
        self.releases.insert((release_at, id));
    }

    /// Takes out a release that was to be sent then. Returns whether it was there.
    pub(super) fn disarm_release(&mut self, id: LeaseId, release_at: Instant) -> bool {
        self.releases.remove(&(release_at, id))
    }

    /// All that waits for room: renewals that are due, and releases.
    pub(super) fn waiting(&self) -> impl Iterator<Item = LeaseId> {
        self.due.iter().chain(&self.releases).map(|(_, id)| *id)
    }

    /// The first release whose moment has come.
    pub(super) fn first_release(&self, now: Instant) -> Option<LeaseId> {
        first_until(&self.releases, now)
    }

    /// Takes out the first release.
    pub(super) fn take_release(&mut self) {
        self.releases.pop_first();
    }
}

impl Queues {
    /// Returns when the next entry is due, among those for which there is room. A renewal that is already due counts as
    /// due at zero; to become due takes no room.
    pub(super) fn next(&self, has_batch_room: bool, has_release_room: bool) -> Instant {
        let first = |queue: &Queue, has_room: bool| {
            let first = queue.first().filter(|_| has_room);
            first.map_or(Instant::FAR_FUTURE, |(at, _)| *at)
        };
        let next_batch = if has_batch_room && !self.due.is_empty() {
            Instant::ZERO
        } else {
            first(&self.renewals, true)
        };
        let next_release = first(&self.releases, has_release_room);
        first(&self.ends, true).min(next_batch).min(next_release)
    }
}

fn first_until(queue: &Queue, now: Instant) -> Option<LeaseId> {
    let first = queue.first().filter(|(at, _)| *at <= now);
    first.map(|(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The view of the schedule's tests.
    impl Queues {
        /// In how many queues this lease waits for its end, and in how many for its next renewal.
        pub(in super::super) fn places(&self, id: LeaseId, holding: &Holding) -> (usize, usize) {
            let is_armed = self.renewals.contains(&(holding.renew_at, id));
            let is_due = self.due.contains(&(holding.deadline, id));
            (
                usize::from(self.ends.contains(&(holding.ends_at, id))),
                usize::from(is_armed) + usize::from(is_due),
            )
        }

        /// Returns whether this lease waits for its release then.
        pub(in super::super) fn has_release(&self, id: LeaseId, release_at: Instant) -> bool {
            self.releases.contains(&(release_at, id))
        }

        /// Returns when the renewals are planned that are not due, in order.
        pub(in super::super) fn planned(&self) -> impl Iterator<Item = Instant> {
            self.renewals.iter().map(|(at, _)| *at)
        }

        /// Returns how many wait for an end, a renewal, a release.
        pub(in super::super) fn lengths(&self) -> (usize, usize, usize) {
            let renewals = self.renewals.len() + self.due.len();
            (self.ends.len(), renewals, self.releases.len())
        }
    }
}
