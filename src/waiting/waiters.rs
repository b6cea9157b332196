//! Who of this client waits for one name, and when the first of them looks again. Pure: `now` is an argument, and whom
//! to wake is an answer.
//!
//! # Invariants
//! 1. Only the first in line looks, one look at a time.
//! 2. After a hint a look begins, whatever becomes of the waiter that it woke.
//! 3. A look whose outcome was not told is made again by the next in line.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::error::Error;
use crate::store::Held;
use crate::term::Instant;

/// The waiters of one name, in the order in which they came.
#[derive(Debug)]
pub(super) struct Waiters {
    waiters: BTreeMap<Ticket, Arc<Notify>>,
    look: Look,
    found: Option<Found>,
    /// The last in line when that was found.
    found_for: Ticket,
}

/// A place in line: later ones are greater.
pub(super) type Ticket = u64;

/// How it stands with the next look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// To be made by the first in line. Exits: Making (it begins).
    Due,
    /// Under way. Exits: Planned (the name is held), Due (hinted meanwhile; or its waiter left without a word).
    Making { is_hinted: bool },
    /// To be made then. Exits: Making (its time has come), Due (hinted).
    Planned(Instant),
}

/// What the last look found.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// A holder has the name.
    Held(Arc<Held>),
    /// The store could not be asked.
    Failed(Error),
}

/// What a waiter does now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Looks, and tells what it found.
    Look,
    /// Sleeps until then, or until it is woken.
    Sleep(Instant),
    /// Sleeps until it is woken: others are before it.
    Stand,
}

/// Who is to be woken, once no mutex is held any more.
#[derive(Debug)]
#[must_use = "a waiter that is not woken sleeps on"]
pub(super) struct Wake(Option<Arc<Notify>>);

