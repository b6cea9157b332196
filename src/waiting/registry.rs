//! All lines of a client by name and order, and which names are followed for them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::waiters::{Found, Ticket, Waiters, Wake};
use super::{Pace, WaitOrder};
use crate::holder::ClientId;
use crate::name::Name;
use crate::store::{Notice, Notices, Queued, Topic};
use crate::term::Instant;

/// Names that are followed although no task waits for them: a task that waits again and again for one name does not subscribe
/// to it again and again. A few dozen bytes each, here and on the server.
const IDLE_NAMES: usize = 1_024;
/// Hints in a row for which no task waited, after which an idle name is no longer followed.
const UNWANTED_HINTS: u32 = 16;
/// What an offer has been over for when the next in line looks.
const AFTER_OFFER: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Registry {
    /// In whose name the client stands in the store's lines.
    client: ClientId,
    entries: HashMap<QueueKey, WaitedName>,
    last_ticket: Ticket,
    /// Names without waiters, with the mark of their idleness; longest idle first.
    idle: VecDeque<(u64, QueueKey)>,
    /// Names whose line in the store the client is to leave.
    leaving: Vec<Name>,
    pub(super) hearing: Hearing,
    pub(super) is_closed: bool,
}

/// Which line: those who take turns with other clients do not stand in line with those who do not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QueueKey {
    pub(super) name: Name,
    pub(super) order: WaitOrder,
}

#[derive(Debug)]
pub(super) struct WaitedName {
    pub(super) waiters: Waiters,
    is_followed: bool,
    /// Whether the client stands in the store's line, or may stand there.
    is_queued: bool,
    /// Since when there are no waiters, in marks; 0 while there are some.
    idle_since: u64,
    unwanted_hints: u32,
}

impl QueueKey {
    /// What the store is to tell those of this client who stand in this line.
    fn topic(&self, client: ClientId) -> Topic {
        match self.order {
            WaitOrder::Any => Topic::Freed(self.name.clone()),
            WaitOrder::Fair => Topic::Turn(self.name.clone(), client),
        }
    }
}

/// Whether the store gives hints.
#[derive(Debug)]
pub(super) enum Hearing {
    /// No task has waited so far. Exits: Starting.
    Never,
    /// The thread is subscribing. Exits: Live, Stopped.
    Starting,
    /// Exits: Stopped (the thread ended).
    Live(Arc<dyn Notices>),
    /// Waiters look by time only. No exits.
    Stopped,
}

impl Registry {
    pub(super) fn new(client: ClientId) -> Self {
        Self {
            client,
            entries: HashMap::new(),
            last_ticket: 0,
            idle: VecDeque::new(),
            leaving: Vec::new(),
            hearing: Hearing::Never,
            is_closed: false,
        }
    }

    pub(super) fn join(&mut self, key: &QueueKey, waiter: Arc<Notify>) -> Ticket {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let entry = self
            .entries
            .entry(key.clone())
            .or_insert_with(WaitedName::new);
        entry.idle_since = 0;
        entry.waiters.join(ticket, waiter);
        ticket
    }

    pub(super) fn entry(&mut self, key: &QueueKey) -> &mut WaitedName {
        let entry = self.entries.get_mut(key);
        entry.expect("a name stays while a waiter has a place in its queue")
    }

    /// The client asks to stand in the store's line. Answers how many wait behind the first.
    pub(super) fn queue_position(&mut self, key: &QueueKey) -> usize {
        let entry = self.entry(key);
        entry.is_queued = true;
        entry.waiters.len() - 1
    }

    /// Takes in what the first in line found instead of a grant.
    pub(super) fn found(
        &mut self,
        key: &QueueKey,
        found: Found,
        remaining: Option<Duration>,
        now: Instant,
    ) {
        let ahead = match &found {
            Found::Held(held) => held.ahead,
            Found::Failed(_) => None,
        };
        let pace = self.pace(ahead);
        let pause = match ahead {
            // It is told when it is next; until then it only has to show that it is alive.
            Some(1..) => pace.pause(None, fastrand::u16(..)),
            _ => pace.pause(remaining, fastrand::u16(..)),
        };
        self.entry(key).waiters.found(found, now.after(pause));
    }

    /// Takes in that the first in line was granted the name for `ttl`, having asked with this place in the store's queue.
    pub(super) fn granted(
        &mut self,
        key: &QueueKey,
        ticket: Ticket,
        queued: Option<Queued>,
        ttl: Duration,
        now: Instant,
    ) -> Wake {
        let is_queued = queued.is_some_and(|queued| queued.more > 0);
        let pause = match queued {
            None => self.pace(None).pause(Some(ttl), fastrand::u16(..)),
            Some(_) if is_queued => Pace::IN_LINE.pause(None, fastrand::u16(..)),
            // Who joined since does not stand in the store's line yet.
            Some(_) => Duration::ZERO,
        };
        let entry = self.entry(key);
        entry.is_queued = is_queued;
        let wake = entry.waiters.granted(ticket, now.after(pause));
        self.forget_if_idle(key);
        wake
    }

    pub(super) fn leave(&mut self, key: &QueueKey, ticket: Ticket) -> Wake {
        let wake = self.entry(key).waiters.leave(ticket);
        self.forget_if_idle(key);
        wake
    }

