//! What the store remembers of each holder that has asked: the token that it proposed last.
//!
//! A client asks again with the same holder, while it waits and after a lost reply. After a grant the answer has to be
//! the token that was granted. After a proposal that brought no grant the next one has to be above it, because what was
//! taken back may be freed at any later moment by a request that is still on its way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::TakenBack;
use super::planted::Planted;
use crate::holder::Holder;
use crate::store::Info;
use crate::term::Instant;
use crate::token::Token;

/// For how many ttls after its last request a holder is remembered that did not release. After one of them nothing of it
/// is left on any member, and no request of it is on its way for as long as ten.
const TTLS: u32 = 10;

/// So many more holders than were left by the last sweep bring the next one, so that a sweep costs little for each claim.
const SWEEP_AT_LEAST: usize = 64;

/// The last proposal of each holder.
#[derive(Debug, Default)]
pub struct Proposals {
    of: HashMap<Holder, Proposed>,
    /// With how many holders those are forgotten next that have sent nothing for a long time.
    sweep_at: usize,
    planted: Planted,
}

#[derive(Debug)]
struct Proposed {
    last: LastProposal,
    info: Arc<Info>,
    forget_at: Instant,
}

/// The token that a holder proposed last, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastProposal {
    token: Token,
    is_granted: bool,
    /// The last token that was granted to it, also after it has lost the name.
    granted: Option<Token>,
}

/// Which token a holder has to propose next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextProposal {
    /// Any: it has not asked before.
    Fresh,
    /// One above this, which brought no grant.
    Above(Token),
    /// This one, which was granted. It is never taken back. Only when so many members say that they do not have it that
    /// no majority can, it counts as lost, and a higher one is proposed.
    Again(Token),
}

impl Proposals {
    /// Returns an empty memory in which something may be wrong.
    pub fn new(planted: Planted) -> Self {
        Self {
            of: HashMap::new(),
            sweep_at: 0,
            planted,
        }
    }

    /// Returns what this holder has to propose next.
    pub fn next(&self, holder: Holder) -> NextProposal {
        let of_holder = self.of.get(&holder);
        of_holder.map_or(NextProposal::Fresh, |proposed| {
            proposed.last.next(self.planted)
        })
    }

    /// Notes a proposal before it is sent.
    pub fn note_sent(
        &mut self,
        holder: Holder,
        token: Token,
        info: &Arc<Info>,
        ttl: Duration,
        now: Instant,
    ) {
        if self.of.len() >= self.sweep_at {
            self.sweep(now);
            self.sweep_at = 2 * self.of.len() + SWEEP_AT_LEAST;
        }
        let forget_at = now.after(ttl * TTLS);
        let proposed = self.of.entry(holder).or_insert_with(|| Proposed {
            last: LastProposal::sent(token),
            info: info.clone(),
            forget_at,
        });
        proposed.last.send(token);
        proposed.forget_at = proposed.forget_at.max(forget_at);
    }

    /// Notes that this token was granted to its holder.
    pub fn note_granted(&mut self, holder: Holder, token: Token) {
        if let Some(proposed) = self.of.get_mut(&holder) {
            proposed.last.grant(token);
        }
    }

    /// Notes that no majority has what was granted to this holder any more.
    pub fn note_lost(&mut self, holder: Holder) {
        if let Some(proposed) = self.of.get_mut(&holder) {
            proposed.last.lose();
        }
    }

    /// Returns how a proposal of this token is taken back that brought this holder no grant.
    pub fn taking_back(&self, holder: Holder, token: Token) -> TakenBack {
        let of_holder = self.of.get(&holder);
        of_holder.map_or(TakenBack::up_to(token), |proposed| {
            proposed.last.taking_back(token, self.planted)
        })
    }

    /// Notes that a renewal of this holder was sent.
    pub fn note_renewal(&mut self, holder: Holder, ttl: Duration, now: Instant) {
        if let Some(proposed) = self.of.get_mut(&holder) {
            proposed.forget_at = proposed.forget_at.max(now.after(ttl * TTLS));
        }
    }

    /// Returns what the holder tells about itself, for a repair.
    pub fn info(&self, holder: Holder) -> Option<Arc<Info>> {
        Some(self.of.get(&holder)?.info.clone())
    }

    /// Forgets a holder that has released its name.
    pub fn forget(&mut self, holder: Holder) {
        self.of.remove(&holder);
    }

    /// Forgets the holders that have sent nothing for a long time.
    pub fn sweep(&mut self, now: Instant) {
        self.of.retain(|_, proposed| now < proposed.forget_at);
    }

