//! Requests for a name and the store's answers to them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::token::Token;

/// What a client asks the store for: a name, for one holder, for one ttl.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim {
    /// What is asked for.
    pub name: Name,
    /// Who asks.
    pub holder: Holder,
    /// How long the store is to keep it without a renewal.
    pub ttl: Duration,
    /// What other clients are told about the holder.
    pub info: Arc<Info>,
}

/// What one attempt of a claim carries beside the claim: the facts that change while a claim is sent again and again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// A new grant's token must be above this one.
    pub floor: Option<Token>,
    /// The client's place in the queue, if it is to have one.
    pub queued: Option<Queued>,
}

impl Ask {
    /// The same attempt with a floor under its token.
    #[must_use = "returns the attempt with its floor"]
    pub const fn with_floor(mut self, floor: Option<Token>) -> Self {
        self.floor = floor;
        self
    }

    /// The same attempt with a place in the queue.
    #[must_use = "returns the attempt with its place"]
    pub const fn with_queued(mut self, queued: Option<Queued>) -> Self {
        self.queued = queued;
        self
    }
}

/// A client's place in the queue of a name. A client has one place for all its waiters, so the queue is as long as the
/// number of waiting clients, and the death of one client removes one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// How many waiters the client has beside the one that claims. If there are any, a grant puts the client at the end
    /// of the queue again.
    pub more: u32,
}

impl Queued {
    /// The time for which a client counts as alive after its last claim.
    pub const PATIENCE: Duration = Duration::from_secs(9);
    /// The time for which a freed name is kept for the first client of the queue before it goes to the next.
    pub const OFFER: Duration = Duration::from_secs(2);

    /// The place of a client with so many further waiters.
    pub const fn new(more: u32) -> Self {
        Self { more }
    }
}

impl Claim {
    /// This holder's request for this name.
    pub const fn new(name: Name, holder: Holder, ttl: Duration, info: Arc<Info>) -> Self {
        Self {
            name,
            holder,
            ttl,
            info,
        }
    }
}

/// What a holder lets others know about itself. Stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Info {
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The holder's machine.
    #[serde(default)]
    pub host: String,
    /// The holder's process.
    #[serde(default)]
    pub pid: u32,
}

impl Info {
    /// The longest label, in bytes.
    pub const MAX_LABEL_BYTES: usize = 200;

    /// This process, under a label.
    ///
    /// # Errors
    /// `Invalid` for a label that is too long or has control characters.
    pub fn here(label: Option<&str>) -> Result<Self, Error> {
        if let Some(label) = label
            && (label.len() > Self::MAX_LABEL_BYTES || label.chars().any(char::is_control))
        {
            let shown: String = label.chars().take(64).collect();
            return Err(Error::invalid(format!(
                "label {shown:?} refused: expected at most {} bytes without control characters",
                Self::MAX_LABEL_BYTES
            )));
        }
        Ok(Self {
            label: label.map(Into::into),
            host: rustix::system::uname().nodename().to_string_lossy().into(),
            pid: std::process::id(),
        })
    }
}

/// The answer to a claim.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Answer {
    /// Yes.
    Granted(Grant),
    /// Another holder has the name. Boxed, because most answers are grants.
    Held(Box<Held>),
}

/// A store's yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token.
    pub token: Token,
}

impl Grant {
    /// A grant with this token.
    pub const fn new(token: Token) -> Self {
        Self { token }
    }
}

/// Why an attempt brought no answer, and whether it may have been carried out all the same.
///
/// The two are independent: the kind of the error tells the caller what to do, `sent` tells the client whether something
/// of the attempt can be in the store.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// What the caller is told.
    pub error: Error,
    /// What became of the request.
    pub sent: Sent,
}

/// How far a request that failed came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It never left: no connection was made, or the store is closed. Nothing was changed.
    Never,
    /// It may have been carried out, now or later: the outcome is unknown. The claim is *doubtful*, and the client
    /// releases it until nothing of it can be left.
    Perhaps,
    /// It was answered, and the answer proves that nothing was changed.
    Answered,
}

impl Failed {
    /// A request that never left.
    pub const fn never(error: Error) -> Self {
        let sent = Sent::Never;
        Self { error, sent }
    }

    /// A request that may have been carried out. In doubt, this is the one to choose.
    pub const fn perhaps(error: Error) -> Self {
        let sent = Sent::Perhaps;
        Self { error, sent }
    }

    /// A request that was refused, and changed nothing.
    pub const fn answered(error: Error) -> Self {
        let sent = Sent::Answered;
        Self { error, sent }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// Who has a name. Everything but the name may be unknown: it was written by others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// What is held.
    pub name: Name,
    /// The holder.
    pub by: Option<Holder>,
    /// The holder's token.
    pub token: Option<Token>,
    /// What the holder says of itself.
    pub info: Info,
    /// When it was granted, by the store's wall clock.
    pub since: Option<SystemTime>,
    /// The time left unless it is renewed. `None` if the store knows no end.
    pub remaining: Option<Duration>,
    /// How many clients are before the claiming one, if that one is in the queue.
    pub ahead: Option<usize>,
    /// In which way it is taken.
    pub state: HeldState,
    /// How many clients wait in the store's queue, without one that the name is offered to. Clients that died a short while
    /// ago may be among them. `None` in the answer to a claim, and where the store keeps no queue or cannot read it.
    pub waiting: Option<usize>,
}

/// In which way a name is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeldState {
    /// By its holder, which can renew it. Also where the store cannot tell.
    #[default]
    Leased,
    /// By a holder that an operator evicted: it cannot be renewed, and is free at the end of its time.
    Evicted,
    /// By no one any more: its holder released it with a time to keep, and it is free after that time.
    Kept,
    /// By no one: it is free, and kept for the client whose turn it is.
    Offered,
    /// By no one: the store grants nothing for the remaining time, because it came back without its data or was promoted.
    KeepOut,
}

impl Held {
    /// A taken name of whose holder nothing is known.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            by: None,
            token: None,
            info: Info::default(),
            since: None,
            remaining: None,
            ahead: None,
            state: HeldState::default(),
            waiting: None,
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Written by a stranger: no line break and no escape sequence may reach a log or a terminal.
        let host = self.info.host.escape_debug();
        write!(f, "held by host={host} pid={}", self.info.pid)?;
        if let Some(label) = &self.info.label {
            write!(f, " label={label:?}")?;
        }
        if let Some(token) = self.token {
            write!(f, " token={token}")?;
        }
        match self.remaining {
            Some(remaining) => write!(f, " remaining={remaining:.1?}"),
            None => write!(f, " remaining=unknown"),
        }
    }
}

impl std::error::Error for Held {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_calls_its_host_breaks_no_line() {
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.info.host = "evil\n\x1b[2Jhost".into();
        let shown = held.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.contains("host=evil\\n"), "{shown:?}");
    }
}
