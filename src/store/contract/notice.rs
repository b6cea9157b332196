//! Hints that a name was freed, or that it is a client's turn.

use std::fmt;
use std::time::Duration;

use crate::future::BoxFuture;
use crate::holder::ClientId;
use crate::name::Name;

/// A topic that a subscription can follow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Releases, evictions and expiries of this name, as far as the store reports them.
    Freed(Name),
    /// The turns of this client at this name, if it waits in the store's queue.
    Turn(Name, ClientId),
}

impl Topic {
    /// Returns the name of this topic.
    pub const fn name(&self) -> &Name {
        match self {
            Self::Freed(name) | Self::Turn(name, _) => name,
        }
    }

    /// Returns the hint that a subscription gives on its own as soon as the store listens for this topic.
    pub fn first_hint(&self) -> Notice {
        match self {
            Self::Freed(name) => Notice::Freed(name.clone()),
            Self::Turn(name, _) => Notice::Turn(name.clone()),
        }
    }
}

/// A hint. It may be wrong, late, repeated or missing, so a waiting client also checks again after some time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// This name may have been freed.
    Freed(Name),
    /// It may be the client's turn at this name: the store then keeps the name for the client for a short time.
    Turn(Name),
    /// The store keeps this name for another client for this long; this client may be next in the queue.
    Next(Name, Duration),
    /// The connection was lost and is back. Hints may have been missed: check every name.
    Reconnected,
}

/// A subscription to hints. Hints can be lost, so a waiting client also checks again after some time.
pub trait Notices: fmt::Debug + Send + Sync {
    /// Starts to follow this topic. As soon as the store listens for it, the subscription gives the topic's [first
    /// hint](Topic::first_hint), because a caller that checked before cannot know what was freed meanwhile. It is
    /// idempotent.
    fn follow(&self, topic: &Topic);

    /// Stops following this topic. It is idempotent.
    fn unfollow(&self, topic: &Topic);

    /// Returns the next hint. Only one caller may wait for it at a time.
    ///
    /// # Cancel safety
    /// Dropping the future loses no hint.
    fn next(&self) -> BoxFuture<'_, Notice>;
}
