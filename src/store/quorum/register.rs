//! What a member keeps of one name, and the rules by which it takes a token. The scripts of the Redis half follow it
//! step by step.
//!
//! A register has the lease, and a counter that outlives it. The counter keeps the last token that was taken and the
//! one before it, so that a claim that got no majority can be taken back: without that, every client that tries at a
//! member whose lease is missing would bar the true holder from that member for good.

use std::time::Duration;

use super::micros;
use super::planted::{Planted, QuorumBug};
use super::renewal::Extension;
use crate::holder::Holder;
use crate::store::Eviction;
use crate::token::Token;

/// The lease and the counter of one name at one member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register {
    tenure: Option<Tenure>,
    counter: Option<Counter>,
}

/// A lease at one member. It counts for the quorum only where a majority has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// The holder. `None` if the name was released and is kept for a while.
    pub holder: Option<Holder>,
    /// The token that was taken.
    pub token: Token,
    /// When it is over, by the member's clock.
    pub ends_at_us: u64,
    /// Whether an operator evicted the holder.
    pub is_evicted: bool,
}

/// The tokens that were taken for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter {
    /// The highest token that was taken and not taken back, the last one apart. `None` if the last one is all that there
    /// is: once that is taken back there is no counter any more, as before. A repair counts from the clock.
    pub token: Option<u64>,
    /// Who took it; `None` once that holder released the name.
    pub by: Option<(Holder, Token)>,
    /// The last token that was taken. It counts as much as `token` until it is taken back.
    pub last: Option<Attempted>,
    /// When the counter may be forgotten, by the member's clock: not before the clock has passed the tokens.
    pub forget_at_us: u64,
}

/// The last token that a member took for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempted {
    /// The token.
    pub token: Token,
    /// Who took it; `None` once that holder released the name.
    pub by: Option<Holder>,
}

/// A token that a holder proposes to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proposal {
    /// The holder.
    pub holder: Holder,
    /// The token. The member takes this one or none.
    pub token: Token,
    /// How long the member keeps the lease.
    pub ttl: Duration,
    /// What it is proposed for.
    pub purpose: Purpose,
}

/// What a token is proposed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// A claim. The member's vote counts.
    Claim,
    /// A lease that a majority has confirmed, and this member does not have. The vote counts for nothing.
    Repair,
}

/// A member's answer to a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vote {
    /// This holder has the name at this member, under this token.
    Yes(Token),
    /// The name is taken at this member: by another holder, or kept, or its holder was evicted.
    Held(Tenure),
    /// The name is free at this member, and the token is not high enough.
    Low {
        /// A token above this one would have been taken.
        floor: u64,
        /// The part of it that binds all names of the server, because it came back without its data; 0 for none.
        of_server: u64,
    },
    /// The token is too far in front of the member's clock.
    Ahead,
    /// The member came back without its data and grants nothing for this many microseconds.
    Away(u64),
    /// The other clients of this member have another longest ttl, in milliseconds.
    Mismatch(u64),
}

/// Which tokens of a holder are taken back: those that brought no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TakenBack {
    /// This token and those below it.
    pub token: Token,
    /// But none at or below this one, which was granted to the holder before it lost the name. A granted token stays
    /// counted wherever it was taken: otherwise it could be granted again.
    pub above: Option<Token>,
}

impl TakenBack {
    /// Returns the taking back of this token by a holder that was never granted the name.
    pub const fn up_to(token: Token) -> Self {
        let above = None;
        Self { token, above }
    }

    fn covers(self, token: Token) -> bool {
        token <= self.token && self.above.is_none_or(|above| token > above)
    }
}

/// What a member freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Freed {
    /// The lease of this holder.
    Freed,
    /// No lease: this holder had none here.
    NotHeld,
}

impl Register {
    /// Returns the lease, if its time is not over.
    pub fn tenure(&self, now_us: u64) -> Option<Tenure> {
        self.tenure.filter(|tenure| tenure.ends_at_us > now_us)
    }

