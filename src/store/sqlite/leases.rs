//! The operations of the store, each one transaction on the file.

use std::time::Duration;

use super::claim::Claimed;
use super::database::{Database, Tx};
use super::failure::Failure;
use super::headroom;
use super::row::{KEPT, LEASED, Row};
use super::thread::Caller;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Answer, Ask, Claim, Eviction, Held, HeldState, Outcome, Release, Renewal};

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
            (Some(HeldState::Leased), Some(rest)) => self.write_term(name, rest, KEPT)?,
            (Some(HeldState::Leased | HeldState::Evicted), _) => self.pass_on(name)?,
            _ => return Ok(Release::NotHeld),
        }
        Ok(Release::Released)
    }

    /// Removes a client from the queue, and passes on what was kept for it.
    pub(super) fn leave(&self, name: &Name, client: ClientId) -> Result<(), Failure> {
        let client = client.to_string();
        self.queue(name).leave(&client)?;
        match self.row(name)? {
            Some(row) if row.is_offered_to(&client) => self.pass_on(name),
            _ => Ok(()),
        }
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
            (Eviction::Marked, HeldState::Kept | HeldState::Offered) => return Ok(false),
            (Eviction::Marked, _) => self.mark_evicted(name)?,
        }
        Ok(true)
    }

    /// Frees the name, or keeps it for the first client of the queue if there is one.
    fn pass_on(&self, name: &Name) -> Result<(), Failure> {
        let queue = self.queue(name);
        match queue.first_live()? {
            Some(first) => queue.offer(&first),
            None => self.delete(name),
        }
    }

    /// Returns what `status` shows of a row. A mere look begins no watch; without one no end is known.
    fn shown(&self, row: &Row) -> Result<Held, Failure> {
        let held = row.held()?;
        Ok(Held {
            waiting: Some(self.queue(&held.name).waiting()?),
            ..held
        })
    }
}
