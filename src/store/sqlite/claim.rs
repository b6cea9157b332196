//! Answers a claim, within one transaction.

use std::time::Duration;

use super::database::Tx;
use super::failure::Failure;
use super::mint;
use super::queue::{Queue, stored_client};
use super::row::{Fresh, Row, RowState, Validity};
use crate::clock;
use crate::store::{Answer, Ask, Claim, Grant, Held, HeldState, Queued};

/// The outcome of a claim. What fails without undoing the transaction is an outcome, too.
pub(super) enum Claimed {
    Answered(Answer),
    /// The file has to grow first.
    NoHeadroom,
    /// Its token needs a commit that is synced.
    Unsynced,
    /// Two kernels share the file; the watch of this row was begun anew.
    Shared(String),
}

impl Tx<'_> {
    /// Returns who has the name if it certainly is another holder of this boot. Every other answer needs a transaction
    /// that writes.
    pub(super) fn held_by_other(&self, claim: &Claim, ask: Ask) -> Result<Option<Held>, Failure> {
        let Some(row) = self.row(&claim.name)? else {
            return Ok(None);
        };
        match self.judge(&row) {
            Validity::Taken(remaining) if !is_for(&row, claim, ask) => {
                Ok(Some(row.held(claim.name.clone(), Some(remaining))))
            }
            _ => Ok(None),
        }
    }

    /// The answer to a claim that found no headroom, if it is not its client's turn: a client that waits goes on
    /// waiting, also without a place in the queue.
    pub(super) fn held_without_headroom(
        &self,
        claim: &Claim,
        ask: Ask,
    ) -> Result<Option<Held>, Failure> {
        if self.counting_row(&claim.name)?.is_some() {
            return self.held_by_other(claim, ask);
        }
        let first = first_before(&self.queue(&claim.name), claim, ask)?;
        Ok(first.map(|_| offered(claim)))
    }

    /// Takes the name, or returns who has it. `info` is the claim's, as the file keeps it.
    pub(super) fn take(&self, claim: &Claim, ask: Ask, info: &str) -> Result<Claimed, Failure> {
        let Some(row) = self.row(&claim.name)? else {
            return self.take_free(claim, ask, info);
        };
        let validity = self.judge(&row);
        if validity == Validity::Void {
            return self.take_free(claim, ask, info);
        }
        if row.holder == claim.holder.to_string() && row.standing == RowState::Live {
            self.write_term(&claim.name, claim.ttl, RowState::Live)?;
            let again = Grant::new(row.token()?);
            return Ok(Claimed::Answered(Answer::Granted(again)));
        }
        if queued_client(claim, ask).is_some_and(|client| row.is_offered_to(&client)) {
            return self.grant(claim, ask, info);
        }
        let remaining = match validity {
            Validity::Void => Duration::ZERO,
            Validity::Taken(remaining) => remaining,
            Validity::Unwatched | Validity::Shared => {
                self.watch(&claim.name)?;
                row.ttl()
            }
        };
        if validity == Validity::Shared {
            return Ok(Claimed::Shared(row.boot));
        }
        self.refuse(claim, ask, row.held(claim.name.clone(), Some(remaining)))
    }

    /// Takes a name that no holder has, unless another client is first in the queue: then the name is offered to that
    /// one.
    fn take_free(&self, claim: &Claim, ask: Ask, info: &str) -> Result<Claimed, Failure> {
        let queue = self.queue(&claim.name);
        let Some(first) = first_before(&queue, claim, ask)? else {
            return self.grant(claim, ask, info);
        };
        if self.has_headroom()? {
            queue.offer(&first)?;
            return self.refuse(claim, ask, offered(claim));
        }
        if let Some(client) = queued_client(claim, ask) {
            queue.stay(&client)?;
        }
        Ok(Claimed::NoHeadroom)
    }

    /// Refuses the claim, and gives its client a place in the queue if it wants one. A client that has one needs no
    /// headroom to keep it.
    fn refuse(&self, claim: &Claim, ask: Ask, mut held: Held) -> Result<Claimed, Failure> {
        if let Some(client) = queued_client(claim, ask) {
            let queue = self.queue(&claim.name);
            held.ahead = queue.stay(&client)?;
            if held.ahead.is_none() {
                if !self.has_headroom()? {
                    return Ok(Claimed::NoHeadroom);
                }
                held.ahead = Some(queue.join(&client)?);
            }
        }
        Ok(Claimed::Answered(Answer::Held(Box::new(held))))
    }

    fn grant(&self, claim: &Claim, ask: Ask, info: &str) -> Result<Claimed, Failure> {
        if !self.has_headroom()? {
            return Ok(Claimed::NoHeadroom);
        }
        let Some(token) = self.next_token(ask.floor)? else {
            return Ok(Claimed::Unsynced);
        };
        // It replaces an offer, too: one that outlived its acceptance would be accepted twice.
        self.put(&Fresh {
            name: &claim.name,
            holder: &claim.holder.to_string(),
            token: mint::as_stored(token),
            info,
            since_us: i64::try_from(clock::wall_clock_us()).unwrap_or_default(),
            standing: RowState::Live,
            ttl: claim.ttl,
        })?;
        leave_and_rejoin(&self.queue(&claim.name), claim, ask)?;
        self.sweep()?;
        Ok(Claimed::Answered(Answer::Granted(Grant::new(token))))
    }
}

/// Returns whether it is the claim's own lease, or kept for its client.
fn is_for(row: &Row, claim: &Claim, ask: Ask) -> bool {
    row.holder == claim.holder.to_string()
        || queued_client(claim, ask).is_some_and(|client| row.is_offered_to(&client))
}

/// The first client of the queue, unless it is the one that claims.
fn first_before(queue: &Queue<'_>, claim: &Claim, ask: Ask) -> Result<Option<String>, Failure> {
    let first = queue.first_live()?;
    Ok(first.filter(|first| queued_client(claim, ask).as_ref() != Some(first)))
}

/// A name that was free, and is kept for the first client of the queue.
fn offered(claim: &Claim) -> Held {
    let mut held = Held::new(claim.name.clone());
    held.remaining = Some(Queued::OFFER);
    held.state = HeldState::Offered;
    held
}

/// A claim was granted: its client's place in the queue is used up, and it joins again if it has more waiters.
fn leave_and_rejoin(queue: &Queue<'_>, claim: &Claim, ask: Ask) -> Result<(), Failure> {
    let Some(queued) = ask.queued else {
        return Ok(());
    };
    let client = stored_client(claim.holder.client());
    queue.leave(&client)?;
    if queued.more > 0 {
        queue.join(&client)?;
    }
    Ok(())
}

/// The client, as the file keeps it, of a claim that waits in turn.
fn queued_client(claim: &Claim, ask: Ask) -> Option<String> {
    ask.queued.map(|_| stored_client(claim.holder.client()))
}
