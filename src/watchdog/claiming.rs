//! A request for a lease, from its first claim to the grant: the claims that it sends, and the consequence of each
//! answer. Pure: `now` is an argument, and only the schedule changes.
//!
//! ```text
//!  enroll ──► sent ──► answered ─┬─► Granted    renewed from now on
//!    ▲         ▲                 ├─► Taken      by another: ask again, give up, or wait for a notice ──► Granted
//!    │         ├─────────────────┼─► Failed     the attempt may be open: ask again, or give up
//!    │         └─────────────────┼─► Again      granted too late: ask again at once
//!    └───────────────────────────┼─► Again      granted below a floor that rose: another holder asks
//!                                └─► TooLate, TokenFell: the request has ended
//! ```
//!
//! # Invariants
//! 1. An attempt is in doubt from before it is sent until its answer, and stays so if there is none, or if the failure
//!    does not prove that nothing was done.
//! 2. A grant counts from before its attempt was sent. The grant of a notice counts from before the last answered
//!    attempt was sent, and for the term of the place that this attempt confirmed.
//! 3. Each attempt carries the highest token that the client knows at that moment, and no grant at or below it is held.

use std::sync::Arc;
use std::time::Duration;

use super::schedule::{LeaseId, Leaving, Schedule, Useless};
use super::signal::Signal;
use crate::error::Error;
use crate::store::{Answer, Claim, Failed, Handover, Held, Queued, Sent};
use crate::term::{Instant, Timing};
use crate::token::Token;

/// Attempts give up after this many grants that were too old to use.
pub const USELESS_GRANTS: u32 = 3;

/// When a request gives up whose grants are of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// After this many useless grants.
    AfterGrants(u32),
    /// After a useless grant that was requested at this moment or later.
    At(Instant),
}

/// A request: one claim, or several in a row.
#[derive(Debug)]
pub struct Claiming {
    /// The token that the grant for the caller has to exceed.
    floor: Option<Token>,
    give_up: GiveUp,
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
    /// The place in the store's queue that the last attempt confirmed.
    place: Option<ConfirmedPlace>,
}

/// A place in the store's queue, as its client knows it.
#[derive(Debug, Clone, Copy)]
struct ConfirmedPlace {
    /// The highest token that can have been granted until then.
    height: u64,
    /// Its term began after this moment.
    sent_at: Instant,
    term: Duration,
}

