//! The names for which the client listens to the store's hints.
//!
//! A name is followed from its first look that found it held. It stays followed for a while after its last waiter left:
//! a task that waits again and again for one name does not subscribe to it again and again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::WaitOrder;
use super::waiters::QueueKey;
use crate::holder::ClientId;
use crate::store::{Notices, Topic};

/// The most names that are followed although no task waits for them. A few dozen bytes each, here and on the server.
/// When there are more, the client stops following all of them, which costs one new subscription in a thousand.
const IDLE_NAMES: usize = 1_024;
/// The most hints in a row for a name that no task waits for. After one more the client stops following the name.
const UNWANTED_HINTS: u32 = 16;

/// The names that are followed.
#[derive(Debug)]
pub(super) struct Following {
    /// The client whose turns are followed.
    client: ClientId,
    listening: Listening,
    /// Each with the number of hints in a row that no task wanted.
    names: HashMap<QueueKey, u32>,
    /// Those of them that have no waiters.
    idle: HashSet<QueueKey>,
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
            idle: HashSet::new(),
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
            self.names.insert(key.clone(), 0);
        }
    }

    /// The name has waiters again.
    pub(super) fn set_awaited(&mut self, key: &QueueKey) {
        self.idle.remove(key);
    }

    /// The name has no waiters any more. It stays followed until too many others are idle too.
    pub(super) fn set_idle(&mut self, key: &QueueKey) {
        if self.names.contains_key(key) {
            self.idle.insert(key.clone());
        }
        if self.idle.len() > IDLE_NAMES {
            let idle = std::mem::take(&mut self.idle);
            idle.iter().for_each(|key| self.unfollow(key));
        }
    }

    /// A hint came for a name that has waiters.
    pub(super) fn count_wanted(&mut self, key: &QueueKey) {
        if let Some(unwanted) = self.names.get_mut(key) {
            *unwanted = 0;
        }
    }

    /// A hint came for a name without waiters. Returns whether the name was followed.
    pub(super) fn count_unwanted(&mut self, key: &QueueKey) -> bool {
        let Some(unwanted) = self.names.get_mut(key) else {
            return false;
        };
        *unwanted += 1;
        if *unwanted > UNWANTED_HINTS {
            self.idle.remove(key);
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
