//! What one look at a name has found. Pure.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::session::Stat;
use super::stamp::Stamp;
use super::tree::{Children, Kind};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Held, HeldState, Info};
use crate::token::Token;

/// A name as it was read.
#[derive(Debug)]
pub(super) struct NameReading {
    /// Counts grants and joins.
    pub(super) version: i32,
    pub(super) children: Children,
    pub(super) taken: Option<Taken>,
    pub(super) last: Option<LastGrant>,
}

/// The node that keeps a name taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) kind: Kind,
    pub(super) holder: Holder,
    pub(super) span: Duration,
    /// When its time began.
    pub(super) stamp: Stamp,
    pub(super) version: i32,
}

/// The last grant of a name. If no client holds the name or waits for it, only the token is read.
#[derive(Debug)]
pub(super) struct LastGrant {
    pub(super) token: Token,
    pub(super) by: Option<Holder>,
    pub(super) info: Info,
    pub(super) since_ms: u64,
    /// When the name was freed, or offered to the next client: then nothing is known about the holder.
    pub(super) freed: Option<Stamp>,
    /// The version of the token's node; -1 stands for any.
    pub(super) version: i32,
}

/// What the node of a grant says about its holder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Signature {
    pub(super) by: Holder,
    #[serde(default)]
    pub(super) info: Info,
}

impl NameReading {
    /// Returns whether the name is free, and kept for the first client in the queue.
    pub(super) fn is_offered(&self) -> bool {
        let is_freed = self.last.as_ref().is_some_and(|last| last.freed.is_some());
        self.taken.is_none() && !self.children.queue.is_empty() && is_freed
    }

    /// Returns what other clients are told of the name in this state.
    pub(super) fn held(
        &self,
        name: &Name,
        state: HeldState,
        remaining: Option<Duration>,
    ) -> Box<Held> {
        let mut held = Held::new(name.clone());
        held.state = state;
        held.remaining = remaining;
        if let Some(taken) = &self.taken
            && state != HeldState::Offered
        {
            held.by = Some(taken.holder);
            if let Some(last) = &self.last
                && last.by == Some(taken.holder)
            {
                held.token = Some(last.token);
                held.info = last.info.clone();
                let since = Duration::from_millis(last.since_ms);
                held.since = SystemTime::UNIX_EPOCH.checked_add(since);
            }
        }
        Box::new(held)
    }
}

impl LastGrant {
    /// Makes the last grant of a name of which only the token was read.
    pub(super) fn unread(token: Token) -> Self {
        Self {
            token,
            by: None,
            info: Info::default(),
            since_ms: 0,
            freed: None,
            version: -1,
        }
    }

    /// Reads the node of a token.
    pub(super) fn read(token: Token, data: &[u8], stat: Stat) -> Self {
        // Another client may have written it: what cannot be parsed is unknown.
        let signature: Option<Signature> = serde_json::from_slice(data).ok();
        let (by, info) = signature.map_or((None, Info::default()), |it| (Some(it.by), it.info));
        Self {
            token,
            by,
            info,
            since_ms: stat.created_ms,
            freed: data.is_empty().then_some(stat.stamp),
            version: stat.version,
        }
    }
}
