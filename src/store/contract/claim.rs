//! Requests for a name and the store's answers to them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::token::Token;

/// A client's request to the store: a name, for one holder, for one ttl.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim {
    /// The name to lease.
    pub name: Name,
    /// The identity of this claim.
    pub holder: Holder,
    /// How long the store keeps the lease without a renewal.
    pub ttl: Duration,
    /// The facts about the holder that other clients see.
    pub info: Arc<Info>,
}

/// The part of an attempt that can change from one attempt of a claim to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// The token of a new grant must be above this one.
    pub floor: Option<Token>,
    /// The request to the queue, if the claim waits.
    pub queued: Option<Queued>,
}

impl Ask {
    /// Returns the same attempt with a floor for its token.
    #[must_use = "returns the attempt with its floor"]
    pub const fn with_floor(mut self, floor: Option<Token>) -> Self {
        self.floor = floor;
        self
    }

    /// Returns the same attempt of a caller that waits.
    #[must_use = "returns the attempt with its place"]
    pub const fn with_queued(mut self, queued: Option<Queued>) -> Self {
        self.queued = queued;
        self
    }
}

/// What a claim asks of the queue of its name: the client's place, kept for a term. A client has one place for all its
/// waiting callers, so the queue is as long as the number of waiting clients, and the death of one client removes one
/// place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// How long from this attempt the store keeps the place, with this claim. A name that is freed during this time is
    /// granted to the claim for the rest of it.
    pub term: Duration,
    /// Whether the client hears of a grant at once. A store that finds no subscription of such a client passes over its
    /// place.
    pub listens: bool,
}

impl Queued {
    /// The longest term of a place: what a dead client costs those behind it.
    pub const LONGEST_TERM: Duration = Duration::from_secs(3);

    /// Returns what a claim with this ttl asks for: no place lasts longer than the lease would.
    pub fn new(ttl: Duration) -> Self {
        Self {
            term: ttl.min(Self::LONGEST_TERM),
            listens: false,
        }
    }

    /// Returns the same of a client that hears of a grant at once, or not.
    #[must_use = "returns what is asked for"]
    pub const fn with_listens(mut self, listens: bool) -> Self {
        self.listens = listens;
        self
    }
}

impl Claim {
    /// Makes a claim for this name.
    pub const fn new(name: Name, holder: Holder, ttl: Duration, info: Arc<Info>) -> Self {
        Self {
            name,
            holder,
            ttl,
            info,
        }
    }
}

/// The facts about a holder that other clients see. Stores keep them as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Info {
    /// A free text, set by the user.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "short_label"
    )]
    pub label: Option<String>,
    /// The name of the holder's machine.
    #[serde(default, deserialize_with = "short_text")]
    pub host: String,
    /// The id of the holder's process.
    #[serde(default)]
    pub pid: u32,
    /// The number of the permit, if the lease is one of a pool or a share of a name: the name of the pool, `#` and this
    /// number are then the name of the lease. A lease of such a name without it is one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<u16>,
}

fn short_text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(shortened)
}

fn short_label<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::deserialize(from)?.map(shortened))
}

/// Cuts a text to the maximum length of a host name: another program may have written one of any length.
fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(255) {
        text.truncate(end);
    }
    text
}

impl Info {
    /// The longest label, in bytes.
    pub const MAX_LABEL_BYTES: usize = 200;

    /// Describes this process, under a label.
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
            permit: None,
        })
    }
}

/// The answer of a store to a claim.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The claim was granted.
    Granted(Grant),
    /// Another holder has the name. Boxed, because most answers are grants.
    Held(Box<Held>),
}

/// The grant of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token of this grant.
    pub token: Token,
}

impl Grant {
    /// Makes a grant with this token.
    pub const fn new(token: Token) -> Self {
        Self { token }
    }
}

/// The failure of an attempt: the error, and whether the attempt may have been carried out all the same.
///
/// The two are independent: the kind of the error says what the caller should do, `sent` says whether the
/// store can have carried out any of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// The error for the caller.
    pub error: Error,
    /// Whether the request may have been carried out.
    pub sent: Sent,
}

/// Whether a failed request may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It was never sent: no connection was made, or the store is closed. Nothing was changed.
    Never,
    /// It may have been carried out, now or later: the outcome is unknown. The claim is *doubtful*, and the client
    /// repeats its release until nothing of it can be left.
    Perhaps,
    /// It was answered, and the answer proves that nothing was changed.
    Answered,
}

impl Failed {
    /// Makes the failure of a request that was never sent.
    pub const fn never(error: Error) -> Self {
        let sent = Sent::Never;
        Self { error, sent }
    }