    /// Returns the counter, if it is not forgotten.
    pub fn counter(&self, now_us: u64) -> Option<Counter> {
        let counter = self.counter;
        counter.filter(|counter| counter.forget_at_us > now_us)
    }

    /// Forgets what is over.
    pub fn expire(&mut self, now_us: u64) {
        self.tenure = self.tenure(now_us);
        self.counter = self.counter(now_us);
    }

    /// Ends the lease before its time, as a member does whose clock gained that much. For the model.
    pub fn expire_early(&mut self) {
        self.tenure = None;
    }

    /// Takes the proposed token, or refuses it. `server_floor` binds all names of a server that came back without its
    /// data; `memory` is how long the counter is kept after the clock has passed it.
    pub fn hold(
        &mut self,
        proposal: &Proposal,
        server_floor: u64,
        memory: Duration,
        now_us: u64,
        planted: Planted,
    ) -> Vote {
        self.expire(now_us);
        let ends_at_us = now_us.saturating_add(micros(proposal.ttl));
        if let Some(tenure) = &mut self.tenure {
            if planted.blocks(tenure, proposal) {
                return Vote::Held(*tenure);
            }
            if tenure.holder == Some(proposal.holder) && tenure.token >= proposal.token {
                tenure.ends_at_us = ends_at_us;
                return Vote::Yes(tenure.token);
            }
        }
        let (last, by) = self.last();
        let token = planted.minted(proposal.token, last, now_us);
        let is_again = planted.is_again(by, proposal);
        let floor = last.unwrap_or(now_us).max(server_floor);
        let takes = match proposal.purpose {
            Purpose::Claim => {
                planted.is_above(token.get(), floor) || is_again && token.get() > server_floor
            }
            Purpose::Repair => planted.repairs(token.get() > last.unwrap_or(0) || is_again),
        };
        if !takes {
            let of_server = server_floor;
            return Vote::Low { floor, of_server };
        }
        // A claim is above the clock where there was no counter. A repair may be below it, and no claim may follow it there.
        let was = last.or((proposal.purpose == Purpose::Repair).then_some(now_us));
        let counter = Counter {
            token: was,
            by,
            last: None,
            forget_at_us: 0,
        };
        let highest = token.get().max(was.unwrap_or(0));
        let before = self.counter.filter(|_| is_again).unwrap_or(counter);
        self.counter = Some(Counter {
            last: Some(Attempted {
                token,
                by: Some(proposal.holder),
            }),
            forget_at_us: now_us
                .saturating_add(micros(memory))
                .saturating_add(planted.in_front(highest.saturating_sub(now_us))),
            ..before
        });
        self.tenure = Some(Tenure {
            holder: Some(proposal.holder),
            token,
            ends_at_us,
            is_evicted: false,
        });
        Vote::Yes(token)
    }

    /// Returns the highest token that was taken, and who took it last.
    fn last(&self) -> (Option<u64>, Option<(Holder, Token)>) {
        match self.counter {
            None => (None, None),
            Some(Counter {
                token, by, last, ..
            }) => match last {
                None => (token, by),
                Some(last) => (
                    token.max(Some(last.token.get())),
                    last.by.map(|holder| (holder, last.token)),
                ),
            },
        }
    }

    /// Takes back what this holder took, and puts the counter back as it was before, also if there was none: a lease that
    /// is in use elsewhere under a lower token than the clock can still be put back here.
    pub fn take_back(
        &mut self,
        holder: Holder,
        taken: TakenBack,
        now_us: u64,
        planted: Planted,
    ) -> Freed {
        self.expire(now_us);
        let is_covered =
            |token: Token| taken.covers(token) || planted.has(QuorumBug::TakenBackByHolder);
        if let Some(counter) = &mut self.counter
            && let Some(last) = counter.last
            && last.by == Some(holder)
            && is_covered(last.token)
        {
            counter.last = None;
            self.counter = self.counter.filter(|counter| counter.token.is_some());
        }
        let is_own = |tenure: &Tenure| tenure.holder == Some(holder) && is_covered(tenure.token);
        match self.tenure.take_if(|tenure| is_own(tenure)) {
            Some(_) => Freed::Freed,
            None => Freed::NotHeld,
        }
    }

