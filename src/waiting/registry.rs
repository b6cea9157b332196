//! All waiters of a client, by name and by what they wait for: keeps the waiters and the names that the client follows
//! in step.
//!
//! The client follows a name from the first poll that found it held. It stays followed for a while after its last
//! waiter left: a task that waits again and again for one name does not subscribe to it again and again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio_util::sync::CancellationToken;

use super::waiters::{Action, Found, QueueKey, WaitFor, WaiterId, Waiters};
use super::wake::{Sleeper, Wake};
use super::{OutagePolicy, WITH_NOTICES, in_queue, pause, without_notices};
use crate::clock::half_random;
use crate::error::Error;
use crate::holder::ClientId;
use crate::store::{Facts, Notice, Notices, Place, Queued, Topic};
use crate::term::Instant;

/// The pause after a poll that failed: a server that comes back is found soon, and one that refuses is not hammered.
/// Each further one is twice as long.
const AFTER_FAILURE: Duration = Duration::from_millis(400);
/// The longest of them. A crowd that waits comes back to a server after those who hold leases, which ask twenty times
/// a second.
const LONGEST_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Maximum number of names that are followed although no task waits for them. Some hundred bytes each here, and a few
/// dozen on the server. When there are more, the client stops following all of them, which costs one new subscription
/// in a thousand.
const IDLE_NAMES: usize = 1_024;
/// The most notices in a row for a name that no task waits for. After one more the client stops following the name.
const UNWANTED_NOTICES: u32 = 16;

/// All waiters of a client, and what is followed for them.
#[derive(Debug)]
pub struct Registry {
    /// The queues that have waiters or are followed.
    queues: HashMap<QueueKey, Waiters>,
    last_ticket: WaiterId,
    /// The client whose places in the store's queues are followed.
    client: ClientId,
    facts: Facts,
    /// The current listener.
    listening: Option<Listening>,
    /// The subscription, while the store gives notices. Without it waiters poll by time only.
    notices: Option<Arc<dyn Notices>>,
    /// The number of queues that are followed and have no waiters.
    idle: usize,
    is_closed: bool,
}

/// A listener of a client.
#[derive(Debug, Clone)]
pub struct Listening {
    /// The runtime of the waiters on which it listens; `None`: it has a thread.
    pub(super) runtime: Option<runtime::Id>,
    /// Cancelled, under the mutex, when it no longer counts: what it does under the mutex afterwards has no effect.
    pub(super) is_over: CancellationToken,
}

/// A subscription that ended, to be dropped outside the mutex, and the waiters to wake.
pub type Stopped = (Option<Arc<dyn Notices>>, Vec<Wake>);

impl Registry {
    /// A registry without waiters, for this client of a store with these facts.
    pub fn new(client: ClientId, facts: Facts) -> Self {
        Self {
            queues: HashMap::new(),
            last_ticket: 0,
            client,
            facts,
            listening: None,
            notices: None,
            idle: 0,
            is_closed: false,
        }
    }

    /// Takes a waiter into this queue, as the last one.
    pub fn join(&mut self, key: &QueueKey, waiter: Sleeper) -> WaiterId {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let waiters = self.queues.entry(key.clone());
        let waiters = waiters.or_insert_with(|| Waiters::new(None));
        if waiters.is_idle() {
            self.idle -= 1;
        }
        waiters.join(ticket, waiter);
        ticket
    }

    /// The queue of a waiter that has a place in it.
    pub fn waiters(&mut self, key: &QueueKey) -> &mut Waiters {
        let waiters = self.queues.get_mut(key);
        waiters.expect("a queue stays while a waiter has a place in it")
    }

    /// Returns what this waiter does next. With `Poll`, its poll has begun. Fails with the error of a poll that another
    /// waiter made while this one waited, unless this one waits outages out.
    pub fn step(
        &mut self,
        key: &QueueKey,
        ticket: WaiterId,
        outage: OutagePolicy,
        now: Instant,
    ) -> Result<Action, Error> {
        if self.is_closed {
            return Err(Error::shut_down());
        }
        let waiters = self.waiters(key);
        match waiters.failure(ticket) {
            Some(error) if outage == OutagePolicy::Fail => Err(error),
            _ => Ok(waiters.step(ticket, now)),
        }
    }

    /// The request to the store's queue in the first waiter's claim, for a lease with this ttl.
    pub fn queued(&mut self, key: &QueueKey, ttl: Duration) -> Option<Queued> {
        let listens = self.waiters(key).hears;
        self.is_in_turn(key)
            .then(|| Queued::new(ttl).with_listens(listens))
    }

