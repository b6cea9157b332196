//! The clients that wait for one name in turn. Pure: `now` is an argument.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::holder::{ClientId, Holder};
use crate::store::{Ask, Claim, Info, Queued};
use crate::term::Instant;
use crate::token::Token;

/// The queue of one name, in the order of joining.
#[derive(Debug, Default)]
pub struct Queue(VecDeque<Waiting>);

/// A client's place.
#[derive(Debug)]
pub struct Waiting {
    /// The client.
    pub client: ClientId,
    /// The end of its term.
    pub until: Instant,
    /// Whether the client [listens](Queued::listens), as it said.
    pub listens: bool,
    /// The claim that a freed name is granted to. `None` once it was released: another caller of the client may take
    /// the place.
    pub claim: Option<WaitingClaim>,
}

/// A claim that waits.
#[derive(Debug)]
pub struct WaitingClaim {
    pub holder: Holder,
    pub floor: Option<Token>,
    pub info: Arc<Info>,
}

impl Queue {
    /// Keeps the client's place with this claim, for a term from now. Returns whether the client has one.
    pub fn stay(&mut self, claim: &Claim, ask: Ask, queued: Queued, now: Instant) -> bool {
        let client = claim.holder.client();
        self.0.retain(|waiting| waiting.until > now);
        let place = self.0.iter_mut().find(|waiting| waiting.client == client);
        place
            .map(|waiting| waiting.renew(claim, ask, queued, now))
            .is_some()
    }

    /// Puts the client at the end, unless it is in the queue. Returns how many clients are before it.
    pub fn join(&mut self, claim: &Claim, ask: Ask, queued: Queued, now: Instant) -> usize {
        if !self.stay(claim, ask, queued, now) {
            let mut last = Waiting {
                client: claim.holder.client(),
                until: now,
                listens: false,
                claim: None,
            };
            last.renew(claim, ask, queued, now);
            self.0.push_back(last);
        }
        let client = claim.holder.client();
        let before = self.0.iter().take_while(|waiting| waiting.client != client);
        before.filter(|waiting| waiting.claim.is_some()).count()
    }

    /// Takes the first place out that is live, has a claim, and is not passed over.
    pub fn take_next(
        &mut self,
        now: Instant,
        is_passed_over: impl Fn(&Waiting) -> bool,
    ) -> Option<Waiting> {
        self.0.retain(|waiting| waiting.until > now);
        let is_next = |waiting: &Waiting| waiting.claim.is_some() && !is_passed_over(waiting);
        let next = self.0.iter().position(is_next)?;
        self.0.remove(next)
    }

    /// Takes this holder's claim out of its place, which stays for its term.
    pub fn vacate(&mut self, holder: Holder) {
        for waiting in &mut self.0 {
            waiting.claim.take_if(|claim| claim.holder == holder);
        }
    }

    /// Returns the first client whose claim waits.
    pub fn first(&self, now: Instant) -> Option<ClientId> {
        self.live(now).next().map(|waiting| waiting.client)
    }

    /// Returns how many clients wait.
    pub fn waiting(&self, now: Instant) -> usize {
        self.live(now).count()
    }

    /// Returns whether no place is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn live(&self, now: Instant) -> impl Iterator<Item = &Waiting> {
        let waiting = self.0.iter();
        waiting.filter(move |waiting| waiting.until > now && waiting.claim.is_some())
    }
}

impl Waiting {
    fn renew(&mut self, claim: &Claim, ask: Ask, queued: Queued, now: Instant) {
        self.until = self.until.max(now.after(queued.term));
        self.listens = queued.listens;
        self.claim = Some(WaitingClaim::of(claim, ask));
    }
}

impl WaitingClaim {
    pub fn of(claim: &Claim, ask: Ask) -> Self {
        Self {
            holder: claim.holder,
            floor: ask.floor,
            info: claim.info.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::name::Name;

    const TTL: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn claim(client: u128, secret: u64) -> Claim {
        let holder = Holder::new(ClientId::from_u128(client), secret);
        let name = Name::new("a").expect("valid");
        Claim::new(name, holder, TTL, Arc::default())
    }

    #[test]
    fn a_client_keeps_its_place_while_it_claims_and_joins_the_end_after_its_term() {
        let mut queue = Queue::default();
        let (a, b) = (claim(1, 1), claim(2, 1));
        let mut join =
            |claim: &Claim, now| queue.join(claim, Ask::default(), Queued::new(TTL), at(now));
        assert_eq!(join(&a, 0), 0);
        assert_eq!(join(&b, 0), 1);
        assert_eq!(join(&a, 2), 0, "it keeps its place");
        assert_eq!(join(&b, 4), 1, "its term ended at 3");
        assert_eq!(join(&a, 6), 1, "it comes back as the last one");
    }

    #[test]
    fn a_claim_that_is_released_leaves_its_place_to_another_of_its_client() {
        let mut queue = Queue::default();
        let (one, other, rival) = (claim(1, 1), claim(1, 2), claim(2, 1));
        let queued = Queued::new(TTL);
        queue.join(&one, Ask::default(), queued, at(0));
        queue.join(&rival, Ask::default(), queued, at(0));
        queue.vacate(one.holder);
        assert_eq!(
            (queue.waiting(at(0)), queue.first(at(0))),
            (1, Some(ClientId::from_u128(2)))
        );
        assert!(queue.stay(&other, Ask::default(), queued, at(1)));
        let next = queue.take_next(at(1), |_| false).expect("two wait");
        assert_eq!(next.claim.map(|claim| claim.holder), Some(other.holder));
        queue.vacate(rival.holder);
        assert!(queue.take_next(at(1), |_| false).is_none());
        assert!(!queue.is_empty(), "its place stays for its term");
    }
}