    /// Makes the failure of a request that may have been carried out. In doubt, choose this one.
    pub const fn perhaps(error: Error) -> Self {
        let sent = Sent::Perhaps;
        Self { error, sent }
    }

    /// Makes the failure of a request that was refused and changed nothing.
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

/// The facts about a name that is taken. All but the name can be unknown, because another client wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The name.
    pub name: Name,
    /// The identity of the holder.
    pub by: Option<Holder>,
    /// The holder's token.
    pub token: Option<Token>,
    /// The facts about the holder.
    pub info: Info,
    /// The time of the grant, by the store's wall clock.
    pub since: Option<SystemTime>,
    /// The time left if the lease is not renewed. `None` if the store knows no end.
    pub remaining: Option<Duration>,
    /// The place of the claiming client in the queue, if it has one.
    pub place: Option<Place>,
    /// How the name is taken.
    pub state: HeldState,
    /// The number of clients in the store's queue. It may count clients that died a short time ago. `None` in the
    /// answer to a claim, and where the store has no queue or cannot read it.
    pub waiting: Option<usize>,
}

/// A client's place in the queue of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The highest token that can have been granted for the name until this answer: the mark, or the store's clock
    /// where that is above it. Later grants have higher tokens, so the token shows which notices are of earlier grants.
    /// Zero where no notice proves a grant.
    pub height: u64,
    /// The number of clients before it.
    pub ahead: usize,
    /// How long from the attempt the store keeps it, if that is longer than the [term](Queued::term) that the attempt
    /// asked for.
    pub kept_for: Option<Duration>,
}

impl Place {
    /// Makes a place below this token, with this many clients before it.
    pub const fn new(height: u64, ahead: usize) -> Self {
        Self {
            height,
            ahead,
            kept_for: None,
        }
    }

    /// Returns the same place, kept for this time.
    #[must_use = "returns the place that is kept"]
    pub const fn with_kept_for(mut self, time: Duration) -> Self {
        self.kept_for = Some(time);
        self
    }

    /// Returns how long from the attempt it is kept, given the request of the attempt.
    pub fn term(&self, queued: Queued) -> Duration {
        self.kept_for.unwrap_or(queued.term)
    }
}

/// How a name is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HeldState {
    /// Its holder has it and can renew it. A store that cannot distinguish returns this state too.
    #[default]
    Leased,
    /// An operator evicted its holder: the lease cannot be renewed, and the name is free when its time has passed.
    Evicted,
    /// No holder has it: it was released with a time to keep, and is free after that time.
    Kept,
    /// No holder has it: the store grants nothing for the remaining time, because it came back without its data or was
    /// promoted.
    KeepOut,
}

impl Held {
    /// Describes a taken name whose holder is unknown.
    pub fn new(name: Name) -> Self {
        Self {
            name,
            by: None,
            token: None,
            info: Info::default(),
            since: None,
            remaining: None,
            place: None,
            state: HeldState::default(),
            waiting: None,
        }
    }

    fn write_holder(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Another client wrote it: no line break and no escape sequence may reach a log or a terminal.
        let host = self.info.host.escape_debug();
        write!(f, "held by host={host} pid={}", self.info.pid)?;
        if let Some(label) = &self.info.label {
            write!(f, " label={label:?}")?;
        }
        match self.token {
            Some(token) => write!(f, " token={token}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            // It has no holder to be named.
            HeldState::KeepOut => {
                f.write_str("the store grants nothing after a failover or a loss of its data")?;
            }
            _ => self.write_holder(f)?,
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
    fn a_host_name_that_another_client_wrote_is_escaped() {
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.info.host = "evil\n\x1b[2Jhost".into();
        let shown = held.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.contains("host=evil\\n"), "{shown:?}");
    }

    #[test]
    fn a_text_that_another_program_wrote_is_cut() {
        let long = "\u{e9}".repeat(1_000_000);
        let told = serde_json::json!({ "host": long, "label": long, "pid": 7 });
        let info: Info = serde_json::from_value(told).expect("facts");
        let label = info.label.expect("a label");
        assert_eq!((info.host.chars().count(), info.pid), (255, 7));
        assert_eq!(label.chars().count(), 255);
        let info: Info = serde_json::from_str(r#"{"label":null}"#).expect("facts");
        assert_eq!(info, Info::default());
    }

    #[test]
    fn a_store_that_keeps_out_is_not_shown_as_a_holder() {
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.state = HeldState::KeepOut;
        held.remaining = Some(Duration::from_secs(5));
        assert_eq!(
            held.to_string(),
            "the store grants nothing after a failover or a loss of its data remaining=5.0s"
        );
    }
}