/// An attempt that is under way. Dropped unanswered, it stays in doubt.
#[derive(Debug)]
#[must_use = "an attempt that is not answered stays in doubt"]
pub struct Asked {
    /// Read before it is sent: its grant's term begins here.
    pub sent_at: Instant,
    /// The token that its grant has to exceed.
    pub floor: Option<Token>,
    /// The request to the store's queue.
    pub queued: Option<Queued>,
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
    /// The grant cannot be used: ask again. With a release the claim has ended: send the release first, then enroll
    /// another claim. Without one the grant came too late, and the same holder gets the same lease for its full ttl.
    Again(Option<Leaving>),
    /// The grant cannot be used, like those before it. Send this release; the request has ended.
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
    pub const fn new(floor: Option<Token>, give_up: GiveUp) -> Self {
        Self {
            floor,
            give_up,
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
            place: None,
        });
        id.is_some()
    }

    /// Records that an attempt is sent now. Only one is under way at a time.
    pub fn sent(
        &mut self,
        schedule: &mut Schedule,
        queued: Option<Queued>,
        seen: Option<Token>,
        now: Instant,
    ) -> Asked {
        let enrolled = self.enrolled.as_mut().expect("it was enrolled before");
        // Its place may be another one once this attempt was carried out.
        enrolled.place = None;
        Asked {
            sent_at: now,
            floor: self.floor.max(seen),
            queued,
            before: schedule.claim_sent(enrolled.id, now),
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
            Ok(Answer::Held(held)) => {
                let enrolled = self.enrolled.as_mut().expect("it was asked for");
                if let (Some(place), Some(queued)) = (held.place, asked.queued) {
                    schedule.claim_waits(enrolled.id);
                    enrolled.place = Some(ConfirmedPlace {
                        height: place.height,
                        sent_at: asked.sent_at,
                        term: place.term(queued),
                    });
                }
                Verdict::Taken(held)
            }
            Ok(Answer::Granted(grant)) => self.granted(schedule, &asked, grant.token, seen, now),
        }
    }

    /// Takes in the notice of a grant, which extends nothing: the lease is held for the rest of the term that the last
    /// attempt confirmed, or until the end in the notice. Returns `None` if the notice does not prove that, or too
    /// little is left: ask the store.
    pub fn handed_over(
        &mut self,
        schedule: &mut Schedule,
        handover: &Handover,
        seen: Option<Token>,
        now: Instant,
    ) -> Option<NewLease> {
        let enrolled = self.enrolled.as_ref()?;
        let place = enrolled.place?;
        let floor = enrolled.first_floor.max(self.floor).max(seen);
        let is_above = floor.is_none_or(|floor| handover.token > floor);
        let is_later = handover.token.get() > place.height;
        if handover.holder != enrolled.claim.holder || !is_above || !is_later {
            return None;
        }
        let (id, token) = (enrolled.id, handover.token);
        let confirmed = place.sent_at.after(place.term);
        let (since, span) = match handover.ends_at {
            Some(end) => (now, end.min(confirmed).since(now)),
            None => (place.sent_at, place.term),
        };
        schedule.hold(id, token, since, span, now).ok()?;
        self.enrolled
            .take()
            .map(|enrolled| enrolled.held(token, now))
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
        let ttl = self.enrolled().claim.ttl;
        match schedule.hold(id, token, asked.sent_at, ttl, now) {
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
            // The floor rose while the claim was under way, and its holder would get the same token again. Another
            // claim must not find the name taken by this one, so the release goes first.
            let (leaving, _) = schedule.withdraw(id, None, now);
            return self.useless(leaving, asked);
        }
        Verdict::Granted(enrolled.held(token, asked.sent_at))
    }

    /// Counts a grant that cannot be used and is released. Decides whether the request gives up.
    fn useless(&mut self, leaving: Option<Leaving>, asked: &Asked) -> Verdict {
        let is_last = match &mut self.give_up {
            GiveUp::AfterGrants(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            GiveUp::At(end) => asked.sent_at >= *end,
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

impl Enrolled {
    fn held(self, token: Token, held_since: Instant) -> NewLease {
        NewLease {
            id: self.id,
            claim: self.claim,
            signal: self.signal,
            token,
            held_since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::name::Name;
    use crate::store::{Grant, Info, Place};

    const TTL: Duration = Duration::from_secs(30);
    const TERM: Duration = Duration::from_secs(3);

    /// One request, its schedule, and when it begins.
    struct Bench {
        schedule: Schedule,
        claiming: Claiming,
        begun: Instant,
    }

    impl Bench {
        fn new(give_up: GiveUp) -> Self {
            Self::at(Instant::ZERO.after(TTL), give_up)
        }

        fn at(begun: Instant, give_up: GiveUp) -> Self {
            let timing = Timing::new(TTL, None).expect("valid");
            let mut schedule = Schedule::new(7);
            let mut claiming = Claiming::new(None, give_up);
            let name = Name::new("a").expect("valid");
            let holder = Holder::new(ClientId::from_u128(1), 1);
            let claim = Claim::new(name, holder, TTL, Arc::new(Info::default()));
            let signal = Arc::new(Signal::new(begun));
            assert!(claiming.enroll(&mut schedule, claim, 0, timing, signal, None));
            Self {
                schedule,
                claiming,
                begun,
            }
        }

        fn after(&self, time: Duration) -> Instant {
            self.begun.after(time)
        }

        fn sent(&mut self, sent_at: Instant) -> Asked {
            let queued = Some(Queued::new(TTL));
            (self.claiming).sent(&mut self.schedule, queued, None, sent_at)
        }

        fn granted(&mut self, sent_at: Instant, answered_at: Instant) -> Verdict {
            let asked = self.sent(sent_at);
            let grant = Ok(Answer::Granted(Grant::new(Token::MAX)));
            (self.claiming).answered(&mut self.schedule, asked, grant, None, answered_at)
        }

        /// An attempt that leaves at this moment is told that it waits, and that this token may have been granted.
        fn waits(&mut self, height: u64, sent_at: Instant) {
            self.has(Place::new(height, 0), sent_at);
        }

        /// The same, with all that it is told of its place.
        fn has(&mut self, place: Place, sent_at: Instant) {
            let asked = self.sent(sent_at);
            let mut held = Held::new(Name::new("a").expect("valid"));
            held.place = Some(place);
            let answer = Ok(Answer::Held(Box::new(held)));
            let verdict =
                (self.claiming).answered(&mut self.schedule, asked, answer, None, sent_at);
            assert!(matches!(verdict, Verdict::Taken(_)), "{verdict:?}");
        }

        /// The notice of a grant to the claim.
        fn handed_over(&mut self, token: u64, now: Instant) -> Option<NewLease> {
            let claim = self.claiming.claim().expect("it is under way");
            self.told_of(claim.holder, token, now)
        }

        /// The notice of a grant to this claim.
        fn told_of(&mut self, holder: Holder, token: u64, now: Instant) -> Option<NewLease> {
            self.told(&handover(holder, token), now)
        }

        fn told(&mut self, handover: &Handover, now: Instant) -> Option<NewLease> {
            let seen = Token::new(9).ok();
            (self.claiming).handed_over(&mut self.schedule, handover, seen, now)
        }
    }

    fn handover(holder: Holder, token: u64) -> Handover {
        let name = Name::new("a").expect("valid");
        Handover::new(name, holder, Token::new(token).expect("valid"))
    }

    #[test]
    fn a_request_whose_grants_are_all_too_late_ends_with_its_limit() {
        let end = Instant::ZERO.after(TTL * 3);
        let mut bench = Bench::new(GiveUp::At(end));
        let begun = bench.begun;
        for sent_at in [begun, begun.after(TTL), end.before(Duration::from_nanos(1))] {
            let verdict = bench.granted(sent_at, sent_at.after(TTL));
            assert!(matches!(verdict, Verdict::Again(None)), "{verdict:?}");
        }
        let verdict = bench.granted(end, end.after(TTL));
        assert!(matches!(verdict, Verdict::TooLate(None)), "{verdict:?}");
        assert!(!bench.schedule.is_empty(), "the claim is released");
    }

    #[test]
    fn a_grant_with_less_than_a_quarter_left_is_too_late() {
        // The margin is 620 ms, and a quarter of the ttl 7.5 s.
        for (left, is_late) in [(7_500, false), (7_499, true)] {
            let mut bench = Bench::new(GiveUp::AfterGrants(2));
            let answered_at = bench.after(TTL - Duration::from_millis(620 + left));
            let verdict = bench.granted(bench.begun, answered_at);
            assert_eq!(
                matches!(verdict, Verdict::Again(None)),
                is_late,
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn a_notice_of_a_grant_extends_nothing() {
        let mut bench = Bench::new(GiveUp::AfterGrants(1));
        bench.waits(7, bench.begun);
        let now = bench.after(Duration::from_secs(1));
        let lease = bench.handed_over(10, now).expect("its own place");
        let deadline = lease.signal.deadline().expect("held");
        assert_eq!(deadline, bench.after(TERM - Duration::from_millis(620)));
        assert!(
            bench.schedule.next_wake() < deadline,
            "it is renewed before"
        );
    }

    #[test]
    fn a_grant_whose_end_is_told_counts_until_then_and_no_longer_than_its_term() {
        let (soon, late) = (TERM - Duration::from_secs(1), TERM * 2);
        for (kept_for, told, counted) in [
            (Some(TERM * 5), TERM, Some(TERM)),
            (Some(TERM * 5), TERM * 9, Some(TERM * 5)),
            (None, late, Some(TERM)),
            (None, soon, Some(soon)),
            (Some(TERM * 5), Duration::from_millis(1_826), None),
        ] {
            let mut bench = Bench::new(GiveUp::AfterGrants(1));
            let mut place = Place::new(7, 0);
            place.kept_for = kept_for;
            bench.has(place, bench.begun);
            let holder = bench.claiming.claim().expect("it is under way").holder;
            let handover = handover(holder, 10).with_end(bench.after(told));
            let lease = bench.told(&handover, bench.after(Duration::from_secs(1)));
            let deadline = lease.map(|lease| lease.signal.deadline().expect("held"));
            let counted = counted.map(|time| bench.after(time - Duration::from_millis(620)));
            assert_eq!(deadline, counted, "{kept_for:?}, {told:?}");
        }
    }

    #[test]
    fn a_term_that_began_just_after_the_clocks_zero_is_no_longer_than_it_is() {
        let mut bench = Bench::at(Instant::from_nanos(1), GiveUp::AfterGrants(1));
        bench.waits(7, bench.begun);
        let lease = bench.handed_over(10, bench.begun).expect("its own place");
        let deadline = lease.signal.deadline().expect("held");
        assert_eq!(deadline, bench.after(TERM - Duration::from_millis(620)));
    }

    #[test]
    fn a_notice_that_proves_nothing_has_the_store_asked() {
        let (begun, late) = (Duration::ZERO, Duration::from_millis(1_631));
        for (what, height, token, after) in [
            ("of an earlier grant", 12, 12, begun),
            ("a token that is not above those seen", 7, 9, begun),
            ("too little left", 7, 10, late),
        ] {
            let mut bench = Bench::new(GiveUp::AfterGrants(1));
            bench.waits(height, bench.begun);
            let now = bench.after(after);
            assert!(bench.handed_over(token, now).is_none(), "{what}");
            let verdict = bench.granted(now, now);
            assert!(
                matches!(verdict, Verdict::Granted(_)),
                "{what}: {verdict:?}"
            );
        }
    }

    #[test]
    fn a_notice_counts_for_its_own_claim_only() {
        let mut bench = Bench::new(GiveUp::AfterGrants(1));
        bench.waits(7, bench.begun);
        let other = Holder::new(ClientId::from_u128(1), 2);
        assert!(bench.told_of(other, 10, bench.begun).is_none());
        assert!(bench.handed_over(10, bench.begun).is_some());
    }

    #[test]
    fn a_place_counts_only_while_no_attempt_is_under_way() {
        let mut bench = Bench::new(GiveUp::AfterGrants(1));
        let now = bench.begun;
        assert!(bench.handed_over(10, now).is_none(), "it has none");
        bench.waits(7, now);
        let _unanswered = bench.sent(now);
        assert!(
            bench.handed_over(10, now).is_none(),
            "its term may have begun earlier"
        );
        bench.waits(8, now);
        assert!(bench.handed_over(10, now).is_some());
    }

    #[test]
    fn a_claim_that_waits_is_released_when_it_is_given_up() {
        let mut bench = Bench::new(GiveUp::AfterGrants(1));
        bench.waits(7, bench.begun);
        bench.claiming.given_up(&mut bench.schedule, bench.begun);
        assert!(!bench.schedule.is_empty());
    }
}