    fn pace(&self, ahead: Option<usize>) -> Pace {
        match (&self.hearing, ahead) {
            (Hearing::Live(_), Some(_)) => Pace::IN_LINE,
            (Hearing::Live(_), None) => Pace::WITH_NOTICES,
            _ => Pace::WITHOUT_NOTICES,
        }
    }

    /// Forgets a name without waiters, unless its name is worth following a while longer.
    fn forget_if_idle(&mut self, key: &QueueKey) {
        let entry = self.entry(key);
        if !entry.waiters.is_empty() {
            return;
        }
        if std::mem::take(&mut entry.is_queued) {
            self.plan_to_leave(key.name.clone());
        }
        if !self.entry(key).is_followed {
            self.entries.remove(key);
            return;
        }
        self.last_ticket += 1;
        let mark = self.last_ticket;
        self.entry(key).idle_since = mark;
        self.idle.push_back((mark, key.clone()));
        if self.idle.len() > IDLE_NAMES
            && let Some((mark, key)) = self.idle.pop_front()
            && (self.entries.get(&key)).is_some_and(|entry| entry.idle_since == mark)
        {
            self.unfollow(&key);
        }
    }

    /// Follows a name that has waiters, if the store gives hints.
    pub(super) fn follow(&mut self, key: &QueueKey) {
        if let Hearing::Live(notices) = &self.hearing
            && let Some(entry) = self.entries.get_mut(key)
            && !std::mem::replace(&mut entry.is_followed, true)
        {
            notices.follow(&key.topic(self.client));
        }
    }

    /// From now on the store gives hints.
    pub(super) fn start_notices(&mut self, notices: Arc<dyn Notices>) {
        self.hearing = Hearing::Live(notices);
        let keys: Vec<QueueKey> = self.entries.keys().cloned().collect();
        keys.iter().for_each(|key| self.follow(key));
    }

    fn unfollow(&mut self, key: &QueueKey) {
        self.entries.remove(key);
        if let Hearing::Live(notices) = &self.hearing {
            notices.unfollow(&key.topic(self.client));
        }
    }

    /// Takes a hint in.
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
        let Some(entry) = self.entries.get_mut(&key) else {
            return Vec::new();
        };
        if !entry.waiters.is_empty() {
            entry.unwanted_hints = 0;
            return vec![match next {
                None => entry.waiters.hint(),
                Some(at) => entry.waiters.bring_forward(at),
            }];
        }
        entry.unwanted_hints += 1;
        let is_unwanted = entry.unwanted_hints > UNWANTED_HINTS;
        if order == WaitOrder::Fair && next.is_none() {
            // A turn that no waiter of this client wants.
            self.plan_to_leave(key.name.clone());
        }
        if is_unwanted {
            self.unfollow(&key);
        }
        Vec::new()
    }

    /// Has the first fair waiter for this name look again.
    pub(super) fn look_in_turn(&mut self, name: Name) -> Option<Wake> {
        let order = WaitOrder::Fair;
        let entry = self.entries.get_mut(&QueueKey { name, order })?;
        Some(entry.waiters.hint())
    }

    /// Goes on without hints: what was planned by their pace is looked at now.
    pub(super) fn stop_notices(&mut self) -> (Hearing, Vec<Wake>) {
        let before = std::mem::replace(&mut self.hearing, Hearing::Stopped);
        self.entries.retain(|_, entry| !entry.waiters.is_empty());
        self.idle.clear();
        (before, self.hint_all())
    }

    fn hint_all(&mut self) -> Vec<Wake> {
        let entries = self.entries.values_mut();
        entries.map(|entry| entry.waiters.hint()).collect()
    }

    /// Takes no more part. Answers whom to tell.
    pub(super) fn close(&mut self) -> Vec<Wake> {
        self.is_closed = true;
        let mut standing = Vec::new();
        for (key, entry) in &mut self.entries {
            // Taken, so that the last waiter does not leave the line once more.
            if std::mem::take(&mut entry.is_queued) {
                standing.push(key.name.clone());
            }
        }
        for name in standing {
            self.plan_to_leave(name);
        }
        let entries = self.entries.values();
        entries.flat_map(|entry| entry.waiters.waiters()).collect()
    }

    /// Should the thread not keep up, the store finds the client dead at its turn.
    fn plan_to_leave(&mut self, name: Name) {
        if self.leaving.len() < IDLE_NAMES {
            self.leaving.push(name);
        }
    }

    /// The names whose line in the store the client is to leave, unless they have waiters again.
    pub(super) fn take_leaving(&mut self) -> Vec<Name> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|name| {
            let key = QueueKey {
                name: name.clone(),
                order: WaitOrder::Fair,
            };
            let entry = self.entries.get(&key);
            self.is_closed || entry.is_none_or(|entry| entry.waiters.is_empty())
        });
        leaving
    }

    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }
}

impl WaitedName {
    fn new() -> Self {
        Self {
            waiters: Waiters::new(),
            is_followed: false,
            is_queued: false,
            idle_since: 0,
            unwanted_hints: 0,
        }
    }
}
