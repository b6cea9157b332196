//! Hints that a name was freed, or that it is a client's turn.

use std::fmt;
use std::time::Duration;

use crate::future::BoxFuture;
use crate::holder::ClientId;
use crate::name::Name;

/// What a subscription can follow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Releases, evictions and expiries of this name, as far as the store tells of them.
    Freed(Name),
    /// The turns of this client at this name, if it waits in the store's queue.
    Turn(Name, ClientId),
}

impl Topic {
    /// The name that this topic is about.
    pub const fn name(&self) -> &Name {
        match self {
            Self::Freed(name) | Self::Turn(name, _) => name,
        }
    }

    /// The hint that a subscription gives by itself once the store listens for this topic.
    pub fn first_hint(&self) -> Notice {
        match self {
            Self::Freed(name) => Notice::Freed(name.clone()),
            Self::Turn(name, _) => Notice::Turn(name.clone()),
        }
    }
}

/// A hint. It may be wrong, late, repeated or missing, so a waiting client also looks again after some time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// This name may have been freed.
    Freed(Name),
    /// It may be the client's turn at this name; the store keeps the name for it for a short while.
    Turn(Name),
    /// The client may be next in the queue for this name, which the store keeps for another client for this long.
    Next(Name, Duration),
    /// The connection was lost and is back. Hints were missed: look at every name.
    Reconnected,
}

/// A subscription to hints. Lossy: a waiting client also looks again after some time.
pub trait Notices: fmt::Debug + Send + Sync {
    /// Starts to follow this topic. Once the store listens for it, the subscription gives the topic's
    /// [first hint](Topic::first_hint) by itself, because a caller that looked before cannot know what was freed meanwhile.
    /// It is idempotent.
    fn follow(&self, topic: &Topic);

    /// Stops following this topic. It is idempotent.
    fn unfollow(&self, topic: &Topic);

    /// Returns the next hint. One caller at a time.
    ///
    /// # Cancel safety
    /// Dropping the future loses no hint.
    fn next(&self) -> BoxFuture<'_, Notice>;
}
