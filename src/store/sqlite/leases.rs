//! The operations of the store, each one transaction on the file.

use std::time::Duration;

use super::database::Database;
use super::failure::Failure;
use super::headroom;
use super::row::{KEPT, LEASED, Row, Validity};
use super::transaction::{Caller, Tx};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{
    Answer, Ask, Claim, Eviction, Grant, Held, HeldState, Outcome, Release, Renewal,
};

impl Database {
    pub(super) fn acquire(
        &mut self,
        claim: &Claim,
        ask: Ask,
        caller: Caller<'_>,
    ) -> Result<Answer, Failure> {
        // Clients that wait in any order only read, so they do not delay the holder's renewals. A client in the queue
        // writes every few seconds that it is alive.
        if ask.queued.is_none()
            && let Some(held) = self.read(caller, |tx| tx.held_by_other(claim, ask))?
        {
            return Ok(Answer::Held(Box::new(held)));
        }
        let failure = match self.take(claim, ask, caller) {
            Err(failure) if failure.is_full() => failure,
            answer => return answer,
        };
        let held = self.read(caller, |tx| tx.held_without_headroom(claim, ask))?;
        held.map_or(Err(failure), |held| Ok(Answer::Held(Box::new(held))))
    }

    fn take(&mut self, claim: &Claim, ask: Ask, caller: Caller<'_>) -> Result<Answer, Failure> {
        let take = |tx: &Tx<'_>| tx.take(claim, ask);
        let mut has_to_last = false;
        while caller.waits() {
            let claimed = if has_to_last {
                self.write_synced(caller, take)?
            } else {
                self.write_though_full(caller, take)?
            };
            match claimed {
                Claimed::Answered(answer) => return Ok(answer),
                Claimed::Unsynced => has_to_last = true,
                Claimed::NoHeadroom => headroom::make(self, caller)?,
                Claimed::Shared(writer) => {
                    let ours = self.boot().id().into();
                    return Err(Failure::Shared { writer, ours });
                }
            }
        }
        Err(Failure::Late)
    }
}

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

/// Answers a claim.
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
        if self.has_headroom()? {
            self.offer(&claim.name, &first)?;
            self.wake(&claim.name);
            return self.refuse(claim, ask, offered(claim));
        }
        if let Some(client) = queued_client(claim, ask) {
            self.stay_queued(&claim.name, &client)?;
        }
        Ok(Claimed::NoHeadroom)
    }

    /// Refuses the claim, and gives its client a place in the queue if it wants one. A client that has one needs no
    /// headroom to keep it.
    fn refuse(&self, claim: &Claim, ask: Ask, mut held: Held) -> Result<Claimed, Failure> {
        if let Some(client) = queued_client(claim, ask) {
            held.place = self
                .stay_queued(&claim.name, &client)?
                .map(|ahead| crate::store::Place::new(0, ahead));
            if held.place.is_none() {
                if !self.has_headroom()? {
                    return Ok(Claimed::NoHeadroom);
                }
                held.place = Some(crate::store::Place::new(
                    0,
                    self.join_queue(&claim.name, &client)?,
                ));
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
        let holder = claim.holder.to_string();
        self.put(&claim.name, &holder, claim.ttl, Some((token, &claim.info)))?;
        // The client's place is used up. If more of its callers wait, it joins the end again.
        if let (Some(client), Some(queued)) = (queued_client(claim, ask), ask.queued) {
            self.leave_queue(&claim.name, &client)?;
            let _ = queued;
        }
        self.sweep()?;
        Ok(Claimed::Answered(Answer::Granted(Grant::new(token))))
    }

    /// The first client of the queue, unless it is the one that claims.
    fn first_before(&self, claim: &Claim, ask: Ask) -> Result<Option<String>, Failure> {
        let first = self.first_queued(&claim.name)?;
        Ok(first.filter(|first| queued_client(claim, ask).as_ref() != Some(first)))
    }
}

impl Tx<'_> {
    pub(super) fn extend(&self, renewal: &Renewal) -> Result<Outcome, Failure> {
        let row = self.row(&renewal.name)?;
        let row = row.filter(|row| row.is_granted_to(renewal.holder, renewal.token));
        match row.map(|row| row.state) {
            Some(HeldState::Leased) => {
                self.write_term(&renewal.name, renewal.ttl, LEASED)?;
                Ok(Outcome::Renewed)
            }
            Some(HeldState::Evicted) => Ok(Outcome::Evicted),
            _ => Ok(Outcome::Refused),
        }
    }

    pub(super) fn release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
    ) -> Result<Release, Failure> {
        let row = self.row(name)?;
        let row = row.filter(|row| row.holder == holder.to_string());
        match (row.map(|row| row.state), keep_for) {
            (Some(HeldState::Leased), Some(rest)) => {
                self.write_term(name, rest, KEPT)?;
                self.wake(name);
            }
            (Some(HeldState::Leased | HeldState::Evicted), _) => self.pass_on(name)?,
            _ => return Ok(Release::NotHeld),
        }
        Ok(Release::Released)
    }

    pub(super) fn inspect(&self, name: &Name) -> Result<Option<Held>, Failure> {
        let row = self.row(name)?;
        row.map(|row| self.shown(&row)).transpose()
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Held>, Failure> {
        let rows = self.rows_with_prefix(prefix)?;
        rows.iter().map(|row| self.shown(row)).collect()
    }

    pub(super) fn evict(&self, name: &Name, how: Eviction) -> Result<bool, Failure> {
        let Some(row) = self.row(name)? else {
            return Ok(false);
        };
        match (how, row.state) {
            (Eviction::Now, _) => self.pass_on(name)?,
            (Eviction::Marked, HeldState::Kept) => return Ok(false),
            (Eviction::Marked, _) => self.mark_evicted(name)?,
        }
        Ok(true)
    }

    /// Frees the name, or keeps it for the first client of the queue if there is one.
    fn pass_on(&self, name: &Name) -> Result<(), Failure> {
        self.wake(name);
        match self.first_queued(name)? {
            Some(first) => self.offer(name, &first),
            None => self.delete(name),
        }
    }

    /// Returns what `status` shows of a row. A mere look begins no watch; without one no end is known.
    fn shown(&self, row: &Row) -> Result<Held, Failure> {
        let held = row.held()?;
        Ok(Held {
            waiting: Some(self.queued(&held.name)?),
            ..held
        })
    }
}

/// Returns whether the name is kept for the client of this claim.
fn is_offered_to(row: &Row, claim: &Claim, ask: Ask) -> bool {
    queued_client(claim, ask).is_some_and(|client| row.is_offered_to(&client))
}

/// A name that was free, and is kept for the first client of the queue.
fn offered(claim: &Claim) -> Held {
    Held {
        remaining: Some(super::queue::OFFER),
        state: HeldState::Kept,
        ..Held::new(claim.name.clone())
    }
}

/// The client, as the file keeps it, of a claim that waits in turn.
fn queued_client(claim: &Claim, ask: Ask) -> Option<String> {
    ask.queued.map(|_| claim.holder.client().to_string())
}
