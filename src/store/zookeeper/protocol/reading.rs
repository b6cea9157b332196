//! The reading of one look at a name. Pure.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::super::connection::session::Stat;
use super::judge::Refused;
use super::stamp::Stamp;
use super::tree::{Children, Kind};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Held, HeldState, Info};
use crate::token::Token;

/// A name as it was read.
#[derive(Debug)]
pub(in super::super) struct NameReading {
    /// Counts grants and joins.
    pub(in super::super) version: i32,
    /// The number of its next child.
    pub(in super::super) children_made: u32,
    pub(in super::super) children: Children,
    pub(in super::super) taken: Option<Taken>,
    pub(in super::super) last: Option<LastGrant>,
}

/// The node that keeps a name taken.
#[derive(Debug)]
pub(in super::super) struct Taken {
    pub(in super::super) kind: Kind,
    pub(in super::super) holder: Holder,
    pub(in super::super) span: Duration,
    /// The moment at which its time began.
    pub(in super::super) stamp: Stamp,
    pub(in super::super) version: i32,
}

/// The last grant of a name. If no client holds the name or waits for it, only the token is read.
#[derive(Debug)]
pub(in super::super) struct LastGrant {
    pub(in super::super) token: Token,
    pub(in super::super) by: Option<Holder>,
    pub(in super::super) info: Info,
    pub(in super::super) since_ms: u64,
    /// When the name was freed, or offered to the next client: then nothing is known about the holder.
    pub(in super::super) freed: Option<Stamp>,
    /// The version of the token's node; -1 stands for any.
    pub(in super::super) version: i32,
}

/// The facts about its holder in the node of a grant.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Signature {
    pub(in super::super) by: Holder,
    #[serde(default)]
    pub(in super::super) info: Info,
}

/// From which number of children on the next grant of a name makes it anew, a million before the last number.
const LAST_NUMBERS: u32 = (1 << 31) - 1_000_000;

impl NameReading {
    /// Returns whether a grant has to make the name anew: there is no last token that shows that the name is the one
    /// that was read, or the numbers of its places come to their end.
    pub(in super::super) fn is_to_be_remade(&self) -> bool {
        self.last.is_none() || self.children_made > LAST_NUMBERS
    }

    /// Returns whether the name is free, and kept for the first client in the queue.
    pub(in super::super) fn is_offered(&self) -> bool {
        let is_freed = self.last.as_ref().is_some_and(|last| last.freed.is_some());
        self.taken.is_none() && !self.children.queue.is_empty() && is_freed
    }

    /// Returns the last grant, if it was to this holder.
    pub(in super::super) fn last_of(&self, holder: Holder) -> Option<&LastGrant> {
        self.last.as_ref().filter(|last| last.by == Some(holder))
    }

    /// Returns what a client that is refused is told.
    pub(in super::super) fn refused(&self, name: &Name, refusal: &Refused) -> Box<Held> {
        let mut held = self.held(name, refusal.state, Some(refusal.remaining));
        held.ahead = refusal.ahead;
        held
    }

    /// Returns what other clients are told of the name in this state.
    pub(in super::super) fn held(
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
            if let Some(last) = self.last_of(taken.holder) {
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
    pub(in super::super) fn unread(token: Token) -> Self {
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
    pub(in super::super) fn read(token: Token, data: &[u8], stat: Stat) -> Self {
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
