//! Re-entrant leases: an owner can acquire again a lease that it holds, for code that acquires a lease and calls code
//! that acquires the same one.
//!
//! The counting is local. The store sees one claim, one holder, one token; what was acquired twice is released once,
//! when the last share is dropped.
//!
//! Several names are acquired all or none, one after the other in byte order, so callers that do this cannot deadlock.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::{Mutex, MutexGuard};

use super::Client;
use crate::error::{Error, ErrorKind};
use crate::fence::Pass;
use crate::lease::{Lease, ReleaseOutcome};
use crate::name::Name;
use crate::term::Instant;

/// A re-entrant owner: it can acquire again any lease that it already holds. Clones are one owner; two owners of one
/// client compete like two clients. "Re-entrant" is what other libraries call it, with a thread for the owner; here
/// the owner is a value that a caller passes on.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), leasehold::Error> {
/// # use leasehold::{Client, store::memory::Memory};
/// # let client = Client::builder().store(Memory::new()).build().await?;
/// let owner = client.owner();
/// let outer = owner.acquire("ledger").await?;
/// let inner = owner.acquire("ledger").await?; // at once, without asking the store
/// assert_eq!(inner.token(), outer.token());
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// - A name that the owner holds is acquired again at once, without asking the store, under the same token; so is a
///   permit by which it [shares](Self::acquire_shared) a name.
/// - The last [`Share`] that ends, by release or drop, frees the name.
#[derive(Debug, Clone)]
pub struct Owner {
    client: Client,
    names: Arc<Mutex<BTreeMap<Key, OwnedName>>>,
}

/// A name and whether it is shared: an owner may have both of one name.
type Key = (Name, bool);

/// One name of one owner: kept while it is held or a task of the owner asks for it.
#[derive(Debug, Default)]
struct OwnedName {
    /// Locked by the task that asks the store, so that two tasks of one owner send one claim.
    turn: Arc<tokio::sync::Mutex<()>>,
    lease: Weak<Lease>,
}

/// One share of a lease that its [`Owner`] may have acquired several times. It has the methods of [`Lease`]. Dropping
/// the last share releases the lease.
#[derive(Debug)]
#[must_use = "a share that is dropped is given up at once"]
pub struct Share {
    lease: Arc<Lease>,
}

