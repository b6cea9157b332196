//! Acquires several names, all or none.
//!
//! They are acquired one after the other in byte order, so callers that do this cannot deadlock.

use std::time::Duration;

use futures_util::future::select_all;

use super::owner::{Owner, Share};
use crate::error::Error;
use crate::name::Name;
use crate::term::Instant;

impl Owner {
    /// Acquires all of these names or none, one after the other in byte order, so callers that do this cannot deadlock.
    /// A name that this owner already holds is acquired again; a name that is given twice is acquired once. Returns the
    /// shares in byte order.
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire); `Lost` when one of the leases was lost while this call waited for the
    /// others. `Invalid`, before any request is sent, when a name that this owner does not hold sorts before one that
    /// it holds: another caller that acquires in order could wait for this owner while this owner waits for it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the leases acquired so far are given up in the background.
    pub async fn acquire_all(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<Share>, Error> {
        self.take_all(in_order(names)?, None).await
    }

    /// Acquires all of these names or none, as [`acquire_all`](Self::acquire_all) does, within `limit` for all of them.
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
    ) -> Result<Vec<Share>, Error> {
        let ends_at = self.after(limit);
        self.take_all(in_order(names)?, Some(ends_at)).await
    }

    async fn take_all(
        &self,
        names: Vec<Name>,
        ends_at: Option<Instant>,
    ) -> Result<Vec<Share>, Error> {
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
        Ok(taken)
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
