//! What a store is, as far as a client has to know before it asks.

use std::time::Duration;

/// What is true of a store for as long as it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The kind of store, in one lower-case word: the value of the label `store` in metrics.
    pub kind: &'static str,
    /// Whether the store keeps a queue of waiting clients. Without one a fair wait is `Invalid`.
    pub has_queue: bool,
    /// The longest ttl that the store can keep, if there is a limit. A longer one is `Invalid`.
    pub max_ttl: Option<Duration>,
}

impl Facts {
    /// A store of this kind, without a queue and without a limit on the ttl.
    pub const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            has_queue: false,
            max_ttl: None,
        }
    }

    /// The same facts of a store that keeps a queue.
    #[must_use = "returns the facts with a queue"]
    pub const fn with_queue(mut self) -> Self {
        self.has_queue = true;
        self
    }

    /// The same facts of a store that keeps no ttl longer than this.
    #[must_use = "returns the facts with the limit"]
    pub const fn with_max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }
}

/// What a connection of its own is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The watchdog's: it renews and releases. A store whose leases live in a session makes the session for this lane.
    Watchdog,
    /// The waiting clients': it leaves queues.
    Waiting,
}

/// One of the servers that a store consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Where it is, without secrets.
    pub place: String,
    /// Whether it takes part.
    pub state: MemberState,
}

impl Member {
    /// The member at this place, in this state.
    pub fn new(place: impl Into<String>, state: MemberState) -> Self {
        Self {
            place: place.into(),
            state,
        }
    }
}

/// Whether a member takes part in grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberState {
    /// It answers.
    Up,
    /// It answers, but grants nothing for this long, because it came back without its data or was promoted.
    Away {
        /// The time left.
        remaining: Duration,
    },
    /// It gives no answer.
    Down,
}
