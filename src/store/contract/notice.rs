//! Notices that a name was freed, or granted to a client that waits for it.

use std::fmt;

use crate::future::BoxFuture;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::term::Instant;
use crate::token::Token;

/// A topic that a subscription can follow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Releases, evictions and expiries of this name, as far as the store reports them.
    Freed(Name),
    /// The notices for this client in the store's queue of this name.
    Queue(Name, ClientId),
}

impl Topic {
    /// Returns the name of this topic.
    pub const fn name(&self) -> &Name {
        match self {
            Self::Freed(name) | Self::Queue(name, _) => name,
        }
    }

    /// Returns the notice that a subscription gives on its own as soon as the store listens for this topic.
    pub fn first_notice(&self) -> Notice {
        Notice::Freed(self.name().clone())
    }
}

/// A notice. It may be late, repeated or missing, so a waiting client also polls from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// This name may have been freed. The notice may be wrong, so check the name.
    Freed(Name),
    /// The name was freed and granted to a claim that waited.
    Granted(Box<Handover>),
    /// The connection was lost and is back. Notices may have been missed: check every name.
    Reconnected,
}

/// A grant to a waiting client without a request at that moment: the name was freed, and the client's place was the
/// first. It extends nothing: it lasts for the rest of the term of the place, which began with the last answer to the
/// claim, or until its own end, if that is earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handover {
    /// The name.
    pub name: Name,
    /// The identity of the claim.
    pub holder: Holder,
    /// The fencing token of the grant.
    pub token: Token,
    /// The end of the grant, by the clock of the store and its client, if the store may grant for less than is left of
    /// the term.
    pub ends_at: Option<Instant>,
}

impl Handover {
    /// Makes the grant of this name, with this token, to this claim.
    pub const fn new(name: Name, holder: Holder, token: Token) -> Self {
        Self {
            name,
            holder,
            token,
            ends_at: None,
        }
    }

    /// Returns the same grant with its end.
    #[must_use = "returns the grant with its end"]
    pub const fn with_end(mut self, ends_at: Instant) -> Self {
        self.ends_at = Some(ends_at);
        self
    }
}

/// A subscription to notices. They can be lost, so a waiting client also polls from time to time.
pub trait Notices: fmt::Debug + Send + Sync {
    /// Starts to follow this topic. As soon as the store listens for it, the subscription gives the topic's [first
    /// notice](Topic::first_notice), because a caller that checked before cannot know what was freed in between. It is
    /// idempotent.
    fn follow(&self, topic: &Topic);

    /// Stops following this topic. It is idempotent.
    fn unfollow(&self, topic: &Topic);

    /// Returns the next notice. Only one caller may wait for it at a time.
    ///
    /// # Cancel safety
    /// Dropping the future loses no notice.
    fn next(&self) -> BoxFuture<'_, Notice>;
}
