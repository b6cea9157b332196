//! A request for a lease, from its first claim to the grant: what is sent for it, and what follows from each answer.
//! Pure: `now` is an argument, and the schedule is all that changes.
//!
//! ```text
//!  enroll ──► sent ──► answered ─┬─► Granted    renewed from now on
//!    ▲         ▲                 ├─► Taken      by another: ask again, or give up
//!    │         ├─────────────────┼─► Failed     the attempt may be open: ask again, or give up
//!    │         └─────────────────┼─► Again      granted too late: ask again at once
//!    └───────────────────────────┼─► Again      granted below a floor that rose: another holder asks
//!                                └─► TooLate, TokenFell: the request has ended
//! ```
//!
//! # Invariants
//! 1. An attempt is in doubt from before it is sent until its answer, and stays so if there is none, or if the failure
//!    does not prove that nothing was done.
//! 2. A grant counts from before its attempt was sent.
//! 3. Each attempt carries the highest token that the client knows at that moment, and no grant at or below it is held.

use std::sync::Arc;

use super::schedule::{LeaseId, Leaving, Schedule, Useless};
use super::signal::Signal;
use crate::error::Error;
use crate::store::{Answer, Claim, Failed, Held, Sent};
use crate::term::{Instant, Timing};
use crate::token::Token;

/// The number of useless grants after which a try gives up.
pub const USELESS_GRANTS: u32 = 3;

/// The time for which a request goes on asking while its grants are of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// This many useless grants end it.
    Grants(u32),
    /// A useless grant that was asked for at this moment or later ends it.
    Until(Instant),
}

/// A request: one claim, or several one after the other.
#[derive(Debug)]
pub struct Claiming {
    /// The token that the caller's has to exceed.
    floor: Option<Token>,
    patience: Patience,
    /// The claim that is under way.
    enrolled: Option<Enrolled>,
}

#[derive(Debug)]
struct Enrolled {
    id: LeaseId,
    claim: Claim,
    signal: Arc<Signal>,
    /// The floor of its first attempt: no grant of this claim can be below it unless the store forgot one.
    first_floor: Option<Token>,
}

/// An attempt that is under way. Dropped unanswered, it stays in doubt.
#[derive(Debug)]
#[must_use = "an attempt that is not answered stays in doubt"]
pub struct Asked {
    /// Read before it is sent: its grant's term begins here.
    pub sent_at: Instant,
    /// The token that its own has to exceed.
    pub floor: Option<Token>,
    /// The moment until which an earlier attempt may still be carried out, or zero.
    before: Instant,
}

/// The outcome of one attempt.
#[derive(Debug)]
#[must_use = "it says what to do next"]
pub enum Verdict {
    /// It is held, and renewed until its enrollment ends.
    Granted(NewLease),
    /// Another holder has the name. The claim is still enrolled.
    Taken(Box<Held>),
    /// The attempt failed, so the holder of the name is not known. The claim is still enrolled, unless the client was
    /// shut down, which ends the request.
    Failed(Error),
    /// The grant is of no use: ask again. With a release the claim has ended: send the release first, then enroll
    /// another. Without one the grant came too late, and the same holder gets the same lease for its full ttl.
    Again(Option<Leaving>),
    /// The grant is of no use, as were those before it. Send this release; the request has ended.
    TooLate(Option<Leaving>),
    /// The store granted a token that is not above what it granted before. The request has ended.
    TokenFell {
        /// The token that was granted.
        token: Token,
        /// The token that was seen before.
        seen: Token,
    },
}

/// A lease that was granted.
#[derive(Debug)]
pub struct NewLease {
    /// Its enrollment.
    pub id: LeaseId,
    /// The claim that was granted.
    pub claim: Claim,
    /// The number and the token that its guard shares with the watchdog.
    pub signal: Arc<Signal>,
    /// Its token.
    pub token: Token,
    /// From when its term counts.
    pub held_since: Instant,
}

impl Claiming {
    /// A request with a floor of its own.
    pub const fn new(floor: Option<Token>, patience: Patience) -> Self {
        Self {
            floor,
            patience,
            enrolled: None,
        }
    }

    /// The claim that is under way, as it is to be sent.
    pub fn claim(&self) -> Option<&Claim> {
        self.enrolled.as_ref().map(|enrolled| &enrolled.claim)
    }

    /// The signal of the claim that is under way.
    pub fn signal(&self) -> Option<&Signal> {
        self.enrolled.as_ref().map(|enrolled| &*enrolled.signal)
    }

    /// Enrolls a claim, with the shard of its name, before it is sent; `seen` is the highest token of the name that the
    /// client has seen. Returns whether it was enrolled: a schedule that is closing takes no claims.
    pub fn enroll(
        &mut self,
        schedule: &mut Schedule,
        claim: Claim,
        shard: u32,
        timing: Timing,
        signal: Arc<Signal>,
        seen: Option<Token>,
    ) -> bool {
        let (name, holder) = (claim.name.clone(), claim.holder);
        let id = schedule.enroll(name, holder, shard, timing, signal.clone());
        self.enrolled = id.map(|id| Enrolled {
            id,
            claim,
            signal,
            first_floor: self.floor.max(seen),
        });
        id.is_some()
    }

