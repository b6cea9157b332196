//! A waiter's place in the queue of its name, and its turns to poll the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::OutagePolicy;
use super::hub::Shared;
use super::listener::Listener;
use super::waiters::{Action, Found, QueueKey, WaiterId, no_grant};
use super::wake::{Reports, Sleeper, Wake};
use crate::error::Error;
use crate::store::{Handover, Queued};
use crate::telemetry::Trigger;
use crate::term::Instant;

/// A waiter's place. Dropping it leaves the queue, and passes a wake that came for this waiter on to the next one.
#[derive(Debug)]
#[must_use = "a place that is dropped is given up"]
pub(crate) struct LocalPlace {
    shared: Arc<Shared>,
    key: QueueKey,
    ticket: WaiterId,
    waiter: Sleeper,
    outage: OutagePolicy,
    /// This waiter was granted the name and has left the queue.
    has_left: AtomicBool,
}

impl LocalPlace {
    /// Joins this queue, as the last waiter.
    pub(super) fn join(
        shared: Arc<Shared>,
        key: QueueKey,
        outage: OutagePolicy,
        reports: Reports,
    ) -> Self {
        let waiter = Sleeper::new(reports);
        let mut registry = shared.registry();
        let ticket = registry.join(&key, waiter.clone());
        let last = registry.waiters(&key).last_found().cloned();
        drop(registry);
        // The next poll may be seconds away. A failure from before it came is no answer to it.
        if let Some(found @ Ok(_)) = &last {
            Wake::reporting(&waiter, found).now();
        }
        Self {
            shared,
            key,
            ticket,
            waiter,
            outage,
            has_left: AtomicBool::new(false),
        }
    }

    /// Waits until it is the turn of this waiter to poll the store, for all waiters of the name; at most until
    /// `ends_at`, when it makes a last poll.
    ///
    /// # Errors
    /// The error of a poll that another waiter made while this one waited, unless this one waits for the end of
    /// outages; `Closed` once the client was shut down; at `ends_at` the result of the last poll, if this waiter is not
    /// the first: it need not poll again then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the place as it is. A wake that came meanwhile counts at the next call.
    pub(crate) async fn turn(&self, ends_at: Instant) -> Result<Turn<'_>, Error> {
        let Shared { clock, .. } = &*self.shared;
        let mut trigger = Trigger::Notice;
        loop {
            let (key, now) = (&self.key, clock.now());
            let step = (self.shared.registry()).step(key, self.ticket, self.outage, now);
            let until = match step? {
                Action::Poll(handover) => return Ok(Turn::new(self, true, trigger, handover)),
                Action::Sleep(_) if now >= ends_at => return self.last_poll(),
                Action::Sleep(until) => until.min(ends_at),
            };
            trigger = tokio::select! {
                () = self.waiter.woken() => Trigger::Notice,
                () = clock.nap_until(until), if until < Instant::FAR_FUTURE => Trigger::Timer,
            };
        }
    }

    /// Begins a poll at the limit of the wait: the first waiter polls before the time that was planned, and another one
    /// for itself, if no poll was made yet.
    fn last_poll(&self) -> Result<Turn<'_>, Error> {
        let mut registry = self.shared.registry();
        let waiters = registry.waiters(&self.key);
        let is_first = waiters.poll_now(self.ticket);
        match waiters.last_found() {
            Some(found) if !is_first => Err(no_grant(&self.key.name, found.clone())),
            _ => Ok(Turn::new(self, is_first, Trigger::Timer, None)),
        }
    }

    /// Listens for notices that the name was freed.
    fn listen(&self) {
        self.shared.registry().follow(&self.key);
        Listener::start(&self.shared);
    }
}

impl Drop for LocalPlace {
    fn drop(&mut self) {
        if *self.has_left.get_mut() || self.shared.home.is_forked() {
            return;
        }
        let wake = self.shared.registry().leave(&self.key, self.ticket);
        wake.now();
    }
}

/// A waiter's turn to poll the store. Ends with [`found`](Self::found) or [`granted`](Self::granted); if it is dropped
/// before either, the poll is made again.
#[derive(Debug)]
#[must_use = "a poll that is dropped is made again"]
pub(crate) struct Turn<'a> {
    place: &'a LocalPlace,
    /// Whether it is made for all waiters of the name. Otherwise a waiter makes it for itself, at the limit of its
    /// wait.
    is_in_turn: bool,
    trigger: Trigger,
    /// The grant from the notice before it.
    handover: Option<Box<Handover>>,
    /// The request to the store's queue that the poll carries.
    queued: Option<Queued>,
    is_told: bool,
}

impl<'a> Turn<'a> {
    const fn new(
        place: &'a LocalPlace,
        is_in_turn: bool,
        trigger: Trigger,
        handover: Option<Box<Handover>>,
    ) -> Self {
        Self {
            place,
            is_in_turn,
            trigger,
            handover,
            queued: None,
            is_told: false,
        }
    }

    /// Returns the cause of the poll.
    pub(crate) const fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// Takes the grant from a notice. If it is this waiter's, no request is needed.
    pub(crate) fn take_handover(&mut self) -> Option<Box<Handover>> {
        self.handover.take()
    }

    /// Returns what the claim of this poll asks of the store's queue, for a lease with this ttl; `None` if there is no
    /// queue.
    pub(crate) fn queued(&mut self, ttl: Duration) -> Option<Queued> {
        if self.is_in_turn {
            self.queued = (self.place.shared.registry()).queued(&self.place.key, ttl);
        }
        self.queued
    }

    /// Reports what the poll found instead of a grant to all waiters of the name. If the name is held, the client
    /// follows it from now on. If the poll failed, waiters fail too, unless they wait for the end of outages.
    pub(crate) fn found(mut self, found: Found) {
        self.is_told = true;
        if !self.is_in_turn {
            Wake::reporting(&self.place.waiter, &found).now();
            return;
        }
        let is_held = found.is_ok();
        let LocalPlace { shared, key, .. } = self.place;
        let now = shared.clock.now();
        let wakes = shared.registry().found(key, found, self.queued, now);
        wakes.into_iter().for_each(Wake::now);
        if is_held {
            self.place.listen();
        }
    }

    /// Reports that the poll was granted the name for `ttl`. Its waiter leaves the queue.
    pub(crate) fn granted(mut self, ttl: Duration) {
        self.is_told = true;
        let LocalPlace { shared, key, .. } = self.place;
        self.place.has_left.store(true, Ordering::Relaxed);
        let (ticket, now) = (self.place.ticket, shared.clock.now());
        let wake = shared.registry().granted(key, ticket, ttl, now);
        // The next waiter does not poll, so only a notice can tell it of the release. Without waiters there is no
        // queue.
        if wake.has_waiter() {
            self.place.listen();
        }
        wake.now();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let LocalPlace { shared, key, .. } = self.place;
        if !self.is_told && self.is_in_turn && !shared.home.is_forked() {
            shared.registry().waiters(key).poll_again(self.place.ticket);
        }
    }
}
