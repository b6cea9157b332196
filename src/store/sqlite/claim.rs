//! Answers a claim, within one transaction.

use super::database::Tx;
use super::failure::Failure;
use super::row::{LEASED, Row, Validity};
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
        let row = self.row(&claim.name)?.filter(|row| {
            let is_own = row.holder == claim.holder.to_string() || is_offered_to(row, claim, ask);
            row.remaining().is_some() && !is_own
        });
        row.map(|row| row.held()).transpose()
    }

    /// The answer to a claim that found no headroom, if it is not its client's turn: a client that waits goes on
    /// waiting, also without a place in the queue.
    pub(super) fn held_without_headroom(
        &self,
        claim: &Claim,
        ask: Ask,
    ) -> Result<Option<Held>, Failure> {
        if self.row(&claim.name)?.is_some() {
            return self.held_by_other(claim, ask);
        }
        let first = self.first_before(claim, ask)?;
        Ok(first.map(|_| offered(claim)))
    }

    /// Takes the name, or returns who has it.
    pub(super) fn take(&self, claim: &Claim, ask: Ask) -> Result<Claimed, Failure> {
        let Some(row) = self.row(&claim.name)? else {
            return self.take_free(claim, ask);
        };
        if row.holder == claim.holder.to_string() && row.state == HeldState::Leased {
            self.write_term(&claim.name, claim.ttl, LEASED)?;
            let again = Grant::new(row.token()?);
            return Ok(Claimed::Answered(Answer::Granted(again)));
        }
        if is_offered_to(&row, claim, ask) {
            return self.grant(claim, ask);
        }
        let mut held = row.held()?;
        if let Validity::Unwatched | Validity::Shared = row.validity {
            self.watch(&claim.name)?;
            held.remaining = Some(row.ttl);
        }
        if row.validity == Validity::Shared {
            return Ok(Claimed::Shared(row.boot));
        }
        self.refuse(claim, ask, held)
    }

    /// Takes a name that no holder has, unless another client is first in the queue: then the name is offered to that
    /// one.
    fn take_free(&self, claim: &Claim, ask: Ask) -> Result<Claimed, Failure> {
        let Some(first) = self.first_before(claim, ask)? else {
            return self.grant(claim, ask);
        };
        let queue = self.queue(&claim.name);
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

    fn grant(&self, claim: &Claim, ask: Ask) -> Result<Claimed, Failure> {
        if !self.has_headroom()? {
            return Ok(Claimed::NoHeadroom);
        }
        let Some(token) = self.next_token(ask.floor)? else {
            return Ok(Claimed::Unsynced);
        };
        // It replaces an offer, too: one that outlived its acceptance would be accepted twice.
        self.put(claim, token)?;
        // The client's place is used up. If more of its callers wait, it joins the end again.
        if let (Some(client), Some(queued)) = (queued_client(claim, ask), ask.queued) {
            let queue = self.queue(&claim.name);
            queue.leave(&client)?;
            if queued.more > 0 {
                queue.join(&client)?;
            }
        }
        self.sweep()?;
        Ok(Claimed::Answered(Answer::Granted(Grant::new(token))))
    }

    /// The first client of the queue, unless it is the one that claims.
    fn first_before(&self, claim: &Claim, ask: Ask) -> Result<Option<String>, Failure> {
        let first = self.queue(&claim.name).first_live()?;
        Ok(first.filter(|first| queued_client(claim, ask).as_ref() != Some(first)))
    }
}

/// Returns whether the name is kept for the client of this claim.
fn is_offered_to(row: &Row, claim: &Claim, ask: Ask) -> bool {
    queued_client(claim, ask).is_some_and(|client| row.is_offered_to(&client))
}

/// A name that was free, and is kept for the first client of the queue.
fn offered(claim: &Claim) -> Held {
    Held {
        remaining: Some(Queued::OFFER),
        state: HeldState::Offered,
        ..Held::new(claim.name.clone())
    }
}

/// The client, as the file keeps it, of a claim that waits in turn.
fn queued_client(claim: &Claim, ask: Ask) -> Option<String> {
    ask.queued.map(|_| claim.holder.client().to_string())
}
