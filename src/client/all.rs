//! Acquires several names, all or none, and holds them together.
//!
//! They are acquired one after the other in byte order, so callers that do this cannot deadlock.

use std::ops::Deref;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use super::owner::{Owner, Share};
use crate::error::Error;
use crate::fence::Pass;
use crate::lease::ReleaseOutcome;
use crate::name::Name;
use crate::term::Instant;

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
        any_lost(self).await
    }

    /// Returns the passes of all leases, in byte order of their names. Fails unless all are held.
    ///
    /// # Errors
    /// The errors of [`Lease::pass`](crate::Lease::pass).
    pub fn passes(&self) -> Result<Vec<Pass>, Error> {
        self.iter().map(|share| share.pass()).collect()
    }

    /// Releases all leases at once, and waits for the store's answers. Returns the worst outcome: `Unknown` if the
    /// store did not answer for one of them, else `AlreadyLost` if one of them was lost. A lease of which its owner
    /// has another share stays held.
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

impl Owner {
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
        let mut taken = Vec::with_capacity(names.len());
        for name in names {
            let next = tokio::select! {
                biased;
                error = any_lost(&taken) => return Err(error),
                next = self.take(name, ends_at) => next?,
            };
            taken.push(next);
        }
        Ok(LeaseSet { shares: taken })
    }

    fn check_order(&self, names: &[Name]) -> Result<(), Error> {
        let held = self.held();
        let Some(last) = held.last() else {
            return Ok(());
        };
        let is_early = |name: &&Name| *name < last && !held.contains(name);
        match names.iter().find(is_early) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "acquire refused: this name must be acquired before the one that is held name={name} held={last}"
            ))),
        }
    }
}

/// The names in the order in which they are taken, each once.
fn in_order(names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<Name>, Error> {
    let names = names.into_iter().map(Name::new);
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Waits until one of them is lost.
async fn any_lost(taken: &[Share]) -> Error {
    if taken.is_empty() {
        return std::future::pending().await;
    }
    let (_, lost, _) = select_all(taken.iter().map(|share| Box::pin(share.lost()))).await;
    let lost = taken[lost].check();
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
