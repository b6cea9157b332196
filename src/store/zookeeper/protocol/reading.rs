//! One reading of a name, and the steps of a transaction that hold only if nothing changed since. Pure.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::stamp::Stamp;
use super::tree::{Children, Kind, token_node};
use super::wire::{Change, Mode, Stat};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Held, HeldState, Info};
use crate::token::Token;

/// A name as it was read.
#[derive(Debug, Clone)]
pub(crate) struct NameReading {
    pub(crate) path: String,
    /// Its version counts grants and joins. `None` if the name was never granted, or was removed.
    pub(crate) stat: Option<Stat>,
    pub(crate) children: Children,
    pub(crate) taken: Option<Taken>,
    pub(crate) last: Option<LastGrant>,
    /// The rest of the time that the name is taken or offered; zero if it can be granted.
    pub(crate) left: Duration,
}

/// The node that keeps a name taken.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) kind: Kind,
    pub(crate) holder: Holder,
    pub(crate) span: Duration,
    /// Its stamp is when its time began.
    pub(crate) stat: Stat,
}

/// The last grant of a name. If no client holds the name or waits for it, only the token is read.
#[derive(Debug, Clone)]
pub(crate) struct LastGrant {
    pub(crate) token: Token,
    signature: Option<Signature>,
    /// Its stamp is the last change: of a freed name when it was freed, or offered to the next client.
    pub(crate) stat: Stat,
    /// Whether the name was freed: then nothing is known about the holder.
    pub(crate) is_freed: bool,
}

/// The facts about its holder in the node of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Signature {
    pub(crate) by: Holder,
    #[serde(default)]
    pub(crate) info: Info,
}

/// Number of children that makes the next grant create the name anew: a million before the last possible number.
const LAST_NUMBERS: u32 = (1 << 31) - 1_000_000;

/// How long a freed name is kept for the first client of the queue before it is kept for the next.
pub(crate) const OFFER: Duration = Duration::from_secs(2);

impl NameReading {
    /// Makes the reading of a free name from its children alone.
    pub(crate) fn untaken(path: String, stat: Option<Stat>, children: Children) -> Self {
        Self {
            path,
            stat,
            taken: None,
            last: children.token.map(LastGrant::unread),
            children,
            left: Duration::ZERO,
        }
    }

    pub(crate) fn version(&self) -> Option<i32> {
        self.stat.map(|stat| stat.version)
    }

    /// Returns whether a grant has to make the name, or make it anew: without a last token it could not check that the
    /// name is unchanged, or the numbers of its places run out.
    pub(crate) fn is_to_be_made(&self) -> bool {
        let are_numbers_used_up = |stat: Stat| stat.children_made > LAST_NUMBERS;
        self.last.is_none() || self.stat.is_some_and(are_numbers_used_up)
    }

    /// Returns whether the name is free, and kept for the first client in the queue.
    pub(crate) fn is_offered(&self) -> bool {
        let is_freed = self.last.as_ref().is_some_and(|last| last.is_freed);
        self.taken.is_none() && !self.children.queue.is_empty() && is_freed
    }

    /// Returns when the time began that the name is taken or offered, and its length.
    pub(crate) fn term(&self) -> Option<(Stamp, Duration)> {
        match (&self.taken, &self.last) {
            (Some(taken), _) => Some((taken.stat.stamp, taken.span)),
            (None, Some(last)) if self.is_offered() => Some((last.stat.stamp, OFFER)),
            _ => None,
        }
    }

    /// Returns the last grant, if it was to this holder, and the known facts about it.
    pub(crate) fn last_of(&self, holder: Holder) -> Option<(&LastGrant, &Info)> {
        let last = self.last.as_ref()?;
        let signature = last.signature.as_ref().filter(|it| it.by == holder)?;
        Some((last, &signature.info))
    }

    /// Returns what a client that does not claim the name sees; `None` if it is free.
    pub(crate) fn shown(&self, name: &Name) -> Option<Held> {
        if self.left.is_zero() {
            return None;
        }
        let offered = usize::from(self.is_offered());
        let mut held = self.held(name);
        held.waiting = Some(self.children.queue.len() - offered);
        Some(held)
    }