    /// Releases the name if this holder has it. The counter stays, but nothing of this holder that is still on its way
    /// takes the name here again. With `keep_for` the name stays taken for that long.
    pub fn release(&mut self, holder: Holder, keep_for: Option<Duration>, now_us: u64) -> Freed {
        self.expire(now_us);
        if let Some(counter) = &mut self.counter {
            if let Some(last) = &mut counter.last {
                last.by = last.by.filter(|by| *by != holder);
            }
            counter.by = counter.by.filter(|(by, _)| *by != holder);
        }
        let tenure = self.tenure.as_mut();
        let Some(tenure) = tenure.filter(|tenure| tenure.holder == Some(holder)) else {
            return Freed::NotHeld;
        };
        match keep_for.filter(|_| !tenure.is_evicted) {
            Some(rest) => {
                tenure.holder = None;
                tenure.ends_at_us = now_us.saturating_add(micros(rest));
            }
            None => self.tenure = None,
        }
        Freed::Freed
    }

    /// Extends the lease of this grant. It never creates one.
    ///
    /// The token is compared too: what a member has of this holder under an older token may be freed at any moment by
    /// a request that is still on its way.
    pub fn renew(
        &mut self,
        holder: Holder,
        token: Token,
        ttl: Duration,
        now_us: u64,
        planted: Planted,
    ) -> Extension {
        self.expire(now_us);
        let ends_at_us = now_us.saturating_add(micros(ttl));
        let is_of_grant = |tenure: &&mut Tenure| {
            tenure.holder == Some(holder)
                && (tenure.token == token || planted.has(QuorumBug::RenewalIgnoresTheToken))
        };
        let is_free = self.tenure.is_none();
        match self.tenure.as_mut().filter(is_of_grant) {
            Some(tenure) if tenure.is_evicted => Extension::Evicted,
            Some(tenure) => {
                let from_us = planted.extended_from(now_us, tenure.ends_at_us);
                tenure.ends_at_us = from_us.saturating_add(micros(ttl));
                Extension::Renewed
            }
            None if is_free && planted.has(QuorumBug::RenewalCreates) => {
                self.tenure = Some(Tenure {
                    holder: Some(holder),
                    token,
                    ends_at_us,
                    is_evicted: false,
                });
                Extension::Renewed
            }
            None => Extension::Refused,
        }
    }