impl Owner {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            names: Arc::default(),
        }
    }

    /// Acquires the lease. Returns at once if this owner holds it; otherwise waits for as long as another holder has
    /// the name.
    ///
    /// # Errors
    /// The errors of [`Client::acquire`]; and `Lost` while this owner still has a share of a lost lease of this name.
    ///
    /// # Cancel safety
    /// The same as for [`Client::acquire`].
    pub async fn acquire(&self, name: impl AsRef<str>) -> Result<Share, Error> {
        self.take((Name::new(name)?, false), Instant::FAR_FUTURE)
            .await
    }

    /// Acquires a share of the name, as [`Client::shared`] does. Returns at once if this owner has one, also while a
    /// writer waits for it: a share within a share is the same permit, and never a second one behind the writer.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let client = leasehold::Client::builder().store(leasehold::store::memory::Memory::new()).build().await?;
    /// let owner = client.owner();
    /// let outer = owner.acquire_shared("config").await?;
    /// let inner = owner.acquire_shared("config").await?;
    /// assert_eq!(inner.name(), outer.name());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire); and `Invalid` while this owner has the name itself.
    ///
    /// # Cancel safety
    /// The same as for [`Client::acquire`].
    pub async fn acquire_shared(&self, name: impl AsRef<str>) -> Result<Share, Error> {
        self.take((Name::new(name)?, true), Instant::FAR_FUTURE)
            .await
    }

    /// Acquires the lease. Returns at once if this owner holds it; otherwise waits for at most `limit`.
    ///
    /// # Errors
    /// The errors of [`Client::acquire_within`] and [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// The same as for [`Client::acquire`].
    pub async fn acquire_within(
        &self,
        name: impl AsRef<str>,
        limit: Duration,
    ) -> Result<Share, Error> {
        self.take((Name::new(name)?, false), self.after(limit))
            .await
    }

    pub(super) fn after(&self, limit: Duration) -> Instant {
        self.client.store().clock().now().after(limit)
    }

    /// The leases of this owner, by name.
    fn names(&self) -> MutexGuard<'_, BTreeMap<Key, OwnedName>> {
        let mut names = self.names.lock();
        // An owner has few names, and only here does it notice that leases have ended.
        names.retain(|_, owned| owned.is_held() || Arc::strong_count(&owned.turn) > 1);
        names
    }

    /// The names that this owner holds or shares, in byte order.
    fn held(&self) -> Vec<Key> {
        let names = self.names();
        let held = names.iter().filter(|(_, owned)| owned.is_held());
        held.map(|(key, _)| key.clone()).collect()
    }

    #[expect(
        clippy::await_holding_invalid_type,
        reason = "held only before tasks of the same owner that ask for the same name: they must not send a claim of their \
                  own, and the docs of `acquire` say that they wait"
    )]
    async fn take(&self, key: Key, ends_at: Instant) -> Result<Share, Error> {
        let clock = self.client.store().clock();
        let (name, is_shared) = &key;
        let turn = (self.names().entry(key.clone()).or_default()).turn.clone();
        let _turn = tokio::select! {
            biased;
            turn = turn.lock() => turn,
            () = clock.nap_until(ends_at) => return Err(out_of_time(name)),
        };
        let held = (self.names().get(&key)).and_then(|owned| owned.lease.upgrade());
        if let Some(lease) = held {
            // A lost lease prevents a new one until its last share is dropped.
            lease.check()?;
            return Ok(Share { lease });
        }
        let is_door_own = *is_shared && self.held().contains(&(name.clone(), false));
        if is_door_own {
            return Err(Error::invalid(format!(
                "acquire refused: this owner has the name itself, and would wait for it for ever name={name}"
            )));
        }
        let request = match is_shared {
            true => self.client.shared(name.as_str()),
            false => self.client.request(name.as_str()),
        };
        let limit = ends_at.since(clock.now());
        let lease = Arc::new(request.acquire_within(limit).await?);
        if let Some(owned) = self.names().get_mut(&key) {
            owned.lease = Arc::downgrade(&lease);
        }
        Ok(Share { lease })
    }

    /// Acquires all of these names or none, one after the other in byte order, so callers that do this cannot
    /// deadlock. A name that this owner already holds is acquired again; a name that is given twice is acquired once.
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire); `Lost` when one of the leases was lost while this call waited for the
    /// others. `Invalid`, before any request is sent, when a name that this owner does not hold sorts before one that
    /// it holds: another caller that acquires in order could wait for this owner while this owner waits for it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the leases acquired by then are given up in the background.
    pub async fn acquire_all(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<LeaseSet, Error> {
        self.take_all(in_order(names)?, Instant::FAR_FUTURE).await
    }

    /// Acquires all of these names or none, as [`acquire_all`](Self::acquire_all) does, within `limit` for all of
    /// them.
    ///
    /// # Errors
    /// The errors of [`acquire_all`](Self::acquire_all) and [`acquire_within`](Self::acquire_within).
    ///
    /// # Cancel safety
    /// The same as for [`acquire_all`](Self::acquire_all).
    pub async fn acquire_all_within(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        limit: Duration,
    ) -> Result<LeaseSet, Error> {
        let ends_at = self.after(limit);
        self.take_all(in_order(names)?, ends_at).await
    }

    async fn take_all(&self, names: Vec<Name>, ends_at: Instant) -> Result<LeaseSet, Error> {
        self.check_order(&names)?;
        let mut taken: Vec<Share> = Vec::with_capacity(names.len());
        // One future for each, and each polled only when it is woken: checking all of them for each further name
        // would cost the square of their number.
        let mut losses = FuturesUnordered::new();
        for name in names {
            let next = tokio::select! {
                biased;
                Some(error) = losses.next() => return Err(error),
                next = self.take((name, false), ends_at) => next?,
            };
            losses.push(lost(next.lease.clone()));
            taken.push(next);
        }
        drop(losses);
        Ok(LeaseSet { shares: taken })
    }

    fn check_order(&self, names: &[Name]) -> Result<(), Error> {
        let held = self.held();
        let Some((last, _)) = held.last() else {
            return Ok(());
        };
        let is_held = |name: &Name| held.iter().any(|held| held == &(name.clone(), false));
        let is_early = |name: &&Name| *name < last && !is_held(name);
        match names.iter().find(is_early) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "acquire refused: this name must be acquired before the one that is held name={name} held={last}"
            ))),
        }
    }
}