    /// Returns the known facts about a name that is taken or offered.
    pub(crate) fn held(&self, name: &Name) -> Held {
        let mut held = Held::new(name.clone());
        held.remaining = Some(self.left);
        let Some(taken) = &self.taken else {
            held.state = HeldState::Kept;
            return held;
        };
        held.state = taken.kind.state();
        held.by = Some(taken.holder);
        if let Some((last, info)) = self.last_of(taken.holder) {
            held.token = Some(last.token);
            held.info = info.clone();
            let since = Duration::from_millis(last.stat.created_ms);
            held.since = SystemTime::UNIX_EPOCH.checked_add(since);
        }
        held
    }

    /// Deletes the node that keeps the name taken, at the version that was read: a renewal in between changes it.
    pub(crate) fn delete_taken(&self) -> Option<Change> {
        let taken = self.taken.as_ref()?;
        let path = self.child(&taken.kind.node(taken.holder));
        Some(Change::Delete(path, Some(taken.stat.version)))
    }

    /// Deletes the last token.
    pub(crate) fn delete_token(&self) -> Option<Change> {
        let last = self.last.as_ref()?;
        let path = self.child(&token_node(last.token));
        Some(Change::Delete(path, Some(last.stat.version)))
    }

    /// Frees the name, and begins the offer to the first client in the queue.
    pub(crate) fn begin_offer(&self) -> Option<Change> {
        let last = self.last.as_ref()?;
        let path = self.child(&token_node(last.token));
        Some(Change::Set(path, Vec::new(), Some(last.stat.version)))
    }

    pub(crate) fn delete_places(&self, places: &[String]) -> impl Iterator<Item = Change> {
        let paths = places.iter().map(|place| self.child(place));
        paths.map(|path| Change::Delete(path, None))
    }

    /// Returns the places that a grant deletes: these, or all of them if the name is made or made anew.
    pub(crate) fn places_to_delete(&self, places: &[String]) -> Vec<String> {
        if !self.is_to_be_made() {
            return places.to_vec();
        }
        let queue = self.children.queue.iter();
        queue
            .flat_map(|place| place.nodes.iter().cloned())
            .collect()
    }

    /// Returns the steps that write the name's node first, and delete what a grant replaces: what keeps the name taken,
    /// the last token and these places, or all places if the name is made or made anew; those clients join again.
    ///
    /// A client in the queue takes its turn: it deletes its place and the last token, so the version need not be
    /// compared, and joins behind it do not make it read again.
    pub(crate) fn make_way(&self, places: &[String], queued: Option<ClientId>) -> Vec<Change> {
        let deleted = self.delete_token().into_iter().chain(self.delete_taken());
        let path = self.path.clone();
        if self.is_to_be_made() {
            let gone = self.places_to_delete(places);
            let places = self.delete_places(&gone).collect::<Vec<_>>();
            // This fails unless all of its children are deleted, too.
            let name = self.stat.map(|_| Change::Delete(path.clone(), None));
            let made = [
                Change::Create(path.clone(), Vec::new(), Mode::Container),
                Change::Set(path, Vec::new(), None),
            ];
            return deleted.chain(places).chain(name).chain(made).collect();
        }
        let takes_turn = queued.is_some_and(|client| self.children.place(client).is_some());
        let version = self.version().filter(|_| !takes_turn);
        let written = [Change::Set(path, Vec::new(), version)].into_iter();
        let deleted = deleted.chain(self.delete_places(places));
        written.chain(deleted).collect()
    }

    /// Returns whether other clients are in the queue after a grant that deleted these places and raised the version to
    /// this one. Others have joined since the name was read, if it was raised by more than this grant.
    pub(crate) fn others_wait_after(&self, places: &[String], version: i32) -> bool {
        let mut nodes = self.children.queue.iter().flat_map(|place| &place.nodes);
        let has_others = nodes.any(|node| !places.contains(node));
        let raised_once = self.version().map(|read| read.wrapping_add(1));
        !self.is_to_be_made() && (has_others || raised_once != Some(version))
    }

    fn child(&self, node: &str) -> String {
        format!("{}/{node}", self.path)
    }
}

impl LastGrant {
    /// Makes the last grant of a name from its token alone.
    pub(crate) fn unread(token: Token) -> Self {
        let any_version = Stat {
            version: -1,
            ..Stat::default()
        };
        Self {
            token,
            signature: None,
            stat: any_version,
            is_freed: false,
        }
    }

    /// Reads the node of a token.
    pub(crate) fn read(token: Token, data: &[u8], stat: Stat) -> Self {
        Self {
            token,
            // Another client may have written it: what cannot be parsed is unknown.
            signature: serde_json::from_slice(data).ok(),
            stat,
            is_freed: data.is_empty(),
        }
    }
}