    /// Returns how many holders are remembered.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Returns whether no holder is remembered.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

impl LastProposal {
    /// Returns what is remembered after the first proposal of a holder.
    pub const fn sent(token: Token) -> Self {
        Self {
            token,
            is_granted: false,
            granted: None,
        }
    }

    /// Notes that this token is proposed now.
    pub fn send(&mut self, token: Token) {
        self.is_granted &= self.token == token;
        self.token = token;
    }

    /// Notes that this token was granted.
    pub fn grant(&mut self, token: Token) {
        self.is_granted |= self.token == token;
        self.granted = self.granted.max(Some(token));
    }

    /// Notes that no majority has what was granted any more.
    pub const fn lose(&mut self) {
        self.is_granted = false;
    }

    /// Returns what has to be proposed next.
    pub const fn next(self, planted: Planted) -> NextProposal {
        match planted.is_remembered_as_granted(self.is_granted) {
            true => NextProposal::Again(self.token),
            false => NextProposal::Above(self.token),
        }
    }

    /// Returns how a proposal of this token is taken back that brought no grant: what was granted before stays counted.
    pub const fn taking_back(self, token: Token, planted: Planted) -> TakenBack {
        let above = planted.kept_when_taking_back(self.granted);
        TakenBack { token, above }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::ClientId;

    const TTL: Duration = Duration::from_secs(30);
    const AT: Instant = Instant::from_nanos(7_000_000_000);

    fn holder() -> Holder {
        Holder::new(ClientId::from_u128(7), 1)
    }

    fn token(number: u64) -> Token {
        Token::new(number).expect("within the limits")
    }

    fn after_sending(number: u64) -> Proposals {
        let mut proposals = Proposals::default();
        proposals.note_sent(holder(), token(number), &Arc::default(), TTL, AT);
        proposals
    }

    #[test]
    fn a_holder_that_never_asked_proposes_anything() {
        assert_eq!(Proposals::default().next(holder()), NextProposal::Fresh);
    }

    #[test]
    fn after_a_proposal_without_a_grant_the_next_is_above_it() {
        let proposals = after_sending(5);
        assert_eq!(proposals.next(holder()), NextProposal::Above(token(5)));
    }

    #[test]
    fn after_a_grant_the_same_token_is_asked_for() {
        let mut proposals = after_sending(5);
        proposals.note_granted(holder(), token(5));
        assert_eq!(proposals.next(holder()), NextProposal::Again(token(5)));
        proposals.note_sent(holder(), token(5), &Arc::default(), TTL, AT);
        assert_eq!(proposals.next(holder()), NextProposal::Again(token(5)));
    }

    #[test]
    fn a_late_grant_of_an_earlier_proposal_is_no_grant_of_the_last() {
        let mut proposals = after_sending(5);
        proposals.note_sent(holder(), token(6), &Arc::default(), TTL, AT);
        proposals.note_granted(holder(), token(5));
        assert_eq!(proposals.next(holder()), NextProposal::Above(token(6)));
    }

    #[test]
    fn after_a_grant_that_was_lost_the_next_is_above_it_and_it_stays_known() {
        let mut proposals = after_sending(5);
        let taken = proposals.taking_back(holder(), token(5));
        assert_eq!(taken, TakenBack::up_to(token(5)));
        proposals.note_granted(holder(), token(5));
        proposals.note_lost(holder());
        assert_eq!(proposals.next(holder()), NextProposal::Above(token(5)));
        proposals.note_sent(holder(), token(6), &Arc::default(), TTL, AT);
        let taken = TakenBack {
            token: token(6),
            above: Some(token(5)),
        };
        assert_eq!(proposals.taking_back(holder(), token(6)), taken);
    }

    #[test]
    fn a_release_is_forgotten_at_once() {
        let mut proposals = after_sending(5);
        proposals.forget(holder());
        assert_eq!(proposals.next(holder()), NextProposal::Fresh);
        assert!(proposals.is_empty());
    }

    #[test]
    fn a_holder_is_forgotten_ten_ttls_after_its_last_request() {
        let mut proposals = after_sending(5);
        proposals.sweep(AT.after(TTL * 9));
        assert_eq!(proposals.len(), 1);
        proposals.note_renewal(holder(), TTL, AT.after(TTL * 9));
        proposals.sweep(AT.after(TTL * 18));
        assert_eq!(proposals.len(), 1);
        assert!(proposals.info(holder()).is_some());
        proposals.sweep(AT.after(TTL * 19));
        assert!(proposals.is_empty());
    }
}
