//! Looks at names: reads their nodes, and finds the holder of one name or the holders of all names with a prefix.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::oneshot;

use super::connection::NodeWatch;
use super::connection::session::{Session, Stat};
use super::connection::sessions::SessionCall;
use super::failure::Failure;
use super::protocol::reading::{LastGrant, NameReading, Taken};
use super::protocol::stamp::Left;
use super::protocol::tree::Children;
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::percent;
use crate::store::Held;
use crate::telemetry;
use crate::token::Token;

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
        let has_stamp = self.has_stamp.load(Ordering::Relaxed);
        loop {
            let (found, _) = self.children_since(&path, at_least, false).await?;
            let Some((nodes, stat)) = found else {
                return Ok(None);
            };
            self.shared.remembered().saw(name, stat.zxid);
            match self.read(path.clone(), name, &nodes, stat).await {
                // The name was freed or granted between the two requests.
                Err(Failure::NoNode) if !self.budget.left().is_zero() => {}
                Err(failure) => return Err(failure),
                Ok(mut reading) => {
                    if let Some((began, span)) = reading.term() {
                        let mut remembered = self.shared.remembered();
                        let left = remembered.left(name, began, span, Boottime.now());
                        // Its clock may have been set back since the last stamp.
                        let is_unsure = left == Left::Over && !has_stamp;
                        reading.left = if is_unsure { Left::Unknown } else { left };
                    }
                    return Ok(Some(reading));
                }
            }
        }
    }

    /// Reads what the children of a name say.
    async fn read(
        &self,
        path: String,
        name: &Name,
        nodes: &[String],
        stat: Stat,
    ) -> Result<NameReading, Failure> {
        let children = Children::read(nodes);
        let child = |node: &String| format!("{path}/{node}");
        if let Some(rivals) = &children.rivals {
            let [first, second] = rivals.each_ref().map(child);
            telemetry::two_holders(name.as_str(), &first, &second);
            return Err(Failure::TwoHolders(first, second));
        }
        if let Some(node) = &children.unknown {
            return Err(Failure::UnknownForm(child(node)));
        }
        let (taken, last) = tokio::try_join!(
            self.read_taken(&path, &children),
            self.read_last(name, &children)
        )?;
        let mut reading = NameReading::untaken(path, stat, children);
        reading.taken = taken;
        reading.last = last.or(reading.last);
        Ok(reading)
    }

    async fn read_taken(&self, path: &str, children: &Children) -> Result<Option<Taken>, Failure> {
        let Some((kind, holder)) = children.taken else {
            return Ok(None);
        };
        let path = format!("{path}/{}", kind.node(holder));
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

    /// Reads the node of the last token, unless no client holds the name or waits for it.
    async fn read_last(
        &self,
        name: &Name,
        children: &Children,
    ) -> Result<Option<LastGrant>, Failure> {
        let is_idle = children.taken.is_none() && children.queue.is_empty();
        match children.token.filter(|_| !is_idle) {
            Some(token) => self.read_token(name, token).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) async fn read_token(&self, name: &Name, token: Token) -> Result<LastGrant, Failure> {
        let (data, stat) = self.data(&self.shared.tree.token(name, token)).await?;
        Ok(LastGrant::read(token, &data, stat))
    }

    /// The same as `look`, on a server that has seen every change that was answered to any client before.
    pub(super) async fn look_freshly(&self, name: &Name) -> Result<Option<NameReading>, Failure> {
        self.sync(self.shared.tree.root()).await?;
        self.look_surely(name).await
    }

    /// The same as `look`. If the leader's time has to be known for it, asks for that and looks again.
    async fn look_surely(&self, name: &Name) -> Result<Option<NameReading>, Failure> {
        let reading = self.look(name, 0).await?;
        if reading.as_ref().is_none_or(|it| it.left != Left::Unknown) {
            return Ok(reading);
        }
        self.freshen().await?;
        self.look(name, 0).await
    }

    /// Writes something, to get a stamp of the current leader.
    pub(super) async fn freshen(&self) -> Result<Stat, Failure> {
        let root = self.shared.tree.root();
        let stat = match self.set(root, b"").await {
            Err(Failure::NoNode) => {
                self.make_root().await?;
                self.set(root, b"").await
            }
            stat => stat,
        };
        self.has_stamp.store(stat.is_ok(), Ordering::Relaxed);
        stat
    }

    pub(super) async fn make_root(&self) -> Result<(), Failure> {
        match self.ensure(self.shared.tree.root()).await {
            Err(Failure::NoNode) => Err(Failure::Unable(format!(
                "the chroot is not there chroot={}",
                self.shared.address.chroot()
            ))),
            made => made,
        }
    }

    /// Returns who has the names with this prefix. Names that are not in order are among them, without a holder.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Held>, Failure> {
        let looks = self.names(prefix).await?.into_iter();
        let looks = looks.map(|name| async move {
            match self.look_surely(&name).await {
                Err(failure) if failure.is_of_one_name() => {
                    tracing::warn!(name = name.as_str(), %failure, "a name is not in order");
                    Ok(Some(Held::new(name)))
                }
                reading => Ok(reading?.and_then(|reading| reading.shown(&name))),
            }
        });
        let looks = stream::iter(looks).buffer_unordered(AT_ONCE);
        let found: Result<Vec<Option<Held>>, Failure> = looks.try_collect().await;
        let mut list: Vec<_> = found?.into_iter().flatten().collect();
        list.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(list)
    }

    /// Returns all names with this prefix that have a node, in any order.
    async fn names(&self, prefix: &str) -> Result<Vec<Name>, Failure> {
        let root = self.shared.tree.root();
        self.sync(root).await?;
        let folders = match self.children(root, None).await {
            // No name was ever granted.
            Err(Failure::NoNode) => return Ok(Vec::new()),
            folders => folders?.0,
        };
        let nodes = folders.into_iter().map(|folder| async move {
            let folder = format!("{root}/{folder}");
            self.children(&folder, None).await
        });
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
    /// granted. Watches them if it is told to.
    pub(super) async fn children_since(
        &self,
        path: &str,
        at_least: i64,
        watches: bool,
    ) -> Result<(Option<(Vec<String>, Stat)>, Option<oneshot::Receiver<()>>), Failure> {
        let mut is_synced = false;
        loop {
            let (watch, changed) = watches.then(|| NodeWatch::of(path)).unzip();
            let found = match self.children(path, watch).await {
                Err(Failure::NoNode) => None,
                found => Some(found?),
            };
            if is_synced || found.as_ref().map_or(0, |(_, stat)| stat.zxid) >= at_least {
                return Ok((found, changed));
            }
            self.sync(path).await?;
            is_synced = true;
        }
    }
}

/// Reads the time in the node of a lease, or of what else keeps a name taken.
pub(super) fn read_millis(data: &[u8]) -> Option<Duration> {
    let ms = std::str::from_utf8(data).ok()?.parse().ok()?;
    Some(Duration::from_millis(ms))
}