    /// Records what the first waiter, which asked this of the store's queue, found instead of a grant. Returns the
    /// waiters of the name to notify, whatever they wait for; all of them if it failed.
    pub fn found(
        &mut self,
        key: &QueueKey,
        found: Found,
        queued: Option<Queued>,
        now: Instant,
    ) -> Vec<Wake> {
        let (place, remaining) = match &found {
            Ok(held) => (held.place, held.remaining),
            Err(_) => (None, Some(self.after_failure(key))),
        };
        // The client ahead of it hears of the end; until then this one only has to show that it is alive.
        let remaining = remaining.filter(|_| place.is_none_or(|place| place.ahead == 0));
        let mut longest = self.pace(place);
        if let (Some(place), Some(queued)) = (place, queued) {
            longest = longest.min(in_queue(place.term(queued)));
        }
        let pause = pause(longest, remaining, fastrand::u16(..));
        self.waiters(key).found(found.clone(), now.after(pause));
        let queues = [WaitFor::Grant, WaitFor::Freedom].map(|awaited| QueueKey {
            name: key.name.clone(),
            awaited,
        });
        let queues = queues.iter().filter_map(|key| self.queues.get(key));
        queues.flat_map(|queue| queue.reporting(&found)).collect()
    }

    /// Records that this waiter was granted the name for `ttl`.
    pub fn granted(
        &mut self,
        key: &QueueKey,
        ticket: WaiterId,
        ttl: Duration,
        now: Instant,
    ) -> Wake {
        let pause = match self.is_in_turn(key) {
            // The next waiter joins the end of the store's queue.
            true => Duration::ZERO,
            false => pause(self.pace(None), Some(ttl), fastrand::u16(..)),
        };
        let wake = self.waiters(key).granted(ticket, now.after(pause));
        self.remove_if_empty(key);
        wake
    }

    /// Removes a waiter. A wake that came for it passes on to the next one, which takes over its place in the store's
    /// queue.
    pub fn leave(&mut self, key: &QueueKey, ticket: WaiterId) -> Wake {
        let is_in_turn = self.is_in_turn(key);
        let waiters = self.waiters(key);
        let wake = waiters.leave(ticket);
        if is_in_turn && wake.has_waiter() {
            waiters.poll_soon();
        }
        self.remove_if_empty(key);
        wake
    }

    /// The pause after one more poll that failed.
    fn after_failure(&mut self, key: &QueueKey) -> Duration {
        let failures = self.waiters(key).failures;
        let pause = AFTER_FAILURE.saturating_mul(1 << failures.min(8));
        half_random(pause.min(LONGEST_AFTER_FAILURE))
    }

    /// The longest pause before the next poll of a client with this place in the store's queue.
    fn pace(&self, place: Option<Place>) -> Duration {
        let ahead = place.map_or(0, |place| place.ahead);
        match &self.notices {
            Some(_) => WITH_NOTICES,
            None => without_notices(self.facts.look_every, self.queues.len() - self.idle, ahead),
        }
    }

    /// Returns whether these waiters have a place in a queue of the store.
    fn is_in_turn(&self, key: &QueueKey) -> bool {
        self.facts.has_queue && key.awaited == WaitFor::Grant
    }

    /// Returns the topic of the notices that the waiters of this queue need.
    fn topic(&self, key: &QueueKey) -> Topic {
        match self.is_in_turn(key) {
            true => Topic::Queue(key.name.clone(), self.client),
            false => Topic::Freed(key.name.clone()),
        }
    }

    /// Removes a queue without waiters, unless it is followed: then it begins anew.
    fn remove_if_empty(&mut self, key: &QueueKey) {
        let waiters = self.waiters(key);
        if !waiters.is_empty() {
            return;
        }
        let (followed, hears) = (waiters.followed, waiters.hears);
        *waiters = Waiters::new(followed);
        waiters.hears = hears;
        if followed.is_none() {
            self.queues.remove(key);
            return;
        }
        self.idle += 1;
        if self.idle > IDLE_NAMES {
            self.idle = 0;
            let is_idle = |(_, waiters): &(&QueueKey, &Waiters)| waiters.is_idle();
            let idle = self.queues.iter().filter(is_idle).map(|(key, _)| key);
            for key in idle.cloned().collect::<Vec<_>>() {
                self.unfollow(&key);
            }
        }
    }

    /// Stops following a queue without waiters, and forgets it.
    fn unfollow(&mut self, key: &QueueKey) {
        self.queues.remove(key);
        if let Some(notices) = &self.notices {
            notices.unfollow(&self.topic(key));
        }
    }

