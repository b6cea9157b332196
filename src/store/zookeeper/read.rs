//! Reads the nodes of names: the holder of one name, or the holders of all names with a prefix.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::OptionFuture;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::connection::session::{SessionCall, Watches};
use super::failure::Failure;
use super::protocol::reading::{LastGrant, NameReading, Taken};
use super::protocol::stamp::Stamp;
use super::protocol::tree::{Children, Kind};
use super::protocol::wire::Stat;
use crate::clock::{Boottime, Clock};
use crate::holder::Holder;
use crate::name::Name;
use crate::percent;
use crate::store::Held;
use crate::telemetry;
use crate::token::Token;

/// Number of names of a list that are read together.
const AT_ONCE: usize = 64;

impl SessionCall<'_> {
    /// Reads a name, on a server that has seen all that other sessions of this client have seen of it. Asks the leader
    /// for its time if that has to be known to say how much is left of a lease or an offer.
    pub(super) async fn read(&self, name: &Name) -> Result<NameReading, Failure> {
        loop {
            let has_stamp = self.has_stamp.load(Ordering::Relaxed);
            let mut reading = match self.read_once(name).await {
                // The name was freed or granted between the two requests.
                Err(Failure::NoNode) if !self.budget.left().is_zero() => continue,
                reading => reading?,
            };
            let Some((began, span)) = reading.term() else {
                return Ok(reading);
            };
            // The leader's clock may have been set back since a stamp of an earlier call.
            let is_sure = |left: &Duration| has_stamp || !left.is_zero();
            if let Some(left) = self.left(began, span).filter(is_sure) {
                reading.left = left;
                return Ok(reading);
            }
            self.freshen().await?;
        }
    }

    /// Returns what is at most left of a term, by the leader's clock: zero if it has ended, `None` if that is not
    /// known.
    pub(super) fn left(&self, began: Stamp, span: Duration) -> Option<Duration> {
        let mut remembered = self.shared.remembered.lock();
        remembered.clock.left(began, span, Boottime.now())
    }

    /// Reads what the nodes of a name say.
    async fn read_once(&self, name: &Name) -> Result<NameReading, Failure> {
        let path = self.shared.tree.name(name);
        let Some((children, stat)) = self.children_of(name, None).await? else {
            return Ok(NameReading::untaken(path, None, Children::default()));
        };
        let child = |node: &String| format!("{path}/{node}");
        if let Some(rivals) = &children.rivals {
            let [first, second] = rivals.each_ref().map(child);
            telemetry::two_holders(name.as_str(), &first, &second);
            return Err(Failure::TwoHolders(first, second));
        }
        if let Some(node) = &children.unknown {
            return Err(Failure::UnknownForm(child(node)));
        }
        let taken = children.taken;
        let taken = taken.map(|(kind, holder)| self.read_taken(&path, kind, holder));
        // No client asks who had a name that no client holds or waits for.
        let is_idle = taken.is_none() && children.queue.is_empty();
        let last = children.token.filter(|_| !is_idle);
        let last = last.map(|token| self.read_token(name, token));
        let (taken, last) = tokio::join!(OptionFuture::from(taken), OptionFuture::from(last));
        let mut reading = NameReading::untaken(path, Some(stat), children);
        reading.taken = taken.transpose()?;
        reading.last = last.transpose()?.or(reading.last);
        Ok(reading)
    }

    async fn read_taken(&self, path: &str, kind: Kind, holder: Holder) -> Result<Taken, Failure> {
        let path = format!("{path}/{}", kind.node(holder));
        let (data, stat) = self.data(&path).await?;
        let span = read_millis(&data).ok_or(Failure::UnknownForm(path))?;
        Ok(Taken {
            kind,
            holder,
            span,
            stat,
        })
    }

    pub(super) async fn read_token(&self, name: &Name, token: Token) -> Result<LastGrant, Failure> {
        let (data, stat) = self.data(&self.shared.tree.token(name, token)).await?;
        Ok(LastGrant::read(token, &data, stat))
    }

    /// Like `read`, on a server that has seen every change that was answered to any client before.
    pub(super) async fn read_freshly(&self, name: &Name) -> Result<NameReading, Failure> {
        self.sync(self.shared.tree.root()).await?;
        self.read(name).await
    }

    /// Writes something, to get a stamp of the current leader.
    pub(super) async fn freshen(&self) -> Result<Stat, Failure> {
        let root = self.shared.tree.root();
        let stat = match self.set(root, Vec::new()).await {
            Err(Failure::NoNode) => {
                self.make_root().await?;
                self.set(root, Vec::new()).await
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
                self.shared.address.chroot
            ))),
            made => made,
        }
    }

    /// Returns who has the names with this prefix. Names that are not in order are among them, without a holder.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Held>, Failure> {
        let readings = self.names(prefix).await?.into_iter();
        let readings = readings.map(|name| async move {
            match self.read(&name).await {
                Err(failure) if failure.is_of_one_name() => {
                    tracing::warn!(name = name.as_str(), %failure, "a name is not in order");
                    Ok(Some(Held::new(name)))
                }
                reading => Ok(reading?.shown(&name)),
            }
        });
        let readings = stream::iter(readings).buffer_unordered(AT_ONCE);
        let found: Result<Vec<Option<Held>>, Failure> = readings.try_collect().await;
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

    /// Returns the children of a name on a server that has seen all that other sessions of this client have seen of it;
    /// `None` if the name has no node. Watches them if there is room for the watch.
    pub(super) async fn children_of(
        &self,
        name: &Name,
        mut watches: Option<&mut Watches>,
    ) -> Result<Option<(Children, Stat)>, Failure> {
        let path = self.shared.tree.name(name);
        let at_least = self.shared.remembered.lock().seen(name);
        let mut is_synced = false;
        loop {
            let found = match self.children(&path, watches.as_deref_mut()).await {
                Err(Failure::NoNode) => None,
                found => Some(found?),
            };
            let zxid = found.as_ref().map_or(0, |(_, stat)| stat.zxid);
            if is_synced || zxid >= at_least {
                self.shared.remembered.lock().saw(name, zxid, at_least);
                return Ok(found.map(|(nodes, stat)| (Children::read(&nodes), stat)));
            }
            self.sync(&path).await?;
            is_synced = true;
        }
    }
}

/// Reads the time in the node of a lease, or of what else keeps a name taken.
pub(super) fn read_millis(data: &[u8]) -> Option<Duration> {
    let ms = std::str::from_utf8(data).ok()?.parse().ok()?;
    Some(Duration::from_millis(ms))
}