impl Wake {
    pub(super) fn has_waiter(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn now(self) {
        if let Some(waiter) = self.0 {
            waiter.notify_one();
        }
    }
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self {
            waiters: BTreeMap::new(),
            look: Look::Due,
            found: None,
            found_for: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Takes a waiter in, as the last one.
    pub(super) fn join(&mut self, ticket: Ticket, waiter: Arc<Notify>) {
        if self.is_empty() {
            // What was found when the line was last in use is long out of date.
            self.look = Look::Due;
            self.found = None;
        }
        self.waiters.insert(ticket, waiter);
    }

    /// What this waiter is to do. With `Look` the look has begun.
    pub(super) fn step(&mut self, ticket: Ticket, now: Instant) -> Action {
        if !self.is_first(ticket) {
            return Action::Stand;
        }
        match self.look {
            Look::Planned(at) if now < at => Action::Sleep(at),
            _ => {
                self.look = Look::Making { is_hinted: false };
                Action::Look
            }
        }
    }

    /// The name was freed, perhaps.
    pub(super) fn hint(&mut self) -> Wake {
        match &mut self.look {
            Look::Due => Wake(None),
            Look::Making { is_hinted } => {
                *is_hinted = true;
                Wake(None)
            }
            Look::Planned(_) => {
                self.look = Look::Due;
                self.wake_first()
            }
        }
    }

    /// The next look is to be made by `at`.
    pub(super) fn bring_forward(&mut self, at: Instant) -> Wake {
        match &mut self.look {
            Look::Planned(planned) if *planned > at => {
                *planned = at;
                self.wake_first()
            }
            _ => Wake(None),
        }
    }

    /// The look of the first in line came to nothing; it is made again at `at`, or at once if a hint came meanwhile.
    pub(super) fn found(&mut self, found: Found, at: Instant) {
        self.found = Some(found);
        self.found_for = self.waiters.last_key_value().map_or(0, |(last, _)| *last);
        self.plan(at);
    }

    /// The first in line was granted the name and leaves. No other client can have it before `until`, unless it is freed.
    pub(super) fn granted(&mut self, ticket: Ticket, until: Instant) -> Wake {
        self.plan(until);
        self.leave(ticket)
    }

    /// A waiter leaves, wherever it stands.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Wake {
        let was_first = self.is_first(ticket);
        self.waiters.remove(&ticket);
        if !was_first {
            return Wake(None);
        }
        if matches!(self.look, Look::Making { .. }) {
            self.look = Look::Due;
        }
        // Also where no look is due: it is on the next one now to wake up in time.
        self.wake_first()
    }

    /// What the last look found.
    pub(super) fn last_found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// Why the last look failed, if this waiter was in line by then: it was made for it too.
    pub(super) fn failure(&self, ticket: Ticket) -> Option<Error> {
        match &self.found {
            Some(Found::Failed(error)) if ticket <= self.found_for => Some(error.clone()),
            _ => None,
        }
    }

    /// Begins a look before its time, if this waiter is the first.
    pub(super) fn look_now(&mut self, ticket: Ticket) -> bool {
        let is_first = self.is_first(ticket);
        if is_first {
            self.look = Look::Making { is_hinted: false };
        }
        is_first
    }

    /// All of them.
    pub(super) fn waiters(&self) -> impl Iterator<Item = Wake> {
        let waiters = self.waiters.values();
        waiters.map(|waiter| Wake(Some(waiter.clone())))
    }

    fn plan(&mut self, at: Instant) {
        self.look = match self.look {
            Look::Making { is_hinted: true } | Look::Due => Look::Due,
            Look::Making { is_hinted: false } | Look::Planned(_) => Look::Planned(at),
        };
    }

    fn is_first(&self, ticket: Ticket) -> bool {
        self.waiters.first_key_value().map(|(first, _)| *first) == Some(ticket)
    }

    fn wake_first(&self) -> Wake {
        let first = self.waiters.first_key_value();
        Wake(first.map(|(_, waiter)| waiter.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn held() -> Found {
        let name = Name::new("a").expect("valid");
        Found::Held(Arc::new(Held::new(name)))
    }

    /// A line of so many, and what wakes each.
    fn queue(count: u64) -> (Waiters, Vec<Arc<Notify>>) {
        let mut queue = Waiters::new();
        let waiters: Vec<_> = (0..count).map(|_| Arc::new(Notify::new())).collect();
        for (ticket, waiter) in (0..).zip(&waiters) {
            queue.join(ticket, waiter.clone());
        }
        (queue, waiters)
    }

    fn wakes(wake: &Wake, waiter: &Arc<Notify>) -> bool {
        wake.0
            .as_ref()
            .is_some_and(|woken| Arc::ptr_eq(woken, waiter))
    }

    #[test]
    fn only_the_first_looks_when_the_holders_time_is_over() {
        let (mut queue, _) = queue(1_000);
        assert_eq!(queue.step(0, at(0)), Action::Look);
        queue.found(held(), at(5));
        let looks = |queue: &mut Waiters, now| {
            let steps = (0..1_000).map(|ticket| queue.step(ticket, now));
            steps.filter(|step| *step == Action::Look).count()
        };
        assert_eq!(looks(&mut queue, at(4)), 0);
        assert_eq!(queue.step(0, at(4)), Action::Sleep(at(5)));
        assert_eq!(looks(&mut queue, at(5)), 1);
    }

    #[test]
    fn a_hint_wakes_the_first_and_nobody_else() {
        let (mut queue, waiters) = queue(3);
        queue.step(0, at(0));
        queue.found(held(), at(5));
        assert!(wakes(&queue.hint(), &waiters[0]));
        assert!(queue.hint().0.is_none(), "a second hint before the look");
        assert_eq!(queue.step(1, at(0)), Action::Stand);
        assert_eq!(queue.step(0, at(0)), Action::Look);
    }

    #[test]
    fn a_hint_during_a_look_leads_to_another() {
        let (mut queue, _) = queue(1);
        queue.step(0, at(0));
        assert!(queue.hint().0.is_none());
        queue.found(held(), at(5));
        assert_eq!(queue.step(0, at(0)), Action::Look);
        queue.found(held(), at(5));
        assert_eq!(queue.step(0, at(0)), Action::Sleep(at(5)));
    }

    #[test]
    fn a_woken_waiter_that_leaves_passes_the_wake_on() {
        let (mut queue, waiters) = queue(3);
        queue.step(0, at(0));
        queue.found(held(), at(5));
        queue.hint().now();
        assert!(wakes(&queue.leave(0), &waiters[1]), "before its look");
        assert_eq!(queue.step(1, at(0)), Action::Look);
        assert!(wakes(&queue.leave(1), &waiters[2]), "during its look");
        assert_eq!(queue.step(2, at(0)), Action::Look);
    }

    #[test]
    fn a_waiter_that_leaves_asleep_hands_over_when_to_look() {
        let (mut queue, waiters) = queue(2);
        queue.step(0, at(0));
        queue.found(held(), at(5));
        assert!(wakes(&queue.leave(0), &waiters[1]));
        assert_eq!(queue.step(1, at(0)), Action::Sleep(at(5)));
    }

    #[test]
    fn who_leaves_the_midst_of_the_line_wakes_nobody() {
        let (mut queue, _) = queue(3);
        queue.step(0, at(0));
        assert!(queue.leave(1).0.is_none());
        queue.found(held(), at(5));
        assert_eq!(queue.step(0, at(0)), Action::Sleep(at(5)));
    }

    #[test]
    fn after_a_grant_the_next_waits_for_that_lease_and_does_not_look() {
        let (mut queue, waiters) = queue(2);
        queue.step(0, at(0));
        assert!(wakes(&queue.granted(0, at(30)), &waiters[1]));
        assert_eq!(queue.step(1, at(0)), Action::Sleep(at(30)));
        assert!(wakes(&queue.hint(), &waiters[1]));
        assert_eq!(queue.step(1, at(0)), Action::Look);
    }

    #[test]
    fn a_look_is_brought_forward_and_never_put_off() {
        let (mut queue, waiters) = queue(2);
        queue.step(0, at(0));
        queue.found(held(), at(5));
        assert!(wakes(&queue.bring_forward(at(3)), &waiters[0]));
        assert_eq!(queue.step(0, at(0)), Action::Sleep(at(3)));
        assert!(queue.bring_forward(at(4)).0.is_none());
        assert_eq!(queue.step(0, at(0)), Action::Sleep(at(3)));
    }

    #[test]
    fn a_line_that_was_empty_begins_anew() {
        let (mut queue, waiters) = queue(1);
        queue.step(0, at(0));
        queue.found(held(), at(500));
        queue.leave(0).now();
        queue.join(7, waiters[0].clone());
        assert!(queue.last_found().is_none());
        assert_eq!(queue.step(7, at(1)), Action::Look);
    }
}
