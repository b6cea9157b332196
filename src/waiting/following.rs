//! The names for which the client listens to the store's hints.
//!
//! A name is followed from its first look that found it held. It stays followed for a while after its last waiter left:
//! a task that waits again and again for one name does not subscribe to it again and again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::WaitOrder;
use super::waiters::QueueKey;
use crate::holder::ClientId;
use crate::store::{Notices, Topic};

/// The most names that are followed although no task waits for them. A few dozen bytes each, here and on the server.
const IDLE_NAMES: usize = 1_024;
/// The most hints in a row for a name that no task waits for. After one more the client stops following the name.
const UNWANTED_HINTS: u32 = 16;

/// The names that are followed.
#[derive(Debug)]
pub(super) struct Following {
    /// The client whose turns are followed.
    client: ClientId,
    listening: Listening,
    names: HashMap<QueueKey, Followed>,
    /// Names without waiters, with the mark of their idleness; longest idle first. An entry whose mark is not that of
    /// its name is out of date.
    idle: VecDeque<(u64, QueueKey)>,
    last_mark: u64,
}

/// Says whether the store gives hints.
#[derive(Debug)]
enum Listening {
    /// No task has waited yet. Exits: Starting.
    Never,
    /// The thread is subscribing. Exits: Live, Stopped.
    Starting,
    /// Exits: Stopped (the thread ended).
    Live(Arc<dyn Notices>),
    /// Waiters look by time only. No exits.
    Stopped,
}

/// One name that is followed.
#[derive(Debug, Default)]
struct Followed {
    /// The mark since which there are no waiters; 0 while there are some.
    idle_since: u64,
    unwanted_hints: u32,
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

impl Following {
    pub(super) fn new(client: ClientId) -> Self {
        Self {
            client,
            listening: Listening::Never,
            names: HashMap::new(),
            idle: VecDeque::new(),
            last_mark: 0,
        }
    }

    /// Returns whether the store gives hints now.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.listening, Listening::Live(_))
    }

    /// Returns whether the thread that listens was started, now or earlier.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.listening, Listening::Never)
    }

    /// The thread that listens is about to start. Returns whether it is the first one; there is no second.
    pub(super) fn begin(&mut self) -> bool {
        let is_first = !self.has_begun();
        if is_first {
            self.listening = Listening::Starting;
        }
        is_first
    }

    /// From now on the store gives hints. Follows the names that have waiters.
    pub(super) fn start<'a>(
        &mut self,
        notices: Arc<dyn Notices>,
        awaited: impl Iterator<Item = &'a QueueKey>,
    ) {
        self.listening = Listening::Live(notices);
        awaited.for_each(|key| self.follow(key));
    }

    /// From now on the store gives no hints. Returns the subscription, if there was one.
    pub(super) fn stop(&mut self) -> Option<Arc<dyn Notices>> {
        self.names.clear();
        self.idle.clear();
        match std::mem::replace(&mut self.listening, Listening::Stopped) {
            Listening::Live(notices) => Some(notices),
            _ => None,
        }
    }

    /// Follows a name that has waiters, if the store gives hints.
    pub(super) fn follow(&mut self, key: &QueueKey) {
        if let Listening::Live(notices) = &self.listening
            && !self.names.contains_key(key)
        {
            notices.follow(&key.topic(self.client));
            self.names.insert(key.clone(), Followed::default());
        }
    }

    /// The name has waiters again.
    pub(super) fn set_awaited(&mut self, key: &QueueKey) {
        if let Some(followed) = self.names.get_mut(key) {
            followed.idle_since = 0;
        }
    }

    /// The name has no waiters any more. It stays followed until too many others are idle too.
    pub(super) fn set_idle(&mut self, key: &QueueKey) {
        let Some(followed) = self.names.get_mut(key) else {
            return;
        };
        self.last_mark += 1;
        followed.idle_since = self.last_mark;
        self.idle.push_back((self.last_mark, key.clone()));
        if self.idle.len() > IDLE_NAMES
            && let Some((mark, key)) = self.idle.pop_front()
            && (self.names.get(&key)).is_some_and(|followed| followed.idle_since == mark)
        {
            self.unfollow(&key);
        }
    }

    /// A hint came for a name that has waiters.
    pub(super) fn count_wanted(&mut self, key: &QueueKey) {
        if let Some(followed) = self.names.get_mut(key) {
            followed.unwanted_hints = 0;
        }
    }

    /// A hint came for a name without waiters. Returns whether the name was followed.
    pub(super) fn count_unwanted(&mut self, key: &QueueKey) -> bool {
        let Some(followed) = self.names.get_mut(key) else {
            return false;
        };
        followed.unwanted_hints += 1;
        if followed.unwanted_hints > UNWANTED_HINTS {
            self.unfollow(key);
        }
        true
    }

    fn unfollow(&mut self, key: &QueueKey) {
        self.names.remove(key);
        if let Listening::Live(notices) = &self.listening {
            notices.unfollow(&key.topic(self.client));
        }
    }
}
