//! Re-entrant leases: an owner can acquire again a lease that it holds, for code that acquires a lease and calls code
//! that acquires the same one.
//!
//! The counting is local. The store sees one claim, one holder, one token; what was acquired twice is released once,
//! when the last share is dropped.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::Client;
use crate::error::{Error, ErrorKind};
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
/// - A name that the owner holds is acquired again at once, without asking the store, under the same token.
/// - The last [`Share`] that ends, by release or drop, frees the name.
#[derive(Debug, Clone)]
pub struct Owner {
    client: Client,
    names: Arc<Mutex<BTreeMap<Name, OwnedName>>>,
}

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
        self.take(Name::new(name)?, Instant::FAR_FUTURE).await
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
        self.take(Name::new(name)?, self.after(limit)).await
    }

    pub(super) fn after(&self, limit: Duration) -> Instant {
        self.client.store().clock().now().after(limit)
    }

    /// The leases of this owner, by name.
    fn names(&self) -> MutexGuard<'_, BTreeMap<Name, OwnedName>> {
        let mut names = self.names.lock();
        // An owner has few names, and this is the only place where it notices that leases have ended.
        names.retain(|_, owned| owned.is_held() || Arc::strong_count(&owned.turn) > 1);
        names
    }

    /// The names that this owner holds, in byte order.
    pub(super) fn held(&self) -> Vec<Name> {
        let names = self.names();
        let held = names.iter().filter(|(_, owned)| owned.is_held());
        held.map(|(name, _)| name.clone()).collect()
    }

    #[expect(
        clippy::await_holding_invalid_type,
        reason = "held only before tasks of the same owner that ask for the same name: they must not send a claim of their \
                  own, and the docs of `acquire` say that they wait"
    )]
    pub(super) async fn take(&self, name: Name, ends_at: Instant) -> Result<Share, Error> {
        let clock = self.client.store().clock();
        let turn = (self.names().entry(name.clone()).or_default()).turn.clone();
        let _turn = tokio::select! {
            biased;
            turn = turn.lock() => turn,
            () = clock.nap_until(ends_at) => return Err(out_of_time(&name)),
        };
        let held = (self.names().get(&name)).and_then(|owned| owned.lease.upgrade());
        if let Some(lease) = held {
            // A lost lease blocks a new one until its last share is dropped.
            lease.check()?;
            return Ok(Share { lease });
        }
        let request = self.client.request(name.as_str());
        let limit = ends_at.since(clock.now());
        let lease = Arc::new(request.acquire_within(limit).await?);
        if let Some(owned) = self.names().get_mut(&name) {
            owned.lease = Arc::downgrade(&lease);
        }
        Ok(Share { lease })
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