    /// Follows the name of a queue, if the store gives notices.
    pub fn follow(&mut self, key: &QueueKey) {
        let topic = self.topic(key);
        if let Some(notices) = &self.notices
            && let Some(waiters) = self.queues.get_mut(key)
            && waiters.followed.is_none()
        {
            notices.follow(&topic);
            waiters.followed = Some(0);
        }
    }

    /// A task of this runtime waits; `None` if only a thread may listen for it. Returns the listener to start, which
    /// replaces the current one, and what that one leaves behind; `None` if the current one serves this task too.
    pub fn begin_listening(&mut self, here: Option<runtime::Id>) -> Option<(Listening, Stopped)> {
        let runtime = match &self.listening {
            _ if self.is_closed => return None,
            None => here,
            Some(Listening { runtime, .. }) if runtime.is_none() || *runtime == here => {
                return None;
            }
            // That runtime may have ended, or nobody drives it while tasks of this one wait.
            Some(_) => None,
        };
        let next = Listening {
            runtime,
            is_over: CancellationToken::new(),
        };
        let stopped = self.end_notices();
        if let Some(before) = self.listening.replace(next.clone()) {
            before.is_over.cancel();
        }
        Some((next, stopped))
    }

    /// From now on the store gives notices, to this listener. Follows the names that have waiters.
    pub fn start_notices(&mut self, by: &Listening, notices: Arc<dyn Notices>) {
        if by.is_over.is_cancelled() {
            return;
        }
        self.notices = Some(notices);
        let awaited: Vec<_> = self.queues.keys().cloned().collect();
        awaited.iter().for_each(|key| self.follow(key));
    }

    /// From now on this listener gives no notices.
    pub fn stop_notices(&mut self, by: &Listening) -> Stopped {
        match by.is_over.is_cancelled() {
            true => (None, Vec::new()),
            false => self.end_notices(),
        }
    }

    /// From now on there are no notices: polls that were planned at the pace of a store with notices are made now.
    fn end_notices(&mut self) -> Stopped {
        let Some(notices) = self.notices.take() else {
            return (None, Vec::new());
        };
        self.idle = 0;
        self.queues.retain(|_, waiters| {
            (waiters.followed, waiters.hears) = (None, false);
            !waiters.is_empty()
        });
        (Some(notices), self.miss_all())
    }

    /// Takes in a notice. Returns the waiters to wake.
    pub fn on_notice(&mut self, notice: Notice) -> Vec<Wake> {
        let (name, mut handover) = match notice {
            Notice::Reconnected => return self.miss_all(),
            Notice::Freed(name) => (name, None),
            Notice::Granted(handover) => (handover.name.clone(), Some(handover)),
        };
        let mut wakes = Vec::new();
        for awaited in [WaitFor::Grant, WaitFor::Freedom] {
            let name = name.clone();
            let key = QueueKey { name, awaited };
            let Some(waiters) = self.queues.get_mut(&key) else {
                continue;
            };
            waiters.hears = true;
            let is_wanted = !waiters.is_empty();
            if let Some(unwanted) = &mut waiters.followed {
                *unwanted = if is_wanted { 0 } else { *unwanted + 1 };
            }
            if is_wanted {
                wakes.push(match handover.take() {
                    None => waiters.on_notice(),
                    Some(handover) => waiters.hand_over(handover),
                });
            } else if waiters.followed > Some(UNWANTED_NOTICES) {
                self.idle -= 1;
                self.unfollow(&key);
            }
        }
        wakes
    }

    fn miss_all(&mut self) -> Vec<Wake> {
        self.queues.values_mut().map(Waiters::miss).collect()
    }

