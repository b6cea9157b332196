//! The tasks of this client that wait for one name, and when the first of them polls again. Pure: `now` is an argument,
//! and the task to wake is returned.
//!
//! # Invariants
//! 1. Only the first waiter polls, one poll at a time.
//! 2. After a notice a poll begins, whatever becomes of the waiter that it woke.
//! 3. A poll whose outcome was not reported is made again, by the same waiter or by the next one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::wake::{Sleeper, Wake};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::{Handover, Held};
use crate::term::Instant;

/// The waiters of one name, in the order of their arrival.
#[derive(Debug)]
pub struct Waiters {
    waiters: BTreeMap<WaiterId, Sleeper>,
    next_poll: NextPoll,
    found: Option<Found>,
    /// The last waiter at the time of that poll.
    found_for: WaiterId,
    /// The polls in a row that failed.
    pub failures: u32,
    /// The grant that the last notice told of.
    handover: Option<Box<Handover>>,
    /// Notices may have been missed since the last poll began: that one confirmed nothing.
    has_missed: bool,
    /// A notice came for them: the store has listened since.
    pub hears: bool,
    /// While the client follows the name for these waiters: the number of notices in a row that no task wanted.
    pub followed: Option<u32>,
}

/// The key of a queue: waiters that claim the name do not queue with those that only wait until it is free.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueueKey {
    /// The name.
    pub name: Name,
    /// What its waiters wait for.
    pub awaited: WaitFor,
}

/// The event that a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitFor {
    /// A grant of the name, in turn with other clients where the store has a queue.
    Grant,
    /// That the name is free.
    Freedom,
}

/// The number of a waiter: a waiter that joined later has a greater one.
pub type WaiterId = u64;

/// The moment of the next poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextPoll {
    /// Under way. Exits: Planned (the name is held; it is due if a notice came meanwhile, or if it was given up).
    Making { has_notice: bool },
    /// To be made by the first waiter at this moment; at [`DUE`], at once. Exits: Making (the moment has come).
    Planned(Instant),
}

/// The moment of a poll that is due.
const DUE: Instant = Instant::ZERO;

/// The finding of a poll without a grant: the holder, or why the store could not be asked.
pub type Found = Result<Arc<Held>, Error>;

/// The next step of a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Polls, and reports what it found. A notice may have told of a grant.
    Poll(Option<Box<Handover>>),
    /// Sleeps until this moment, or until it is woken.
    Sleep(Instant),
}

/// Makes the error of a wait for this name that ran out of time or failed in an outage, from what its last poll found.
pub(crate) fn no_grant(name: &Name, found: Found) -> Error {
    match found {
        Err(error) => error,
        Ok(held) => {
            let what = format!("acquire failed: the limit ran out name={name}");
            Error::new(ErrorKind::TimedOut, what).with_source(Held::clone(&held))
        }
    }
}

impl Waiters {
    /// A queue without waiters.
    pub fn new(followed: Option<u32>) -> Self {
        Self {
            waiters: BTreeMap::new(),
            next_poll: NextPoll::Planned(DUE),
            found: None,
            found_for: 0,
            failures: 0,
            handover: None,
            has_missed: false,
            hears: false,
            followed,
        }
    }

