//! Looks at names: reads their nodes, and finds the holder of one name or the holders of all names with a prefix.

use std::time::Duration;

use futures_util::StreamExt;

use super::Zookeeper;
use super::connection::session::{Session, Stat};
use super::connection::sessions::within;
use super::failure::Failure;
use super::protocol::judge::{Times, shown};
use super::protocol::reading::{LastGrant, NameReading, Taken};
use super::protocol::stamp::Left;
use super::protocol::tree::Children;
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::percent;
use crate::store::budget::Budget;
use crate::store::{Held, HeldState, Queued};

/// How many names of a list are looked at together.
const AT_ONCE: usize = 64;

impl Zookeeper {
    /// Looks at a name, on a server that has seen at least this change and all that other sessions of this client have
    /// seen of it. Returns `None` if the name was never granted.
    pub(super) async fn look(
        &self,
        name: &Name,
        at_least: i64,
        budget: Budget,
    ) -> Result<Option<NameReading>, Failure> {
        let session = self.session(budget).await?;
        let path = self.shared.tree.name(name);
        let at_least = at_least.max(self.remembered().seen(name));
        loop {
            let found = read_children(&session, &path, at_least, budget).await?;
            let Some((nodes, stat)) = found else {
                return Ok(None);
            };
            self.remembered().saw(name, stat.zxid);
            match read(&session, self, name, &nodes, stat, budget).await {
                // The name was freed or granted between the two requests.
                Err(Failure::NoNode) if budget.left().is_zero() => return Err(Failure::Contended),
                Err(Failure::NoNode) => {}
                reading => return reading.map(Some),
            }
        }
    }

    /// The same as `look`, on a server that has seen every change that was answered to any client before.
    pub(super) async fn look_freshly(
        &self,
        name: &Name,
        budget: Budget,
    ) -> Result<Option<NameReading>, Failure> {
        let session = self.session(budget).await?;
        within(budget, session.sync(self.shared.tree.root())).await?;
        self.look(name, 0, budget).await
    }

    /// Returns what is left of the terms of this name.
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

    pub(super) async fn read_holder(
        &self,
        name: &Name,
        budget: Budget,
    ) -> Result<Option<Held>, Failure> {
        let Some(reading) = self.look_freshly(name, budget).await? else {
            return Ok(None);
        };
        self.describe(name, reading, budget).await
    }

    /// Returns who has a name, for a caller that does not claim it.
    async fn describe(
        &self,
        name: &Name,
        reading: NameReading,
        budget: Budget,
    ) -> Result<Option<Held>, Failure> {
        let mut times = self.times(name, &reading);
        if times.taken == Left::Unknown || times.offer == Left::Unknown {
            self.freshen(budget).await?;
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

    pub(super) async fn read_all(
        &self,
        prefix: &str,
        budget: Budget,
    ) -> Result<Vec<Held>, Failure> {
        let names = self.names(prefix, budget).await?;
        let looks = names.into_iter().map(|name| async move {
            match self.look(&name, 0, budget).await? {
                Some(reading) => self.describe(&name, reading, budget).await,
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

    /// Returns all names with this prefix that have a node, in any order.
    async fn names(&self, prefix: &str, budget: Budget) -> Result<Vec<Name>, Failure> {
        let session = &*self.session(budget).await?;
        let root = self.shared.tree.root();
        within(budget, session.sync(root)).await?;
        let folders = match within(budget, session.children(root)).await {
            // No name was ever granted.
            Err(Failure::NoNode) => return Ok(Vec::new()),
            folders => folders?.0,
        };
        let nodes = folders.into_iter().map(|folder| async move {
            let path = format!("{root}/{folder}");
            within(budget, session.children(&path)).await
        });
        let mut nodes = futures_util::stream::iter(nodes).buffer_unordered(AT_ONCE);
        let mut names = Vec::new();
        while let Some(found) = nodes.next().await {
            let found = found?
                .0
                .into_iter()
                .filter_map(|node| percent::decode(&node));
            let found = found.filter(|name| name.starts_with(prefix));
            names.extend(found.filter_map(|name| Name::new(name).ok()));
        }
        Ok(names)
    }
}

/// Returns the children of a name on a server that has seen at least this change; `None` if the name was never granted.
pub(super) async fn read_children(
    session: &Session,
    path: &str,
    at_least: i64,
    budget: Budget,
) -> Result<Option<(Vec<String>, Stat)>, Failure> {
    let read = || async {
        match within(budget, session.children(path)).await {
            Err(Failure::NoNode) => Ok(None),
            found => found.map(Some),
        }
    };
    let found = read().await?;
    if found.as_ref().map_or(0, |(_, stat)| stat.zxid) >= at_least {
        return Ok(found);
    }
    within(budget, session.sync(path)).await?;
    read().await
}

/// Reads what the children of a name say.
async fn read(
    session: &Session,
    store: &Zookeeper,
    name: &Name,
    nodes: &[String],
    stat: Stat,
    budget: Budget,
) -> Result<NameReading, Failure> {
    let children = Children::read(nodes);
    if let Some([first, second]) = children.rivals {
        return Err(Failure::TwoHolders(first, second));
    }
    let tree = &store.shared.tree;
    let is_idle = children.taken.is_none() && children.queue.is_empty();
    let taken = async {
        let Some((kind, holder)) = children.taken else {
            return Ok::<_, Failure>(None);
        };
        let path = tree.taken(name, kind, holder);
        let (data, stat) = within(budget, session.data(&path)).await?;
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
                let (data, stat) = within(budget, session.data(&path)).await?;
                Ok(Some(LastGrant::read(token, &data, stat)))
            }
        }
    };
    let (taken, last) = tokio::try_join!(taken, last)?;
    Ok(NameReading {
        version: stat.version,
        children_made: stat.children_made,
        children,
        taken,
        last,
    })
}