    /// Closes the registry, and ends its listener. All waiters are to be woken: each then fails with `Closed`.
    pub fn close(&mut self) -> Stopped {
        self.is_closed = true;
        if let Some(listening) = &self.listening {
            listening.is_over.cancel();
        }
        let waiters = self.queues.values().flat_map(Waiters::waiters).collect();
        (self.notices.take(), waiters)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;
    use crate::BoxFuture;
    use crate::name::Name;
    use crate::store::Held;

    fn registry() -> Registry {
        Registry::new(ClientId::draw(), Facts::new("test"))
    }

    /// A subscription that gives no notices, and knows which names are followed.
    #[derive(Debug, Default)]
    struct Followed(Mutex<BTreeSet<Name>>);

    impl Notices for Followed {
        fn follow(&self, topic: &Topic) {
            self.0.lock().insert(topic.name().clone());
        }

        fn unfollow(&self, topic: &Topic) {
            self.0.lock().remove(topic.name());
        }

        fn next(&self) -> BoxFuture<'_, Notice> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn a_client_listens_on_the_runtime_of_its_waiters_until_others_wait_too() {
        let runtime = || runtime::Builder::new_current_thread().build().expect("one");
        let (one, other) = (runtime(), runtime());
        let [one, other] = [&one, &other].map(|runtime| Some(runtime.handle().id()));
        let mut registry = registry();
        let (first, _) = registry.begin_listening(one).expect("the first waiter");
        assert_eq!(first.runtime, one);
        assert!(registry.begin_listening(one).is_none());
        let (second, _) = registry.begin_listening(other).expect("another runtime");
        assert_eq!(second.runtime, None, "a thread");
        assert!(
            [one, other]
                .map(|here| registry.begin_listening(here))
                .iter()
                .all(Option::is_none)
        );
        // The one before may end, or begin to follow, at any later time.
        registry.start_notices(&first, Arc::new(Followed::default()));
        assert!(registry.notices.is_none());
        registry.start_notices(&second, Arc::new(Followed::default()));
        assert!(registry.stop_notices(&first).0.is_none());
        assert!(registry.stop_notices(&second).0.is_some());
    }

    #[test]
    fn only_names_that_no_task_waits_for_are_unfollowed_when_there_are_too_many() {
        let mut registry = registry();
        let followed = Arc::new(Followed::default());
        let (listening, _) = registry.begin_listening(None).expect("the first one");
        registry.start_notices(&listening, followed.clone());
        let wait = |registry: &mut Registry, index: usize| {
            let name = Name::new(format!("n{index}")).expect("valid");
            let awaited = WaitFor::Freedom;
            let key = QueueKey { name, awaited };
            let waiter = registry.join(&key, Sleeper::default());
            registry.follow(&key);
            (key, waiter)
        };
        let wait_once = |registry: &mut Registry, index| {
            let (key, waiter) = wait(registry, index);
            registry.leave(&key, waiter).now();
        };
        let (awaited, _) = wait(&mut registry, 0);
        for round in 0..3 {
            // A name counts once, however often it was awaited, and the count begins anew.
            (1..=IDLE_NAMES).for_each(|index| wait_once(&mut registry, index));
            wait_once(&mut registry, 1);
            assert_eq!(followed.0.lock().len(), 1 + IDLE_NAMES, "round {round}");
            wait_once(&mut registry, IDLE_NAMES + 1);
            let left = followed.0.lock().clone();
            assert_eq!(
                left,
                BTreeSet::from([awaited.name.clone()]),
                "round {round}"
            );
        }
    }

    #[test]
    fn the_next_waiter_polls_at_once_in_place_of_one_that_leaves() {
        let facts = Facts::new("test").with_queue();
        for (awaited, is_at_once) in [(WaitFor::Grant, true), (WaitFor::Freedom, false)] {
            let mut registry = Registry::new(ClientId::draw(), facts);
            let name = Name::new("a").expect("valid");
            let (key, now) = (QueueKey { name, awaited }, Instant::ZERO);
            let first = registry.join(&key, Sleeper::default());
            let second = registry.join(&key, Sleeper::default());
            let step = |registry: &mut Registry, ticket| {
                let step = registry.step(&key, ticket, OutagePolicy::Fail, now);
                step.expect("no poll failed")
            };
            assert_eq!(step(&mut registry, first), Action::Poll(None));
            let held = Ok(Arc::new(Held::new(key.name.clone())));
            assert!(registry.found(&key, held, None, now).is_empty());
            registry.leave(&key, first).now();
            let polls = step(&mut registry, second) == Action::Poll(None);
            assert_eq!(polls, is_at_once, "{awaited:?}");
        }
    }

    #[test]
    fn a_queue_that_was_empty_begins_anew() {
        let mut registry = registry();
        let name = Name::new("a").expect("valid");
        let awaited = WaitFor::Freedom;
        let (key, waiter, now) = (
            QueueKey { name, awaited },
            Sleeper::default(),
            Instant::ZERO,
        );
        let step = |registry: &mut Registry, ticket| {
            let step = registry.step(&key, ticket, OutagePolicy::Fail, now);
            step.expect("no poll failed")
        };
        let first = registry.join(&key, waiter.clone());
        assert_eq!(step(&mut registry, first), Action::Poll(None));
        let held = Ok(Arc::new(Held::new(key.name.clone())));
        let woken = registry.found(&key, held, None, now);
        assert!(woken.is_empty());
        assert!(matches!(step(&mut registry, first), Action::Sleep(_)));
        registry.leave(&key, first).now();
        let second = registry.join(&key, waiter);
        assert!(registry.waiters(&key).last_found().is_none());
        assert_eq!(step(&mut registry, second), Action::Poll(None));
    }
}
