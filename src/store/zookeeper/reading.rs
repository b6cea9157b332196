//! One look at a name, and what is told from looks: who has it, and who has which names.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::judge::{Times, shown};
use super::lane::{left, within};
use super::session::{Session, Stat};
use super::stamp::{Left, Stamp};
use super::tree::{Children, Kind, decode};
use super::{Zookeeper, until};
use crate::clock::{Boottime, Clock, Instant};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Held, HeldState, Info, Queued};
use crate::token::Token;

/// How many names of a list are looked at together.
const AT_ONCE: usize = 64;

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

/// The last grant of a name. Of a name that nobody holds or waits for, only the token is read.
#[derive(Debug)]
pub(super) struct LastGrant {
    pub(super) token: Token,
    pub(super) by: Option<Holder>,
    pub(super) info: Info,
    pub(super) since_ms: u64,
    /// When it was freed, or offered to the next: then there is no more about the holder.
    pub(super) freed: Option<Stamp>,
    /// -1: any.
    pub(super) version: i32,
}

/// What a grant says about its holder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Signature {
    pub(super) by: Holder,
    #[serde(default)]
    pub(super) info: Info,
}

impl NameReading {
    /// Whether the name is free, and kept for the first in the queue.
    pub(super) fn is_offered(&self) -> bool {
        let is_freed = self.last.as_ref().is_some_and(|last| last.freed.is_some());
        self.taken.is_none() && !self.children.queue.is_empty() && is_freed
    }

    /// What others are told, in this state.
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

impl Zookeeper {
    /// Looks at a name, on a server that has seen at least this change and all that other sessions of this client have
    /// seen of it. `None`: it was never granted.
    pub(super) async fn look(
        &self,
        name: &Name,
        at_least: i64,
        until: Instant,
    ) -> Result<Option<NameReading>, Failure> {
        let session = self.session(until).await?;
        let path = self.shared.tree.name(name);
        let at_least = at_least.max(self.remembered().seen(name));
        let mut has_caught_up = at_least == 0;
        loop {
            let found = match within(until, session.children(&path)).await {
                Err(Failure::NoNode) => None,
                found => Some(found?),
            };
            let zxid = found.as_ref().map_or(0, |(_, stat)| stat.zxid);
            if zxid < at_least && !has_caught_up {
                within(until, session.sync(&path)).await?;
                has_caught_up = true;
                continue;
            }
            let Some((nodes, stat)) = found else {
                return Ok(None);
            };
            self.remembered().saw(name, stat.zxid);
            match read(&session, self, name, &nodes, stat, until).await {
                // It was freed or granted meanwhile.
                Err(Failure::NoNode) if !left(until).is_zero() => {}
                reading => return reading.map(Some),
            }
        }
    }

    /// As `look`, and it has seen everything that was answered to anybody before.
    pub(super) async fn look_freshly(
        &self,
        name: &Name,
        until: Instant,
    ) -> Result<Option<NameReading>, Failure> {
        let session = self.session(until).await?;
        within(until, session.sync(self.shared.tree.root())).await?;
        self.look(name, 0, until).await
    }

    /// What is left of the terms of this name.
    pub(super) fn times(&self, name: &Name, reading: &NameReading) -> Times {
        let now = Boottime.now();
        let mut remembered = self.remembered();
        let mut left = |stamp, span| remembered.left(name, stamp, span, now);
        let taken = reading.taken.as_ref();
        let taken = taken.map_or(Left::Over, |taken| left(taken.stamp, taken.span));
        let freed = reading.last.as_ref().and_then(|last| last.freed);
        let offer = freed.map_or(Left::Over, |freed| left(freed, Queued::OFFER));
        Times { taken, offer }
    }

    pub(super) async fn try_inspect(
        &self,
        name: &Name,
        limit: Duration,
    ) -> Result<Option<Held>, Failure> {
        let until = until(limit);
        let Some(reading) = self.look_freshly(name, until).await? else {
            return Ok(None);
        };
        self.describe(name, reading, until).await
    }