    /// Evicts the holder. Returns whether the name was held, and for [`Eviction::Now`] whether it was taken at all.
    ///
    /// What is left of the holder in the counter goes too, so that nothing of it that is still on its way takes the name
    /// here again.
    pub fn evict(&mut self, how: Eviction, now_us: u64, planted: Planted) -> bool {
        self.expire(now_us);
        if let Some(counter) = &mut self.counter
            && !planted.has(QuorumBug::EvictionKeepsTheHolder)
        {
            counter.by = None;
            if let Some(last) = &mut counter.last {
                last.by = None;
            }
        }
        match (how, &mut self.tenure) {
            (Eviction::Now, tenure) => tenure.take().is_some(),
            (Eviction::Marked, Some(tenure)) if tenure.holder.is_some() => {
                tenure.is_evicted = true;
                true
            }
            (Eviction::Marked, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::ClientId;

    const NOW: u64 = 1_000_000_000;
    const TTL: Duration = Duration::from_secs(10);
    const MEMORY: Duration = Duration::from_secs(60);

    fn holder(number: u64) -> Holder {
        Holder::new(ClientId::from_u128(7), number)
    }

    fn token(above: u64) -> Token {
        Token::new(NOW + above).expect("within the limits")
    }

    fn propose(holder_number: u64, above: u64, purpose: Purpose) -> Proposal {
        Proposal {
            holder: holder(holder_number),
            token: token(above),
            ttl: TTL,
            purpose,
        }
    }

    /// A register, its clock and the floor of its server.
    #[derive(Default)]
    struct Desk {
        register: Register,
        later: u64,
        floor: u64,
    }

    impl Desk {
        fn now(&self) -> u64 {
            NOW + self.later
        }

        fn ask(&mut self, proposal: &Proposal) -> Vote {
            let now = self.now();
            let planted = Planted::default();
            self.register
                .hold(proposal, self.floor, MEMORY, now, planted)
        }

        fn claim(&mut self, holder: u64, above: u64) -> Vote {
            self.ask(&propose(holder, above, Purpose::Claim))
        }

        fn repair(&mut self, holder: u64, above: u64) -> Vote {
            self.ask(&propose(holder, above, Purpose::Repair))
        }

        fn take_back(&mut self, of: u64, above: u64) -> Freed {
            let planted = Planted::default();
            self.register.take_back(
                holder(of),
                TakenBack::up_to(token(above)),
                NOW + self.later,
                planted,
            )
        }

        fn take_back_since(&mut self, of: u64, granted: u64, above: u64) -> Freed {
            let taken = TakenBack {
                token: token(above),
                above: Some(token(granted)),
            };
            let planted = Planted::default();
            self.register
                .take_back(holder(of), taken, self.now(), planted)
        }

        fn release(&mut self, of: u64) -> Freed {
            self.register.release(holder(of), None, NOW + self.later)
        }

        fn renew(&mut self, of: u64, above: u64) -> Extension {
            let planted = Planted::default();
            let now = self.now();
            self.register
                .renew(holder(of), token(above), TTL, now, planted)
        }

        fn sleep(&mut self, duration: Duration) {
            self.later += micros(duration);
        }
    }

    fn low(above: u64) -> Vote {
        Vote::Low {
            floor: NOW + above,
            of_server: 0,
        }
    }

    fn is_held(vote: Vote) -> bool {
        matches!(vote, Vote::Held(_))
    }

    #[test]
    fn without_a_counter_a_token_must_be_above_the_clock() {
        let mut desk = Desk::default();
        assert_eq!(desk.claim(1, 0), low(0));
        assert_eq!(desk.claim(1, 1), Vote::Yes(token(1)));
    }

    #[test]
    fn only_a_token_above_all_that_were_taken_is_taken() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        desk.release(1);
        assert_eq!(desk.claim(2, 5), low(5));
        assert_eq!(desk.claim(2, 4), low(5));
        assert_eq!(desk.claim(2, 6), Vote::Yes(token(6)));
    }

    #[test]
    fn a_name_of_another_holder_is_held_for_its_ttl() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        desk.sleep(TTL - Duration::from_micros(1));
        assert!(is_held(desk.claim(2, 6_000_000_000)));
        desk.sleep(Duration::from_micros(1));
        assert_eq!(
            desk.claim(2, 6_000_000_000),
            Vote::Yes(token(6_000_000_000))
        );
    }

    #[test]
    fn a_holder_that_asks_again_gets_the_token_that_it_has_and_the_full_ttl() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        desk.sleep(TTL / 2);
        assert_eq!(desk.claim(1, 5), Vote::Yes(token(5)));
        assert_eq!(
            desk.claim(1, 3),
            Vote::Yes(token(5)),
            "a request that is late"
        );
        desk.sleep(TTL / 2);
        assert!(desk.register.tenure(desk.now()).is_some());
    }

