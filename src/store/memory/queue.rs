//! The clients that wait for one name in turn. Pure: `now` is an argument, and the clients to notify are returned.
//!
//! An offer keeps a freed name for one client for a short time. It is not a lease: it has no holder and no token, and
//! only a claim of that client turns it into a lease.

use std::collections::VecDeque;
use std::time::Duration;

use crate::holder::ClientId;
use crate::name::Name;
use crate::store::{Held, HeldState, Queued};
use crate::term::Instant;

/// The queue of one name.
#[derive(Debug, Default)]
pub(super) struct Queue {
    clients: VecDeque<Waiting>,
    offer: Option<Offer>,
}

#[derive(Debug)]
struct Waiting {
    client: ClientId,
    alive_until: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Offer {
    client: ClientId,
    ends_at: Instant,
}

/// The clients to notify after an offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Notified {
    /// The client whose turn it is.
    pub(super) first: ClientId,
    /// The next client.
    pub(super) behind: Option<ClientId>,
}

/// Says whether a claim may have a name that no holder has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It may have it.
    Free,
    /// The name is kept for another client for this long; with the clients to notify, if the offer is new.
    Offered(Duration, Option<Notified>),
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.offer.is_none()
    }

    /// Decides whether a claim may have a name that no holder has.
    pub(super) fn judge(&mut self, client: Option<ClientId>, now: Instant) -> Availability {
        if let Some(offer) = self.offer.filter(|offer| now < offer.ends_at) {
            return if client == Some(offer.client) {
                Availability::Free
            } else {
                Availability::Offered(offer.ends_at.since(now), None)
            };
        }
        if client.is_some() && self.first_live(now) == client {
            return Availability::Free;
        }
        match self.pass_on(now) {
            None => Availability::Free,
            told => Availability::Offered(Queued::OFFER, told),
        }
    }

    /// Offers a freed name to the first client that is alive. Returns `None` if there is none.
    pub(super) fn pass_on(&mut self, now: Instant) -> Option<Notified> {
        let first = self.first_live(now)?;
        self.clients.pop_front();
        self.offer = Some(Offer {
            client: first,
            ends_at: now.after(Queued::OFFER),
        });
        let behind = self.head();
        Some(Notified { first, behind })
    }

    /// Puts a client at the end, unless it is in the queue, and lets it count as alive. Returns how many live clients
    /// are before it.
    pub(super) fn join(&mut self, client: ClientId, now: Instant) -> usize {
        let alive_until = now.after(Queued::PATIENCE);
        let place = self.place(client).unwrap_or_else(|| {
            self.clients.push_back(Waiting {
                client,
                alive_until,
            });
            self.clients.len() - 1
        });
        self.clients[place].alive_until = alive_until;
        let before = self.clients.iter().take(place);
        before.filter(|waiting| waiting.alive_until > now).count()
    }

    /// Returns the first client, alive or not.
    pub(super) fn head(&self) -> Option<ClientId> {
        self.clients.front().map(|waiting| waiting.client)
    }

    /// Returns how many live clients wait.
    pub(super) fn waiting(&self, now: Instant) -> usize {
        let is_alive = |waiting: &&Waiting| waiting.alive_until > now;
        self.clients.iter().filter(is_alive).count()
    }

    /// Returns for how long the name is still kept for a client.
    pub(super) fn offered_for(&self, now: Instant) -> Option<Duration> {
        let offer = self.offer.filter(|offer| now < offer.ends_at);
        offer.map(|offer| offer.ends_at.since(now))
    }

    /// Takes a client out of the queue. Returns whether the name was kept for it.
    pub(super) fn leave(&mut self, client: ClientId) -> bool {
        self.clients.retain(|waiting| waiting.client != client);
        let was_offered = self.offer.is_some_and(|offer| offer.client == client);
        if was_offered {
            self.offer = None;
        }
        was_offered
    }

    /// Returns the first client that is alive. Drops dead clients before it; a client that let an offer expire is dead.
    fn first_live(&mut self, now: Instant) -> Option<ClientId> {
        if let Some(lapsed) = self.offer.take() {
            self.leave(lapsed.client);
        }
        let is_dead = |waiting: &Waiting| waiting.alive_until <= now;
        while self.clients.front().is_some_and(is_dead) {
            self.clients.pop_front();
        }
        self.head()
    }

    fn place(&self, client: ClientId) -> Option<usize> {
        let mut clients = self.clients.iter();
        clients.position(|waiting| waiting.client == client)
    }
}

/// Describes a name that is kept for a client in the queue.
pub(super) fn offered(name: &Name, remaining: Duration) -> Held {
    let mut held = Held::new(name.clone());
    held.remaining = Some(remaining);
    held.state = HeldState::Offered;
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId::from_u128(1);
    const B: ClientId = ClientId::from_u128(2);
    const C: ClientId = ClientId::from_u128(3);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn queue() -> Queue {
        let mut queue = Queue::default();
        assert_eq!(queue.join(A, at(0)), 0);
        assert_eq!(queue.join(B, at(0)), 1);
        assert_eq!(queue.join(A, at(0)), 0, "it keeps its place");
        queue
    }

    #[test]
    fn a_freed_name_is_kept_for_the_first_client() {
        let mut queue = queue();
        let told = queue.pass_on(at(1)).expect("a client waits");
        assert_eq!((told.first, told.behind), (A, Some(B)));
        for other in [None, Some(B), Some(C)] {
            assert_eq!(
                queue.judge(other, at(2)),
                Availability::Offered(at(3).since(at(2)), None)
            );
        }
        assert_eq!(queue.judge(Some(A), at(2)), Availability::Free);
    }

    #[test]
    fn an_offer_that_lapses_goes_to_the_next_and_its_client_is_out() {
        let mut queue = queue();
        queue.pass_on(at(1)).expect("a client waits");
        assert_eq!(queue.judge(Some(B), at(3)), Availability::Free);
        queue.leave(B);
        assert_eq!(queue.judge(None, at(3)), Availability::Free);
        assert!(queue.is_empty());
    }

    #[test]
    fn no_client_overtakes_a_live_one_and_dead_clients_are_removed() {
        let mut queue = queue();
        queue.join(B, at(5));
        // The patience for A ends at 9, that for B at 14.
        let verdict = queue.judge(None, at(10));
        let told = Notified {
            first: B,
            behind: None,
        };
        assert_eq!(verdict, Availability::Offered(Queued::OFFER, Some(told)));
    }

    #[test]
    fn a_client_that_leaves_gives_its_offer_back() {
        let mut queue = queue();
        assert!(!queue.leave(B));
        queue.pass_on(at(1)).expect("a client waits");
        assert!(queue.leave(A));
        assert_eq!(queue.pass_on(at(1)), None);
    }
}