impl Share {
    /// Gives up this share. The last share releases the lease and returns the outcome; `None` means that the owner
    /// still holds the lease through another share.
    ///
    /// # Cancel safety
    /// The same as for [`Lease::release`].
    pub async fn release(self) -> Option<ReleaseOutcome> {
        Some(Arc::into_inner(self.lease)?.release().await)
    }
}

impl Deref for Share {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

/// Several leases that are held together, in byte order of their names. It is a slice of them, and dropping it
/// releases them all.
#[derive(Debug)]
#[must_use = "a set that is dropped is given up at once"]
pub struct LeaseSet {
    shares: Vec<Share>,
}

impl LeaseSet {
    /// Checks that all leases are held now, as [`Lease::check`](crate::Lease::check) does.
    ///
    /// # Errors
    /// `Lost`, with the name and the reason of the first that is lost.
    pub fn check(&self) -> Result<(), Error> {
        self.iter().try_for_each(|share| share.check())
    }

    /// Waits until one of the leases is lost. Returns the error of its [`check`](crate::Lease::check), which says
    /// which one. Waits for ever if the set is empty.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn lost(&self) -> Error {
        let losses = self.iter().map(|share| lost(share.lease.clone()));
        let mut losses: FuturesUnordered<_> = losses.collect();
        match losses.next().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Returns the passes of all leases, in byte order of their names. Fails unless all are held.
    ///
    /// # Errors
    /// The errors of [`Lease::pass`](crate::Lease::pass).
    pub fn passes(&self) -> Result<Vec<Pass>, Error> {
        self.iter().map(|share| share.pass()).collect()
    }

    /// Releases all leases at once, and waits for the store's answers. Returns the worst outcome: `Unknown` if the
    /// store did not answer for one of them, else `AlreadyLost` if one of them was lost. A lease stays held if its
    /// owner has another share of it.
    ///
    /// # Cancel safety
    /// The same as for [`Lease::release`](crate::Lease::release), for each of them.
    pub async fn release(self) -> ReleaseOutcome {
        let outcomes = join_all(self.shares.into_iter().map(Share::release)).await;
        let worst = |one, other| match (one, other) {
            (ReleaseOutcome::Unknown, _) | (_, ReleaseOutcome::Unknown) => ReleaseOutcome::Unknown,
            (ReleaseOutcome::Released, other) => other,
            (one, _) => one,
        };
        let outcomes = outcomes.into_iter().flatten();
        outcomes.fold(ReleaseOutcome::Released, worst)
    }
}

impl Deref for LeaseSet {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        &self.shares
    }
}

/// Splits the set, so that each share can be released by itself.
impl IntoIterator for LeaseSet {
    type Item = Share;
    type IntoIter = std::vec::IntoIter<Share>;

    fn into_iter(self) -> Self::IntoIter {
        self.shares.into_iter()
    }
}

impl OwnedName {
    fn is_held(&self) -> bool {
        self.lease.strong_count() > 0
    }
}

fn out_of_time(name: &Name) -> Error {
    Error::new(
        ErrorKind::TimedOut,
        format!(
            "acquire failed: the limit ran out while another task of this owner waits name={name}"
        ),
    )
}

/// The names in the order of acquisition, each once.
fn in_order(names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<Name>, Error> {
    let names = names.into_iter().map(Name::new);
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Waits until this lease is lost, and returns the error that says so.
async fn lost(lease: Arc<Lease>) -> Error {
    lease.lost().await;
    let lost = lease.check();
    lost.expect_err("a loss is written before it is told")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_by_their_bytes_and_folded() {
        let names = in_order(["b", "é", "a", "b", "B"]).expect("valid");
        let names: Vec<_> = names.iter().map(Name::as_str).collect();
        assert_eq!(names, ["B", "a", "b", "é"]);
        assert!(in_order(["a", ""]).is_err());
    }
}