    /// Notes that an attempt is sent now. Only one is under way at a time.
    pub fn sent(&mut self, schedule: &mut Schedule, seen: Option<Token>, now: Instant) -> Asked {
        Asked {
            sent_at: now,
            floor: self.floor.max(seen),
            before: schedule.claim_sent(self.enrolled().id, now),
        }
    }

    /// Takes in the answer to an attempt.
    pub fn answered(
        &mut self,
        schedule: &mut Schedule,
        asked: Asked,
        answer: Result<Answer, Failed>,
        seen: Option<Token>,
        now: Instant,
    ) -> Verdict {
        let is_open = matches!(&answer, Err(failed) if failed.sent == Sent::Perhaps);
        if !is_open {
            schedule.claim_answered(self.enrolled().id, asked.before);
        }
        match answer {
            Err(failed) => Verdict::Failed(failed.error),
            Ok(Answer::Held(held)) => Verdict::Taken(held),
            Ok(Answer::Granted(grant)) => self.granted(schedule, &asked, grant.token, seen, now),
        }
    }

    /// Ends the request, answered or not.
    pub fn given_up(&mut self, schedule: &mut Schedule, now: Instant) {
        if let Some(enrolled) = self.enrolled.take() {
            schedule.give_up(enrolled.id, now);
        }
    }

    /// Holds the lease if the grant came in time and its token is above every token that the client has seen by now.
    fn granted(
        &mut self,
        schedule: &mut Schedule,
        asked: &Asked,
        token: Token,
        seen: Option<Token>,
        now: Instant,
    ) -> Verdict {
        let (id, first_floor) = (self.enrolled().id, self.enrolled().first_floor);
        match schedule.hold(id, token, asked.sent_at, now) {
            Ok(()) => {}
            Err(Useless::Late) => {
                let verdict = self.useless(None, asked);
                if matches!(verdict, Verdict::TooLate(_)) {
                    self.given_up(schedule, now);
                }
                return verdict;
            }
            Err(Useless::Ended) => {
                self.given_up(schedule, now);
                return Verdict::Failed(Error::shut_down());
            }
        }
        let is_below = |floor: &Token| token <= *floor;
        if let Some(seen) = first_floor.filter(is_below) {
            self.given_up(schedule, now);
            return Verdict::TokenFell { token, seen };
        }
        let enrolled = self.enrolled.take().expect("it was asked for");
        if self.floor.max(seen).as_ref().is_some_and(is_below) {
            // The floor rose while the claim was under way, and its holder is answered the same token again. Another
            // claim must not find the name taken by this one, so the release goes first.
            let (leaving, _) = schedule.withdraw(id, None, now);
            return self.useless(leaving, asked);
        }
        Verdict::Granted(NewLease {
            id,
            claim: enrolled.claim,
            signal: enrolled.signal,
            token,
            held_since: asked.sent_at,
        })
    }

    /// Counts a grant that is of no use, and is released so. The request gives up after it once its patience is at its
    /// end.
    fn useless(&mut self, leaving: Option<Leaving>, asked: &Asked) -> Verdict {
        let is_last = match &mut self.patience {
            Patience::Grants(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            Patience::Until(end) => asked.sent_at >= *end,
        };
        if is_last {
            Verdict::TooLate(leaving)
        } else {
            Verdict::Again(leaving)
        }
    }

    fn enrolled(&self) -> &Enrolled {
        self.enrolled.as_ref().expect("it was enrolled before")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::name::Name;
    use crate::store::{Grant, Info};

    #[test]
    fn a_request_whose_grants_are_all_too_late_ends_with_its_limit() {
        let ttl = Duration::from_secs(30);
        let timing = Timing::new(ttl, None).expect("valid");
        let begun = Instant::ZERO.after(ttl);
        let end = begun.after(ttl * 2);
        let mut schedule = Schedule::new(7);
        let mut claiming = Claiming::new(None, Patience::Until(end));
        let name = Name::new("a").expect("valid");
        let holder = Holder::new(ClientId::from_u128(1), 1);
        let claim = Claim::new(name, holder, ttl, Arc::new(Info::default()));
        let signal = Arc::new(Signal::new(begun));
        assert!(claiming.enroll(&mut schedule, claim, 0, timing, signal, None));
        let mut granted_late = |sent_at: Instant| {
            let asked = claiming.sent(&mut schedule, None, sent_at);
            let grant = Ok(Answer::Granted(Grant::new(Token::MAX)));
            let now = sent_at.after(ttl);
            claiming.answered(&mut schedule, asked, grant, None, now)
        };
        for sent_at in [begun, begun.after(ttl), end.before(Duration::from_nanos(1))] {
            let verdict = granted_late(sent_at);
            assert!(matches!(verdict, Verdict::Again(None)), "{verdict:?}");
        }
        let verdict = granted_late(end);
        assert!(matches!(verdict, Verdict::TooLate(None)), "{verdict:?}");
        assert!(!schedule.is_empty(), "the claim is released");
    }
}
