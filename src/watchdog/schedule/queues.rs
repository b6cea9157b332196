//! The entries of one shard that wait for their moments: four queues, ordered by time.
//!
//! # Invariant
//! A lease is in `ends` exactly while it is held, in `renewals` or in `due` while it is held and no renewal of it is in
//! flight, and in `releases` while it leaves and the loop has no release of it in flight. It is there under the moments
//! of its [`Holding`], or of its release.

use std::collections::BTreeSet;

use super::LeaseId;
use super::slot::Holding;
use crate::term::Instant;

/// The queues of one shard.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// By the end of the hold, or an earlier one that a renewal has put off since.
    pub(super) ends: Queue,
    /// By the moment of the next renewal.
    pub(super) renewals: Queue,
    /// Renewals whose moment has come, by the deadline: what is nearest to it goes first.
    pub(super) due: Queue,
    /// By the moment of the next release.
    pub(super) releases: Queue,
}

/// Leases by one of their moments.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeSet<(Instant, LeaseId)>);

impl Queue {
    pub(super) fn insert(&mut self, id: LeaseId, at: Instant) {
        self.0.insert((at, id));
    }

    /// Takes a lease out. Returns whether it was there, under this moment.
    pub(super) fn remove(&mut self, id: LeaseId, at: Instant) -> bool {
        self.0.remove(&(at, id))
    }

    /// The first lease, if its moment has come.
    pub(super) fn first_until(&self, now: Instant) -> Option<LeaseId> {
        let first = self.0.first().filter(|(at, _)| *at <= now);
        first.map(|(_, id)| *id)
    }

    /// Takes out the first lease, if its moment has come.
    pub(super) fn pop_until(&mut self, now: Instant) -> Option<LeaseId> {
        let first = self.first_until(now)?;
        self.0.pop_first();
        Some(first)
    }

    /// All leases with their moments, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Instant, LeaseId)> {
        self.0.iter().copied()
    }

    /// The first moment of all.
    fn next(&self) -> Instant {
        let first = self.0.first();
        first.map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }
}

/// Where a held lease waits for its next renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextRenewal {
    /// Among those whose moment is still to come.
    Planned,
    /// Among those that are due.
    Due,
    /// In no queue: it is in flight, or on its way from one queue to the other.
    Sent,
}

impl Queues {
    /// Takes in a lease that is held, by its moments now.
    pub(super) fn arm(&mut self, id: LeaseId, holding: &Holding, renewal: NextRenewal) {
        self.ends.insert(id, holding.ends_at);
        match renewal {
            NextRenewal::Planned => self.renewals.insert(id, holding.renew_at),
            NextRenewal::Due => self.due.insert(id, holding.deadline),
            NextRenewal::Sent => {}
        }
    }

    /// Takes a lease that is held out of all queues, before it leaves them or its moments are changed. Returns where it
    /// waited for its renewal.
    pub(super) fn disarm(&mut self, id: LeaseId, holding: &Holding) -> NextRenewal {
        self.ends.remove(id, holding.ends_at);
        if self.renewals.remove(id, holding.renew_at) {
            NextRenewal::Planned
        } else if self.due.remove(id, holding.deadline) {
            NextRenewal::Due
        } else {
            NextRenewal::Sent
        }
    }

    /// Moves the end of a lease.
    pub(super) fn move_end(&mut self, id: LeaseId, holding: &mut Holding, ends_at: Instant) {
        self.ends.remove(id, holding.ends_at);
        holding.ends_at = ends_at;
        self.ends.insert(id, ends_at);
    }

    /// Returns when the next entry is due, among those that there is room for. A renewal that is already due counts as
    /// due at zero; to become due takes no room.
    pub(super) fn next(&self, has_batch_room: bool, has_release_room: bool) -> Instant {
        if has_batch_room && !self.due.0.is_empty() {
            return Instant::ZERO;
        }
        let next = self.ends.next().min(self.renewals.next());
        if has_release_room {
            next.min(self.releases.next())
        } else {
            next
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The view of the schedule's tests.
    impl Queues {
        /// In how many queues this lease waits for its end, and in how many for its next renewal.
        pub(crate) fn counts(&self, id: LeaseId, holding: &Holding) -> (usize, usize) {
            let has = |queue: &Queue, at| usize::from(queue.0.contains(&(at, id)));
            let renewals = has(&self.renewals, holding.renew_at) + has(&self.due, holding.deadline);
            (has(&self.ends, holding.ends_at), renewals)
        }

        /// Returns whether this lease waits for its release then.
        pub(crate) fn has_release(&self, id: LeaseId, release_at: Instant) -> bool {
            self.releases.0.contains(&(release_at, id))
        }

        /// Returns how many wait for an end, a renewal, a release.
        pub(crate) fn lengths(&self) -> (usize, usize, usize) {
            let renewals = self.renewals.0.len() + self.due.0.len();
            (self.ends.0.len(), renewals, self.releases.0.len())
        }
    }
}