    #[test]
    fn a_holder_that_proposes_more_gets_that() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        assert_eq!(desk.claim(1, 7), Vote::Yes(token(7)));
    }

    #[test]
    fn the_last_holder_takes_its_token_again_and_no_other_does() {
        let mut desk = Desk::default();
        desk.claim(1, 20_000_000);
        desk.sleep(TTL);
        assert_eq!(desk.claim(2, 20_000_000), low(20_000_000));
        assert_eq!(desk.claim(1, 20_000_000), Vote::Yes(token(20_000_000)));
    }

    #[test]
    fn a_holder_that_released_takes_its_token_no_more() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        assert_eq!(desk.release(1), Freed::Freed);
        assert_eq!(desk.release(1), Freed::NotHeld);
        assert_eq!(desk.claim(1, 5), low(5));
        assert_eq!(desk.repair(1, 5), low(5));
    }

    #[test]
    fn a_holder_that_released_before_a_try_of_another_takes_its_token_no_more() {
        let mut desk = Desk::default();
        desk.claim(1, 20_000_000);
        desk.sleep(TTL);
        desk.claim(2, 30_000_000);
        desk.release(1);
        desk.take_back(2, 30_000_000);
        assert_eq!(desk.claim(1, 20_000_000), low(20_000_000));
    }

    #[test]
    fn taking_back_frees_the_name_and_puts_the_counter_back() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        desk.release(1);
        desk.claim(2, 9);
        assert_eq!(desk.take_back(2, 9), Freed::Freed);
        assert_eq!(desk.claim(3, 5), low(5));
        assert_eq!(desk.claim(3, 6), Vote::Yes(token(6)));
    }

    #[test]
    fn a_claim_without_success_at_a_member_that_forgot_the_name_does_not_bar_its_holder() {
        let mut desk = Desk {
            later: 20,
            ..Desk::default()
        };
        desk.claim(2, 25);
        assert_eq!(desk.take_back(2, 25), Freed::Freed);
        assert_eq!(desk.register.counter(desk.now()), None);
        assert_eq!(desk.repair(1, 5), Vote::Yes(token(5)));
        desk.take_back(1, 5);
        assert_eq!(desk.claim(2, 19), low(20), "it is above the clock of then");
    }

    #[test]
    fn a_late_taking_back_leaves_a_higher_token_of_the_same_holder() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        desk.claim(1, 6);
        assert_eq!(desk.take_back(1, 5), Freed::NotHeld);
        assert!(is_held(desk.claim(2, 7)));
        assert_eq!(desk.take_back(1, 6), Freed::Freed);
    }

    #[test]
    fn taking_back_leaves_what_another_holder_took() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        assert_eq!(desk.take_back(2, 9), Freed::NotHeld);
        assert!(is_held(desk.claim(3, 7)));
        assert_eq!(desk.renew(1, 5), Extension::Renewed);
    }

    #[test]
    fn a_token_that_was_granted_stays_counted_when_a_later_one_is_taken_back() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        assert_eq!(desk.take_back_since(1, 5, 9), Freed::NotHeld);
        assert_eq!(desk.renew(1, 5), Extension::Renewed);
        assert_eq!(desk.claim(1, 9), Vote::Yes(token(9)));
        assert_eq!(desk.take_back_since(1, 5, 9), Freed::Freed);
        assert_eq!(desk.claim(2, 5), low(5));
        assert_eq!(desk.claim(2, 6), Vote::Yes(token(6)));
    }

    #[test]
    fn a_renewal_compares_holder_and_token_and_creates_nothing() {
        let mut desk = Desk::default();
        assert_eq!(desk.renew(1, 5), Extension::Refused);
        assert_eq!(desk.register, Register::default());
        desk.claim(1, 5);
        assert_eq!(desk.renew(1, 4), Extension::Refused);
        assert_eq!(desk.renew(1, 6), Extension::Refused);
        assert_eq!(desk.renew(2, 5), Extension::Refused);
        desk.sleep(TTL / 2);
        assert_eq!(desk.renew(1, 5), Extension::Renewed);
        desk.sleep(TTL / 2);
        assert_eq!(desk.renew(1, 5), Extension::Renewed);
        desk.sleep(TTL);
        assert_eq!(desk.renew(1, 5), Extension::Refused);
    }

    #[test]
    fn a_repair_puts_a_lease_back_where_a_rival_tried_and_took_back() {
        let mut desk = Desk::default();
        desk.claim(1, 20_000_000);
        desk.sleep(TTL);
        desk.claim(2, 30_000_000);
        assert!(
            is_held(desk.repair(1, 20_000_000)),
            "the rival's try is there"
        );
        desk.take_back(2, 30_000_000);
        assert_eq!(desk.repair(1, 20_000_000), Vote::Yes(token(20_000_000)));
    }

    #[test]
    fn a_repair_never_passes_a_higher_token() {
        let mut desk = Desk::default();
        desk.claim(1, 20_000_000);
        desk.sleep(TTL);
        desk.claim(2, 30_000_000);
        desk.release(2);
        assert_eq!(desk.repair(1, 20_000_000), low(30_000_000));
    }

    #[test]
    fn the_floor_of_a_server_binds_claims_also_repeated_ones_and_no_repair() {
        let mut desk = Desk {
            floor: NOW + 100,
            ..Desk::default()
        };
        let refused = Vote::Low {
            floor: NOW + 100,
            of_server: NOW + 100,
        };
        assert_eq!(desk.claim(1, 100), refused);
        assert_eq!(desk.repair(1, 100), Vote::Yes(token(100)));
        desk.sleep(TTL);
        assert_eq!(
            desk.claim(1, 100),
            refused,
            "it was the last, and is not above the floor"
        );
        let above = 100 + micros(TTL);
        assert_eq!(desk.claim(1, above), Vote::Yes(token(above)));
    }

    #[test]
    fn a_counter_outlives_the_moment_at_which_the_clock_passes_it() {
        let mut desk = Desk::default();
        let front = micros(MEMORY) * 3;
        desk.claim(1, front);
        desk.release(1);
        desk.sleep(MEMORY * 4 - Duration::from_micros(1));
        assert!(desk.register.counter(desk.now()).is_some());
        desk.sleep(Duration::from_micros(1));
        assert!(desk.register.counter(desk.now()).is_none());
        assert_eq!(desk.claim(2, front), low(micros(MEMORY) * 4));
    }

    #[test]
    fn an_evicted_holder_is_told_and_the_name_stays_taken() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        let now = desk.now();
        assert!(
            desk.register
                .evict(Eviction::Marked, now, Planted::default())
        );
        assert_eq!(desk.renew(1, 5), Extension::Evicted);
        assert!(is_held(desk.claim(1, 6)));
        assert!(is_held(desk.claim(2, 6)));
        assert!(is_held(desk.repair(1, 5)));
        desk.sleep(TTL);
        assert_eq!(desk.repair(1, 5), low(5));
    }

    #[test]
    fn what_is_evicted_at_once_does_not_come_back() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        let now = desk.now();
        assert!(desk.register.evict(Eviction::Now, now, Planted::default()));
        assert!(!desk.register.evict(Eviction::Now, now, Planted::default()));
        assert_eq!(desk.repair(1, 5), low(5));
        assert_eq!(desk.claim(1, 5), low(5));
    }

    #[test]
    fn a_name_that_is_kept_is_held_by_no_one_for_that_long() {
        let mut desk = Desk::default();
        desk.claim(1, 5);
        let now = desk.now();
        desk.register.release(holder(1), Some(TTL), now);
        assert_eq!(desk.renew(1, 5), Extension::Refused);
        assert!(is_held(desk.claim(1, 6)));
        assert_eq!(desk.release(1), Freed::NotHeld);
        assert!(
            !desk
                .register
                .evict(Eviction::Marked, now, Planted::default())
        );
        desk.sleep(TTL);
        assert_eq!(
            desk.claim(1, micros(TTL) + 1),
            Vote::Yes(token(micros(TTL) + 1))
        );
    }
}
