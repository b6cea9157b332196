//! Looks at names: reads their nodes, and finds the holder of one name or the holders of all names with a prefix.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::connection::session::{Session, Stat};
use super::connection::sessions::SessionCall;
use super::failure::Failure;
use super::protocol::judge::{Times, shown};
use super::protocol::reading::{LastGrant, NameReading, Taken};
use super::protocol::stamp::Left;
use super::protocol::tree::Children;
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::percent;
use crate::store::{Held, HeldState, Queued};
use crate::telemetry;

/// Number of names of a list that are looked at together.
const AT_ONCE: usize = 64;

impl SessionCall<'_> {
    /// Looks at a name, on a server that has seen at least this change and all that other sessions of this client have
    /// seen of it. Returns `None` if the name was never granted.
    pub(super) async fn look(
        &self,
        name: &Name,
        at_least: i64,
    ) -> Result<Option<NameReading>, Failure> {
        let path = self.shared.tree.name(name);
        let at_least = at_least.max(self.shared.remembered().seen(name));
        loop {
            let Some((nodes, stat)) = self.children_since(&path, at_least).await? else {
                return Ok(None);
            };
            self.shared.remembered().saw(name, stat.zxid);
            match self.read(name, &nodes, stat).await {
                // The name was freed or granted between the two requests.
                Err(Failure::NoNode) if self.budget.left().is_zero() => {
                    return Err(Failure::Contended);
                }
                Err(Failure::NoNode) => {}
                reading => return reading.map(Some),
            }
        }
    }

    /// Reads what the children of a name say.
    async fn read(
        &self,
        name: &Name,
        nodes: &[String],
        stat: Stat,
    ) -> Result<NameReading, Failure> {
        let children = Children::read(nodes);
        let path = |node: &String| format!("{}/{node}", self.shared.tree.name(name));
        if let Some(rivals) = &children.rivals {
            let [first, second] = rivals.each_ref().map(path);
            telemetry::two_holders(name.as_str(), &first, &second);
            return Err(Failure::TwoHolders(first, second));
        }
        if let Some(node) = &children.unknown {
            return Err(Failure::UnknownForm(path(node)));
        }
        let (taken, last) = tokio::try_join!(
            self.read_taken(name, &children),
            self.read_last(name, &children)
        )?;
        Ok(NameReading {
            version: stat.version,
            children_made: stat.children_made,
            children,
            taken,
            last,
        })
    }

    async fn read_taken(&self, name: &Name, children: &Children) -> Result<Option<Taken>, Failure> {
        let Some((kind, holder)) = children.taken else {
            return Ok(None);
        };
        let path = self.shared.tree.taken(name, kind, holder);
        let (data, stat) = self.data(&path).await?;
        let span = read_millis(&data).ok_or(Failure::UnknownForm(path))?;
        Ok(Some(Taken {
            kind,
            holder,
            span,
            stamp: stat.stamp,
            version: stat.version,
        }))
    }

    async fn read_last(
        &self,
        name: &Name,
        children: &Children,
    ) -> Result<Option<LastGrant>, Failure> {
        let is_idle = children.taken.is_none() && children.queue.is_empty();
        match children.token {
            None => Ok(None),
            Some(token) if is_idle => Ok(Some(LastGrant::unread(token))),
            Some(token) => {
                let (data, stat) = self.data(&self.shared.tree.token(name, token)).await?;
                Ok(Some(LastGrant::read(token, &data, stat)))
            }
        }
    }

    /// The same as `look`, on a server that has seen every change that was answered to any client before. What seems to
    /// have run out is looked at once more, after a stamp of the leader: its clock may have been set back.
    pub(super) async fn look_freshly(&self, name: &Name) -> Result<Option<NameReading>, Failure> {
        self.sync(self.shared.tree.root()).await?;
        let reading = self.look(name, 0).await?;
        let is_clear = |it: &NameReading| {
            it.taken.is_none() || matches!(self.times(name, it).taken, Left::For(_))
        };
        if reading.as_ref().is_none_or(is_clear) {
            return Ok(reading);
        }
        self.freshen().await?;
        self.look(name, 0).await
    }

    /// Returns what is left of the terms of this name.
    pub(super) fn times(&self, name: &Name, reading: &NameReading) -> Times {
        let now = Boottime.now();
        let mut remembered = self.shared.remembered();
        let mut left = |stamp, span| remembered.left(name, stamp, span, now);
        let taken = reading.taken.as_ref();
        let taken = taken.map_or(Left::Over, |taken| left(taken.stamp, taken.span));
        let freed = reading.last.as_ref().and_then(|last| last.freed);
        let offer = freed.map_or(Left::Over, |freed| left(freed, Queued::OFFER));
        Times { taken, offer }
    }

    /// Returns who has a name, for a caller that does not claim it.
    pub(super) async fn describe(
        &self,
        name: &Name,
        reading: Option<NameReading>,
    ) -> Result<Option<Held>, Failure> {
        let Some(reading) = reading else {
            return Ok(None);
        };
        let Some((state, remaining)) = self.shown_now(name, &reading).await? else {
            return Ok(None);
        };
        let offered = usize::from(state == HeldState::Offered);
        let mut held = *reading.held(name, state, remaining);
        held.waiting = Some(reading.children.queue.len() - offered);
        Ok(Some(held))
    }

    /// Returns how a name is shown to be taken, and for how long, by a stamp of the current leader if it needs one.
    pub(super) async fn shown_now(
        &self,
        name: &Name,
        reading: &NameReading,
    ) -> Result<Option<(HeldState, Option<Duration>)>, Failure> {
        let mut times = self.times(name, reading);
        if times.taken == Left::Unknown || times.offer == Left::Unknown {
            self.freshen().await?;
            times = self.times(name, reading);
        }
        Ok(shown(reading, times))
    }

    /// Returns who has the names with this prefix. Names that are not in order are among them, without a holder.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Held>, Failure> {
        let looks = self.names(prefix).await?.into_iter();
        let looks = looks.map(|name| async move {
            let held = async { self.describe(&name, self.look(&name, 0).await?).await };
            match held.await {
                Err(failure) if failure.is_of_one_name() => {
                    tracing::warn!(name = name.as_str(), %failure, "a name is not in order");
                    Ok(Some(Held::new(name)))
                }
                held => held,
            }
        });
        let looks = stream::iter(looks).buffer_unordered(AT_ONCE);
        let found: Vec<Option<Held>> = looks.try_collect().await?;
        let mut list: Vec<_> = found.into_iter().flatten().collect();
        list.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(list)
    }

    /// Returns all names with this prefix that have a node, in any order.
    async fn names(&self, prefix: &str) -> Result<Vec<Name>, Failure> {
        let root = self.shared.tree.root();
        self.sync(root).await?;
        let folders = match self.children(root).await {
            // No name was ever granted.
            Err(Failure::NoNode) => return Ok(Vec::new()),
            folders => folders?.0,
        };
        let nodes = folders
            .into_iter()
            .map(|folder| async move { self.children(&format!("{root}/{folder}")).await });
        let nodes = stream::iter(nodes).buffer_unordered(AT_ONCE);
        let nodes: Vec<_> = nodes.try_collect().await?;
        let found = nodes.iter().flat_map(|(nodes, _)| nodes);
        let found = found.filter_map(|node| percent::decode(node));
        let found = found.filter(|name| name.starts_with(prefix));
        Ok(found.filter_map(|name| Name::new(name).ok()).collect())
    }
}

impl Session {
    /// Returns the children of a name on a server that has seen at least this change; `None` if the name was never
    /// granted.
    pub(super) async fn children_since(
        &self,
        path: &str,
        at_least: i64,
    ) -> Result<Option<(Vec<String>, Stat)>, Failure> {
        let read = || async {
            match self.children(path).await {
                Err(Failure::NoNode) => Ok(None),
                found => found.map(Some),
            }
        };
        let found = read().await?;
        if found.as_ref().map_or(0, |(_, stat)| stat.zxid) >= at_least {
            return Ok(found);
        }
        self.sync(path).await?;
        read().await
    }
}

/// Reads the time in the node of a lease, or of what else keeps a name taken.
pub(super) fn read_millis(data: &[u8]) -> Option<Duration> {
    let ms = std::str::from_utf8(data).ok()?.parse().ok()?;
    Some(Duration::from_millis(ms))
}