    /// Returns whether it has no waiters.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns whether it has no waiters and is kept because it is followed.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.followed.is_some()
    }

    /// Takes a waiter in, as the last one.
    pub fn join(&mut self, ticket: WaiterId, waiter: Sleeper) {
        self.waiters.insert(ticket, waiter);
    }

    /// Returns what this waiter does next. With `Poll`, its poll has begun.
    pub fn step(&mut self, ticket: WaiterId, now: Instant) -> Action {
        match self.next_poll {
            // Others are before it.
            _ if !self.is_first(ticket) => Action::Sleep(Instant::FAR_FUTURE),
            NextPoll::Planned(at) if now < at => Action::Sleep(at),
            _ => Action::Poll(self.begin_poll()),
        }
    }

    /// A poll begins. Returns the grant that a notice told of, if notices came since the last poll.
    fn begin_poll(&mut self) -> Option<Box<Handover>> {
        self.next_poll = NextPoll::Making { has_notice: false };
        let has_missed = std::mem::take(&mut self.has_missed);
        self.handover.take().filter(|_| !has_missed)
    }

    /// Takes in the notice of a grant.
    pub fn hand_over(&mut self, handover: Box<Handover>) -> Wake {
        self.handover = Some(handover);
        self.on_notice()
    }

    /// Records that notices may have been missed: what the last poll confirmed no longer counts.
    pub fn miss(&mut self) -> Wake {
        self.has_missed = true;
        self.on_notice()
    }

    /// The next poll is due.
    pub fn poll_soon(&mut self) {
        if let NextPoll::Planned(at) = &mut self.next_poll {
            *at = DUE;
        }
    }

    /// Takes in a notice that the name may have been freed.
    pub fn on_notice(&mut self) -> Wake {
        match &mut self.next_poll {
            NextPoll::Making { has_notice } => {
                *has_notice = true;
                Wake::NONE
            }
            NextPoll::Planned(planned) if *planned > DUE => {
                *planned = DUE;
                self.wake_first()
            }
            NextPoll::Planned(_) => Wake::NONE,
        }
    }

    /// The poll of the first waiter brought no grant. It is made again at `at`, or at once if a notice came meanwhile.
    pub fn found(&mut self, found: Found, at: Instant) {
        self.failures = if found.is_err() { self.failures + 1 } else { 0 };
        self.found = Some(found);
        self.found_for = self.waiters.last_key_value().map_or(0, |(last, _)| *last);
        self.plan(at);
    }

    /// Removes a waiter that was granted the name. No other client can have it before `until`, unless it is freed.
    pub fn granted(&mut self, ticket: WaiterId, until: Instant) -> Wake {
        self.plan(until);
        // Earlier results are outdated.
        (self.found, self.handover) = (None, None);
        self.leave(ticket)
    }

    /// The first waiter gives up the poll that it began, without an outcome. It is due again.
    pub fn poll_again(&mut self, ticket: WaiterId) {
        if self.is_first(ticket) {
            self.give_up_poll();
        }
    }

    /// Removes a waiter, the first or another.
    pub fn leave(&mut self, ticket: WaiterId) -> Wake {
        let was_first = self.is_first(ticket);
        self.waiters.remove(&ticket);
        if !was_first {
            return Wake::NONE;
        }
        self.give_up_poll();
        // Even if no poll is due: the next waiter is the one that has to wake at the planned moment now.
        self.wake_first()
    }

    /// The finding of the last poll.
    pub fn last_found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// The error of the last poll, if it failed and this waiter was already waiting: the poll was made for it too.
    pub fn failure(&self, ticket: WaiterId) -> Option<Error> {
        match &self.found {
            Some(Err(error)) if ticket <= self.found_for => Some(error.clone()),
            _ => None,
        }
    }

    /// Begins a poll before its time, if this waiter is the first. Returns whether it is.
    pub fn poll_now(&mut self, ticket: WaiterId) -> bool {
        let is_first = self.is_first(ticket);
        if is_first {
            self.begin_poll();
        }
        is_first
    }

    /// A wake for each waiter.
    pub fn waiters(&self) -> impl Iterator<Item = Wake> {
        self.waiters.values().map(|waiter| Wake::of(Some(waiter)))
    }

    /// The reports of what a poll found, to those waiters that want one.
    pub fn reporting(&self, found: &Found) -> impl Iterator<Item = Wake> {
        let waiters = self.waiters.values();
        let reports = waiters.map(|waiter| Wake::reporting(waiter, found));
        reports.filter(Wake::has_waiter)
    }

    fn give_up_poll(&mut self) {
        if matches!(self.next_poll, NextPoll::Making { .. }) {
            self.next_poll = NextPoll::Planned(DUE);
        }
    }

    /// Plans the next poll, unless one is due anyway.
    fn plan(&mut self, at: Instant) {
        let is_due = matches!(
            self.next_poll,
            NextPoll::Making { has_notice: true } | NextPoll::Planned(DUE)
        );
        self.next_poll = NextPoll::Planned(if is_due { DUE } else { at });
    }

    fn is_first(&self, ticket: WaiterId) -> bool {
        self.waiters.first_key_value().map(|(first, _)| *first) == Some(ticket)
    }

    fn wake_first(&self) -> Wake {
        Wake::of(self.waiters.values().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::token::Token;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    const POLL: Action = Action::Poll(None);
    /// Others are before it.
    const WAIT: Action = Action::Sleep(Instant::FAR_FUTURE);

    fn held() -> Found {
        let name = Name::new("a").expect("valid");
        Ok(Arc::new(Held::new(name)))
    }

    /// A queue of this many waiters.
    fn queue(count: u64) -> (Waiters, Vec<Sleeper>) {
        let mut queue = Waiters::new(None);
        let waiters: Vec<_> = (0..count).map(|_| Sleeper::default()).collect();
        for (ticket, waiter) in (0..).zip(&waiters) {
            queue.join(ticket, waiter.clone());
        }
        (queue, waiters)
    }

    #[test]
    fn only_the_first_polls_when_the_holders_time_is_over() {
        let (mut queue, _) = queue(1_000);
        assert_eq!(queue.step(0, at(0)), POLL);
        queue.found(held(), at(5));
        let polls = |queue: &mut Waiters, now| {
            let steps = (0..1_000).map(|ticket| queue.step(ticket, now));
            steps.filter(|step| *step == POLL).count()
        };
        assert_eq!(polls(&mut queue, at(4)), 0);
        assert_eq!(queue.step(0, at(4)), Action::Sleep(at(5)));
        assert_eq!(polls(&mut queue, at(5)), 1);
    }

    #[test]
    fn a_notice_wakes_the_first_and_no_other() {
        let (mut queue, waiters) = queue(3);
        queue.step(0, at(0));
        queue.found(held(), at(5));
        assert!(queue.on_notice().wakes(&waiters[0]));
        assert!(
            !queue.on_notice().has_waiter(),
            "a second notice before the poll"
        );
        assert_eq!(queue.step(1, at(0)), WAIT);
        assert_eq!(queue.step(0, at(0)), POLL);
    }

    #[test]
    fn a_notice_during_a_poll_leads_to_another() {
        let (mut queue, _) = queue(1);
        queue.step(0, at(0));
        assert!(!queue.on_notice().has_waiter());
        queue.found(held(), at(5));
        assert_eq!(queue.step(0, at(0)), POLL);
        queue.found(held(), at(5));
        assert_eq!(queue.step(0, at(0)), Action::Sleep(at(5)));
    }

    #[test]
    fn a_woken_waiter_that_leaves_passes_the_wake_on() {
        let (mut queue, waiters) = queue(3);
        queue.step(0, at(0));
        queue.found(held(), at(5));
        queue.on_notice().now();
        assert!(queue.leave(0).wakes(&waiters[1]), "before its poll");
        assert_eq!(queue.step(1, at(0)), POLL);
        assert!(queue.leave(1).wakes(&waiters[2]), "during its poll");
        assert_eq!(queue.step(2, at(0)), POLL);
    }

    #[test]
    fn a_waiter_that_leaves_asleep_hands_over_when_to_poll() {
        let (mut queue, waiters) = queue(2);
        queue.step(0, at(0));
        queue.found(held(), at(5));
        assert!(queue.leave(0).wakes(&waiters[1]));
        assert_eq!(queue.step(1, at(0)), Action::Sleep(at(5)));
    }

    #[test]
    fn a_waiter_that_leaves_the_middle_of_the_queue_wakes_no_other() {
        let (mut queue, _) = queue(3);
        queue.step(0, at(0));
        assert!(!queue.leave(1).has_waiter());
        queue.found(held(), at(5));
        assert_eq!(queue.step(0, at(0)), Action::Sleep(at(5)));
    }

    #[test]
    fn after_a_grant_the_next_waits_for_that_lease_and_does_not_poll() {
        let (mut queue, waiters) = queue(2);
        queue.step(0, at(0));
        assert!(queue.granted(0, at(30)).wakes(&waiters[1]));
        assert_eq!(queue.step(1, at(0)), Action::Sleep(at(30)));
        assert!(queue.on_notice().wakes(&waiters[1]));
        assert_eq!(queue.step(1, at(0)), POLL);
    }

    #[test]
    fn the_failure_of_a_poll_before_a_grant_is_told_to_no_waiter_after_it() {
        let (mut queue, _) = queue(2);
        queue.step(0, at(0));
        let error = Error::invalid("acquire failed: an outage that is over");
        queue.found(Err(error), at(5));
        queue.step(0, at(5));
        queue.granted(0, at(30)).now();
        assert!(queue.last_found().is_none() && queue.failure(1).is_none());
    }

    #[test]
    fn a_grant_is_handed_to_the_next_poll_unless_notices_were_missed() {
        let (mut queue, waiters) = queue(1);
        assert_eq!(queue.step(0, at(0)), POLL);
        queue.found(held(), at(5));
        let holder = Holder::new(ClientId::from_u128(1), 1);
        let name = Name::new("a").expect("valid");
        let handover = Box::new(Handover::new(name, holder, Token::MAX));
        assert!(queue.hand_over(handover.clone()).wakes(&waiters[0]));
        assert_eq!(queue.step(0, at(0)), Action::Poll(Some(handover.clone())));
        queue.hand_over(handover.clone()).now();
        queue.found(held(), at(5));
        assert_eq!(queue.step(0, at(0)), Action::Poll(Some(handover.clone())));
        queue.found(held(), at(5));
        queue.miss().now();
        queue.hand_over(handover).now();
        assert_eq!(queue.step(0, at(0)), POLL, "it asks");
    }

    #[test]
    fn a_poll_that_is_given_up_is_made_again() {
        let (mut queue, _) = queue(2);
        assert_eq!(queue.step(0, at(0)), POLL);
        queue.poll_again(1);
        queue.poll_again(0);
        assert_eq!(queue.step(1, at(0)), WAIT);
        assert_eq!(queue.step(0, at(0)), POLL);
        queue.found(held(), at(5));
        queue.poll_again(0);
        assert_eq!(queue.step(0, at(0)), Action::Sleep(at(5)), "it was told");
    }
}
