//! The clients that wait for one name in turn. Pure: `now` is an argument.

use std::collections::VecDeque;

use crate::holder::ClientId;
use crate::store::Queued;
use crate::term::Instant;

/// The queue of one name.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Waiting>);

#[derive(Debug)]
struct Waiting {
    client: ClientId,
    alive_until: Instant,
}

impl Queue {
    /// Returns the first client that is alive, and removes the dead ones before it.
    pub(super) fn first_live(&mut self, now: Instant) -> Option<ClientId> {
        let is_dead = |waiting: &Waiting| waiting.alive_until <= now;
        while self.0.front().is_some_and(is_dead) {
            self.0.pop_front();
        }
        self.head()
    }

    /// Returns the first client, alive or not.
    pub(super) fn head(&self) -> Option<ClientId> {
        self.0.front().map(|waiting| waiting.client)
    }

    /// Puts a client at the end, unless it is in the queue, and lets it count as alive. Returns how many live clients
    /// are before it.
    pub(super) fn join(&mut self, client: ClientId, now: Instant) -> usize {
        let alive_until = now.after(Queued::PATIENCE);
        let place = self.0.iter().position(|waiting| waiting.client == client);
        let place = place.unwrap_or(self.0.len());
        if place == self.0.len() {
            self.0.push_back(Waiting {
                client,
                alive_until,
            });
        }
        self.0[place].alive_until = alive_until;
        let before = self.0.iter().take(place);
        before.filter(|waiting| waiting.alive_until > now).count()
    }

    /// Removes a client. Returns whether the queue is empty now.
    pub(super) fn leave(&mut self, client: ClientId) -> bool {
        self.0.retain(|waiting| waiting.client != client);
        self.0.is_empty()
    }

    /// Returns how many live clients wait.
    pub(super) fn waiting(&self, now: Instant) -> usize {
        let waiting = self.0.iter();
        waiting.filter(|waiting| waiting.alive_until > now).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId::from_u128(1);
    const B: ClientId = ClientId::from_u128(2);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn no_client_overtakes_a_live_one_and_dead_clients_are_removed() {
        let mut queue = Queue::default();
        assert_eq!(queue.join(A, at(0)), 0);
        assert_eq!(queue.join(B, at(0)), 1);
        assert_eq!(queue.join(A, at(0)), 0, "it keeps its place");
        assert_eq!(queue.join(B, at(5)), 1);
        assert_eq!(queue.first_live(at(8)), Some(A));
        // The patience for A ends at 9, that for B at 14.
        assert_eq!(queue.waiting(at(10)), 1);
        assert_eq!(queue.join(B, at(10)), 0);
        assert_eq!(queue.first_live(at(10)), Some(B));
        assert_eq!(queue.join(A, at(10)), 1, "it comes back as the last one");
        assert!(!queue.leave(A));
        assert!(queue.leave(B));
        assert_eq!(queue.first_live(at(10)), None);
    }
}