    /// Who has a name, as an onlooker is told.
    async fn describe(
        &self,
        name: &Name,
        reading: NameReading,
        until: Instant,
    ) -> Result<Option<Held>, Failure> {
        let mut times = self.times(name, &reading);
        if times.taken == Left::Unknown || times.offer == Left::Unknown {
            self.freshen(until).await?;
            times = self.times(name, &reading);
        }
        let Some((state, remaining)) = shown(&reading, times) else {
            return Ok(None);
        };
        let offered = usize::from(state == HeldState::Offered);
        let mut held = *reading.held(name, state, remaining);
        held.waiting = Some(reading.children.queue.len() - offered);
        Ok(Some(held))
    }

    pub(super) async fn try_list(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<Vec<Held>, Failure> {
        let until = until(limit);
        let names = self.names(prefix, until).await?;
        let looks = names.into_iter().map(|name| async move {
            match self.look(&name, 0, until).await? {
                Some(reading) => self.describe(&name, reading, until).await,
                None => Ok(None),
            }
        });
        let mut looks = futures_util::stream::iter(looks).buffer_unordered(AT_ONCE);
        let mut list = Vec::new();
        while let Some(held) = looks.next().await {
            list.extend(held?);
        }
        list.sort_by(|one: &Held, other| one.name.cmp(&other.name));
        Ok(list)
    }

    /// All names with this prefix that have a node, in any order.
    async fn names(&self, prefix: &str, until: Instant) -> Result<Vec<Name>, Failure> {
        let session = &*self.session(until).await?;
        let root = self.shared.tree.root();
        within(until, session.sync(root)).await?;
        let folders = match within(until, session.children(root)).await {
            // Nothing was ever granted.
            Err(Failure::NoNode) => return Ok(Vec::new()),
            folders => folders?.0,
        };
        let nodes = folders.into_iter().map(|folder| async move {
            let path = format!("{root}/{folder}");
            within(until, session.children(&path)).await
        });
        let mut nodes = futures_util::stream::iter(nodes).buffer_unordered(AT_ONCE);
        let mut names = Vec::new();
        while let Some(found) = nodes.next().await {
            let found = found?.0.into_iter().filter_map(|node| decode(&node));
            let found = found.filter(|name| name.starts_with(prefix));
            names.extend(found.filter_map(|name| Name::new(name).ok()));
        }
        Ok(names)
    }
}

/// Reads what the children of a name say.
async fn read(
    session: &Session,
    store: &Zookeeper,
    name: &Name,
    nodes: &[String],
    stat: Stat,
    until: Instant,
) -> Result<NameReading, Failure> {
    let children = Children::read(nodes);
    let tree = &store.shared.tree;
    let is_idle = children.taken.is_none() && children.queue.is_empty();
    let taken = async {
        let Some((kind, holder)) = children.taken else {
            return Ok(None);
        };
        let path = tree.taken(name, kind, holder);
        let (data, stat) = within(until, session.data(&path)).await?;
        let ms = std::str::from_utf8(&data)
            .ok()
            .and_then(|ms| ms.parse().ok());
        let ms = ms.ok_or_else(|| Failure::Odd(format!("node={path}")))?;
        Ok(Some(Taken {
            kind,
            holder,
            span: Duration::from_millis(ms),
            stamp: stat.stamp,
            version: stat.version,
        }))
    };
    let last = async {
        match children.token {
            None => Ok(None),
            Some(token) if is_idle => Ok(Some(LastGrant::unread(token))),
            Some(token) => {
                let path = tree.token(name, token);
                let (data, stat) = within(until, session.data(&path)).await?;
                Ok(Some(LastGrant::read(token, &data, stat)))
            }
        }
    };
    let (taken, last) = tokio::try_join!(taken, last)?;
    Ok(NameReading {
        version: stat.version,
        children,
        taken,
        last,
    })
}

impl LastGrant {
    fn unread(token: Token) -> Self {
        Self {
            token,
            by: None,
            info: Info::default(),
            since_ms: 0,
            freed: None,
            version: -1,
        }
    }

    fn read(token: Token, data: &[u8], stat: Stat) -> Self {
        // Written by others, perhaps: what cannot be read is not known.
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
