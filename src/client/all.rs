//! Several names, all or none.
//!
//! They are taken one after the other in byte order, so no two who do so wait for each other.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use super::owner::{Owner, Share};
use crate::error::Error;
use crate::name::Name;
use crate::term::Instant;

impl Owner {
    /// Takes all of these names or none, in byte order, whoever else takes some of them: so no two who do this wait for
    /// each other. What this owner holds already is acquired again; a name that is given twice is taken once. The holds
    /// come in byte order.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); `Lost` where one was lost while the others were waited for. `Invalid`, before
    /// anything is asked, where a name that is not held yet comes before one that this owner holds: somebody who takes
    /// them in order could wait for us while we wait for it.
    ///
    /// # Cancel safety
    /// Dropped, what was taken is given up in the background.
    pub async fn acquire_all(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<Share>, Error> {
        self.take_all(in_order(names)?, None).await
    }

    /// Takes all of these names or none, as [`acquire_all`](Self::acquire_all), waiting no longer than `limit` in all.
    ///
    /// # Errors
    /// As [`acquire_all`](Self::acquire_all) and [`acquire_within`](Self::acquire_within).
    ///
    /// # Cancel safety
    /// As [`acquire_all`](Self::acquire_all).
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
                "acquire refused: this name is to be taken before the one that is held name={name} held={last}"
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
    let mut losses: Vec<_> = taken.iter().map(|hold| Box::pin(hold.lost())).collect();
    poll_fn(|context| {
        let mut losses = losses.iter_mut();
        if losses.any(|loss| loss.as_mut().poll(context).is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    let lost = taken.iter().find_map(|hold| hold.check().err());
    lost.expect("a loss is written before it is told")
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
