//! All waiters of a client by name and order: brings together who waits, the names for which the client listens to the
//! store's hints, and the client's positions in the store's queues.
//!
//! A name is followed from its first look that found it held. It stays followed for a while after its last waiter left:
//! a task that waits again and again for one name does not subscribe to it again and again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::waiters::{Action, Found, QueueKey, WaiterId, Waiters};
use super::wake::{Sleeper, Wake};
use super::{IN_QUEUE, OutagePolicy, WITH_NOTICES, WaitOrder, pause, without_notices};
use crate::clock::half_random;
use crate::error::Error;
use crate::holder::ClientId;
use crate::name::Name;
use crate::store::{Notice, Notices, Queued, Topic};
use crate::term::Instant;

/// The pause after a look that failed: a server that comes back is found soon, and one that refuses is not hammered.
/// Each further one is twice as long.
const AFTER_FAILURE: Duration = Duration::from_millis(400);
/// The longest of them. A crowd that waits comes back to a server after those who hold leases, which ask twenty times
/// a second.
const LONGEST_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The time between the end of an offer and the look of the next client in the store's queue.
const AFTER_OFFER: Duration = Duration::from_millis(5);

/// The most positions that wait to be given up. Beyond them, the store finds the client dead at its turn.
const LEAVING: usize = 1_024;

/// The most names that are followed although no task waits for them. Some hundred bytes each here, and a few dozen on
/// the server. When there are more, the client stops following all of them, which costs one new subscription in a
/// thousand.
const IDLE_NAMES: usize = 1_024;
/// The most hints in a row for a name that no task waits for. After one more the client stops following the name.
const UNWANTED_HINTS: u32 = 16;

/// All waiters of a client, what is followed for them, and the client's positions in the store's queues.
///
/// The client has one position for all its fair waiters of a name. It gives the position up when the last of them
/// leaves, because a client that is not there at its turn costs the others the time of an offer.
#[derive(Debug)]
pub(super) struct Registry {
    /// The queues that have waiters or are followed.
    queues: HashMap<QueueKey, Waiters>,
    last_ticket: WaiterId,
    /// The client whose turns are followed.
    client: ClientId,
    /// Says whether the thread that listens was started.
    has_listened: bool,
    /// The subscription, while the store gives hints. Without it waiters look by time only.
    notices: Option<Arc<dyn Notices>>,
    /// The number of queues that are followed and have no waiters.
    idle: usize,
    /// The names whose queue the client is to leave, and the store does not know it yet.
    leaving: Vec<Name>,
    is_closed: bool,
}

impl Registry {
    pub(super) fn new(client: ClientId) -> Self {
        Self {
            queues: HashMap::new(),
            last_ticket: 0,
            client,
            has_listened: false,
            notices: None,
            idle: 0,
            leaving: Vec::new(),
            is_closed: false,
        }
    }

