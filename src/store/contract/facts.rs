//! The facts about a store that a client has to know before it sends a request.

use std::time::Duration;

use crate::telemetry::ServerState;

/// Facts about a store that stay true while it is open, but for a limit that its server sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The kind of store, in one lower-case word: the value of the label `store` in metrics.
    pub kind: &'static str,
    /// Whether the store keeps a queue of waiting clients, who are then served in turn.
    pub has_queue: bool,
    /// Whether the notice of a grant proves it. Otherwise the client asks before it counts the grant: a server that was
    /// replaced may still send notices.
    pub trusts_notices: bool,
    /// The shortest ttl that the store can keep: a shorter one is `Invalid`.
    pub least_ttl: Duration,
    /// Maximum time past its ttl that an unrenewed lease can still count, for a client that did not see it before. Zero
    /// where the store ends leases itself. A name that is kept ends as late.
    pub grace: Duration,
    /// Interval between polls of a waiting client where the store gives no notices.
    pub look_every: Duration,
    /// Whether the store can give notices. Where the set-up does not let it, [`notices`](super::Store::notices) still
    /// returns `None`.
    pub has_notices: bool,
    /// Whether the store does its work on the runtimes of its callers. Then waiting clients listen there too, and not
    /// on a thread of their own.
    pub is_on_callers_runtime: bool,
    /// The longest ttl that the store can keep, if there is a limit and it is known. A longer one is `Invalid`. Where
    /// the limit is part of a server's set-up it is known only once the server has reported it (`members` and `hazards`
    /// ask for it), and may change; until then the server refuses a longer ttl.
    pub max_ttl: Option<Duration>,
}

impl Facts {
    /// The usual interval between polls: ten a second for each waiting client.
    const LOOK_EVERY: Duration = Duration::from_millis(100);

    /// Returns the facts of a store of this kind, without a queue, without notices and without a limit on
    /// the ttl.
    pub const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            has_queue: false,
            trusts_notices: false,
            has_notices: false,
            is_on_callers_runtime: false,
            max_ttl: None,
            least_ttl: Duration::ZERO,
            grace: Duration::ZERO,
            look_every: Self::LOOK_EVERY,
        }
    }

    /// Returns the same facts with a queue.
    #[must_use = "returns the facts with a queue"]
    pub const fn with_queue(mut self) -> Self {
        self.has_queue = true;
        self
    }

    /// Returns the same facts with notices that prove a grant, or do not.
    #[must_use = "returns the facts with what notices prove"]
    pub const fn with_trusted_notices(mut self, trusts_notices: bool) -> Self {
        self.trusts_notices = trusts_notices;
        self
    }

    /// Returns the same facts with notices.
    #[must_use = "returns the facts with notices"]
    pub const fn with_notices(mut self) -> Self {
        self.has_notices = true;
        self
    }

    /// Returns the same facts with a shortest ttl.
    #[must_use = "returns the facts with the limit"]
    pub const fn with_least_ttl(mut self, least_ttl: Duration) -> Self {
        self.least_ttl = least_ttl;
        self
    }

    /// Returns the same facts with this time past the ttl that a lease can still count.
    #[must_use = "returns the facts with the time"]
    pub const fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Returns the same facts with another interval between polls.
    #[must_use = "returns the facts with the interval"]
    pub const fn with_look_every(mut self, look_every: Duration) -> Self {
        self.look_every = look_every;
        self
    }

    /// Returns the same facts, of a store that does its work on the runtimes of its callers.
    #[must_use = "returns the facts with the runtime"]
    pub const fn with_callers_runtime(mut self) -> Self {
        self.is_on_callers_runtime = true;
        self
    }

    /// Returns the same facts with a limit on the ttl.
    #[must_use = "returns the facts with the limit"]
    pub const fn with_max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }
}

/// The purpose of a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// For the watchdog, which renews and releases. A store whose leases live in a session makes the session for this
    /// purpose.
    Watchdog,
    /// For the notices to waiting clients.
    Waiting,
}

/// One of the servers of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The address of the server, without secrets.
    pub address: String,
    /// Whether it takes part in grants.
    pub state: MemberState,
    /// The name and version of its program, if it shows them.
    pub version: Option<String>,
}

impl Member {
    /// Returns the state under which metrics count it.
    pub(crate) const fn counted_as(&self) -> ServerState {
        match self.state {
            MemberState::Up => ServerState::Up,
            MemberState::Away { .. } | MemberState::Standby => ServerState::Away,
            MemberState::Down => ServerState::Down,
        }
    }

    /// Makes a member with this address and state.
    pub fn new(address: impl Into<String>, state: MemberState) -> Self {
        Self {
            address: address.into(),
            state,
            version: None,
        }
    }

    /// Returns the same member with the name and version of its program.
    #[must_use = "returns the member with its version"]
    pub fn with_version(mut self, version: Option<String>) -> Self {
        self.version = version;
        self
    }
}

/// A member's part in grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberState {
    /// The server answers.
    Up,
    /// The server answers but grants nothing for this long, because it came back without its data or was promoted.
    Away {
        /// The time left.
        remaining: Duration,
    },
    /// The server answers but grants nothing, because it only follows the one that does.
    Standby,
    /// The server does not answer.
    Down,
}