    /// Takes a waiter into this queue, as the last one.
    pub(super) fn join(&mut self, key: &QueueKey, waiter: Sleeper) -> WaiterId {
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
    pub(super) fn waiters(&mut self, key: &QueueKey) -> &mut Waiters {
        let waiters = self.queues.get_mut(key);
        waiters.expect("a queue stays while a waiter has a place in it")
    }

    /// Returns what this waiter does next. With `Look`, its look has begun. Fails with the error of a look that another
    /// waiter made while this one waited, unless this one waits outages out.
    pub(super) fn step(
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

    /// The position in the store's queue that the first waiter's claim asks for.
    pub(super) fn queue_position(&mut self, key: &QueueKey) -> Option<Queued> {
        if key.order == WaitOrder::Any {
            return None;
        }
        let waiters = self.waiters(key);
        // From now on the client may have it, whether or not it hears the answer.
        waiters.is_queued = true;
        let others = waiters.len() - 1;
        Some(Queued::new(u32::try_from(others).unwrap_or(u32::MAX)))
    }

    /// Takes in what the first waiter found instead of a grant. Returns the waiters of the name that are to hear of it,
    /// in whichever order they wait: all of a failure.
    pub(super) fn found(&mut self, key: &QueueKey, found: Found, now: Instant) -> Vec<Wake> {
        let (ahead, remaining) = match &found {
            Ok(held) => (held.ahead, held.remaining),
            Err(_) => (None, Some(self.after_failure(key))),
        };
        // The store tells the client when it is next; until then it only has to show that it is alive.
        let remaining = remaining.filter(|_| ahead.unwrap_or_default() == 0);
        let pause = pause(self.pace(ahead), remaining, fastrand::u16(..));
        self.waiters(key).found(found.clone(), now.after(pause));
        let queues = [WaitOrder::Any, WaitOrder::Fair].map(|order| QueueKey {
            name: key.name.clone(),
            order,
        });
        let queues = queues.iter().filter_map(|key| self.queues.get(key));
        queues.flat_map(|queue| queue.reporting(&found)).collect()
    }

    /// Takes in that this waiter was granted the name for `ttl`, having asked for this position in the store's queue.
    pub(super) fn granted(
        &mut self,
        key: &QueueKey,
        ticket: WaiterId,
        queued: Option<Queued>,
        ttl: Duration,
        now: Instant,
    ) -> Wake {
        let is_queued = queued.is_some_and(|queued| queued.more > 0);
        let pause = match queued {
            None => pause(self.pace(None), Some(ttl), fastrand::u16(..)),
            Some(_) if is_queued => pause(IN_QUEUE, None, fastrand::u16(..)),
            // A waiter that joined since has no position in the store's queue yet.
            Some(_) => Duration::ZERO,
        };
        let waiters = self.waiters(key);
        // A grant without a position in the queue leaves the position that the client has for its other waiters.
        if queued.is_some() {
            waiters.is_queued = is_queued;
        }
        let wake = waiters.granted(ticket, now.after(pause));
        self.remove_if_empty(key);
        wake
    }

    /// This waiter leaves. A wake that came for it passes on to the next one.
    pub(super) fn leave(&mut self, key: &QueueKey, ticket: WaiterId) -> Wake {
        let wake = self.waiters(key).leave(ticket);
        self.remove_if_empty(key);
        wake
    }

    /// The pause after one more look that failed.
    fn after_failure(&mut self, key: &QueueKey) -> Duration {
        let failures = self.waiters(key).failures;
        let pause = AFTER_FAILURE.saturating_mul(1 << failures.min(8));
        half_random(pause.min(LONGEST_AFTER_FAILURE))
    }

    /// The longest pause before the next look of a client with this number of others before it in the store's queue.
    fn pace(&self, ahead: Option<usize>) -> Duration {
        match (&self.notices, ahead) {
            (Some(_), Some(_)) => IN_QUEUE,
            (Some(_), None) => WITH_NOTICES,
            (None, ahead) => without_notices(self.queues.len() - self.idle, ahead),
        }
    }

    /// Removes a queue without waiters, unless it is followed: then it begins anew.
    fn remove_if_empty(&mut self, key: &QueueKey) {
        let waiters = self.waiters(key);
        if !waiters.is_empty() {
            return;
        }
        let (is_queued, followed) = (waiters.is_queued, waiters.followed);
        *waiters = Waiters::new(followed);
        if is_queued {
            self.leave_queue(key.name.clone());
        }
        if followed.is_none() {
            self.queues.remove(key);
            return;
        }
        self.idle += 1;
        if self.idle > IDLE_NAMES {
            self.idle = 0;
            let (notices, client) = (&self.notices, self.client);
            self.queues.retain(|key, waiters| {
                let is_idle = waiters.is_idle();
                if let Some(notices) = notices.as_ref().filter(|_| is_idle) {
                    notices.unfollow(&key.topic(client));
                }
                !is_idle
            });
        }
    }

    /// Follows the name of a queue, if the store gives hints.
    pub(super) fn follow(&mut self, key: &QueueKey) {
        if let Some(notices) = &self.notices
            && let Some(waiters) = self.queues.get_mut(key)
            && waiters.followed.is_none()
        {
            notices.follow(&key.topic(self.client));
            waiters.followed = Some(0);
        }
    }

    /// The thread that listens is about to start. Returns whether it is to: there is one, and none after the end.
    pub(super) fn begin_listening(&mut self) -> bool {
        let is_first = !self.is_closed && !self.has_listened;
        self.has_listened |= is_first;
        is_first
    }

    /// Returns whether the thread that listens was started.
    pub(super) fn has_listened(&self) -> bool {
        self.has_listened
    }

    /// From now on the store gives hints. Follows the names that have waiters.
    pub(super) fn start_notices(&mut self, notices: Arc<dyn Notices>) {
        self.notices = Some(notices);
        let awaited: Vec<_> = self.queues.keys().cloned().collect();
        awaited.iter().for_each(|key| self.follow(key));
    }

    /// From now on there are no hints: looks that were planned at the pace of a store with hints are made now. Returns
    /// the subscription, which is to be dropped outside the mutex, and the waiters to wake.
    pub(super) fn stop_notices(&mut self) -> (Option<Arc<dyn Notices>>, Vec<Wake>) {
        self.idle = 0;
        self.queues.retain(|_, waiters| {
            waiters.followed = None;
            !waiters.is_empty()
        });
        (self.notices.take(), self.hint_all())
    }

    /// Takes in a hint.
    pub(super) fn on_notice(&mut self, notice: Notice, now: Instant) -> Vec<Wake> {
        let (name, order, next) = match notice {
            Notice::Reconnected => return self.hint_all(),
            Notice::Freed(name) => (name, WaitOrder::Any, None),
            Notice::Turn(name) => (name, WaitOrder::Fair, None),
            Notice::Next(name, after) => {
                (name, WaitOrder::Fair, Some(now.after(after + AFTER_OFFER)))
            }
        };
        let key = QueueKey { name, order };
        let Some(waiters) = self.queues.get_mut(&key) else {
            return Vec::new();
        };
        let is_wanted = !waiters.is_empty();
        if let Some(unwanted) = &mut waiters.followed {
            *unwanted = if is_wanted { 0 } else { *unwanted + 1 };
        }
        if is_wanted {
            return vec![match next {
                None => waiters.hint(),
                Some(at) => waiters.bring_forward(at),
            }];
        }
        if waiters.followed > Some(UNWANTED_HINTS) {
            self.idle -= 1;
            self.queues.remove(&key);
            if let Some(notices) = &self.notices {
                notices.unfollow(&key.topic(self.client));
            }
        }
        if order == WaitOrder::Fair && next.is_none() {
            // A turn that no waiter of this client wants.
            self.leave_queue(key.name);
        }
        Vec::new()
    }

    /// Has the first fair waiter for this name look again.
    pub(super) fn look_in_turn(&mut self, name: Name) -> Option<Wake> {
        let order = WaitOrder::Fair;
        let waiters = self.queues.get_mut(&QueueKey { name, order })?;
        Some(waiters.hint())
    }

    fn hint_all(&mut self) -> Vec<Wake> {
        self.queues.values_mut().map(Waiters::hint).collect()
    }

    /// Closes the registry. Returns all waiters, to be woken: each then fails with `Closed`.
    pub(super) fn close(&mut self) -> Vec<Wake> {
        self.is_closed = true;
        let queued = self.queues.iter_mut().filter_map(|(key, waiters)| {
            let is_queued = std::mem::take(&mut waiters.is_queued);
            is_queued.then(|| key.name.clone())
        });
        for name in queued.collect::<Vec<_>>() {
            self.leave_queue(name);
        }
        self.queues.values().flat_map(Waiters::waiters).collect()
    }

    /// The names whose queue in the store the client is to leave, unless they have waiters again.
    pub(super) fn take_leaving(&mut self) -> Vec<Name> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|name| {
            let key = QueueKey {
                name: name.clone(),
                order: WaitOrder::Fair,
            };
            let has_waiters = |waiters: &Waiters| !waiters.is_empty();
            self.is_closed || !self.queues.get(&key).is_some_and(has_waiters)
        });
        leaving
    }

    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn leave_queue(&mut self, name: Name) {
        if self.leaving.len() < LEAVING {
            self.leaving.push(name);
        }
    }
}

impl QueueKey {
    /// Returns the topic of the hints that the waiters of this queue need.
    fn topic(&self, client: ClientId) -> Topic {
        match self.order {
            WaitOrder::Any => Topic::Freed(self.name.clone()),
            WaitOrder::Fair => Topic::Turn(self.name.clone(), client),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;
    use crate::BoxFuture;
    use crate::store::Held;

    /// A subscription that gives no hints, and knows which names are followed.
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
    fn only_names_that_no_task_waits_for_are_unfollowed_when_there_are_too_many() {
        let mut registry = Registry::new(ClientId::draw());
        let followed = Arc::new(Followed::default());
        registry.start_notices(followed.clone());
        let wait = |registry: &mut Registry, index: usize| {
            let name = Name::new(format!("n{index}")).expect("valid");
            let order = WaitOrder::Any;
            let key = QueueKey { name, order };
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
    fn a_grant_out_of_turn_leaves_the_clients_place_in_the_stores_queue() {
        let mut registry = Registry::new(ClientId::draw());
        let name = Name::new("a").expect("valid");
        let order = WaitOrder::Fair;
        let (key, now) = (QueueKey { name, order }, Instant::ZERO);
        let first = registry.join(&key, Sleeper::default());
        let second = registry.join(&key, Sleeper::default());
        let step = registry.step(&key, first, OutagePolicy::Fail, now);
        assert_eq!(step.expect("no look failed"), Action::Look);
        assert!(registry.queue_position(&key).is_some());
        // Its limit came during the first look, and it was granted the name without a place in the queue.
        let ttl = Duration::from_secs(30);
        assert!(!registry.granted(&key, second, None, ttl, now).has_waiter());
        registry.leave(&key, first).now();
        assert_eq!(registry.take_leaving(), [key.name]);
    }

    #[test]
    fn a_queue_that_was_empty_begins_anew() {
        let mut registry = Registry::new(ClientId::draw());
        let name = Name::new("a").expect("valid");
        let order = WaitOrder::Any;
        let (key, waiter, now) = (QueueKey { name, order }, Sleeper::default(), Instant::ZERO);
        let step = |registry: &mut Registry, ticket| {
            let step = registry.step(&key, ticket, OutagePolicy::Fail, now);
            step.expect("no look failed")
        };
        let first = registry.join(&key, waiter.clone());
        assert_eq!(step(&mut registry, first), Action::Look);
        let held = Ok(Arc::new(Held::new(key.name.clone())));
        let woken = registry.found(&key, held, now);
        assert!(woken.is_empty());
        assert!(matches!(step(&mut registry, first), Action::Sleep(_)));
        registry.leave(&key, first).now();
        let second = registry.join(&key, waiter);
        assert!(registry.waiters(&key).last_found().is_none());
        assert_eq!(step(&mut registry, second), Action::Look);
    }
}
