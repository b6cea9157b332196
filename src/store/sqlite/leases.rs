//! The operations of the store, each one transaction on the file.

use std::time::Duration;

use super::database::Database;
use super::failure::Failure;
use super::headroom;
use super::queue::info_of;
use super::row::{KEPT, LEASED, Row, Validity};
use super::transaction::{Caller, Tx};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{
    Answer, Ask, Claim, Eviction, Grant, Held, HeldState, Outcome, Place, Queued, Release, Renewal,
};
use crate::token::Token;

/// Maximum time that a name is granted to a client that did not ask at that moment: what one that stands still costs
/// those behind it. A client that lives confirms the grant within a third of it.
const HANDED: Duration = Queued::LONGEST_TERM;

impl Database {
    pub(super) fn acquire(
        &mut self,
        claim: &Claim,
        ask: Ask,
        caller: Caller<'_>,
    ) -> Result<Answer, Failure> {
        // A claim that does not wait only reads, so it does not delay the holder's renewals. One that waits writes that
        // its client is alive.
        if ask.queued.is_none()
            && let Some(held) = self.read(caller, |tx| tx.held_by_other(claim))?
        {
            return Ok(Answer::Held(Box::new(held)));
        }
        let failure = match self.take(claim, ask, caller) {
            Err(failure) if failure.is_full() => failure,
            answer => return answer,
        };
        let held = self.read(caller, |tx| tx.held_without_headroom(claim))?;
        held.map_or(Err(failure), |held| Ok(Answer::Held(Box::new(held))))
    }

    fn take(&mut self, claim: &Claim, ask: Ask, caller: Caller<'_>) -> Result<Answer, Failure> {
        let take = |tx: &Tx<'_>| tx.take(claim, ask);
        while caller.waits() {
            match self.write_though_full(caller, take)? {
                Claimed::Answered(answer) => return Ok(answer),
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
    /// Two kernels share the file; the watch of this row was begun anew.
    Shared(String),
}

/// Answers a claim.
impl Tx<'_> {
    /// Returns who has the name if it certainly is another holder of this boot. Every other answer needs a transaction
    /// that writes.
    pub(super) fn held_by_other(&self, claim: &Claim) -> Result<Option<Held>, Failure> {
        let row = self.row(&claim.name)?.filter(|row| {
            let is_own = row.holder == claim.holder.to_string();
            row.remaining().is_some() && !is_own
        });
        row.map(|row| row.held()).transpose()
    }

    /// The answer to a claim that found no headroom, if it is not its client's turn: a client that waits goes on
    /// waiting, also without a place in the queue.
    pub(super) fn held_without_headroom(&self, claim: &Claim) -> Result<Option<Held>, Failure> {
        if self.row(&claim.name)?.is_some() {
            return self.held_by_other(claim);
        }
        let first = self.first_waiting(&claim.name)?;
        let first = first.filter(|first| first.holder.client() != claim.holder.client());
        Ok(first.map(|first| Held {
            remaining: Some(first.left),
            state: HeldState::Kept,
            ..Held::new(claim.name.clone())
        }))
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
        let mut held = row.held()?;
        if let Validity::Unwatched | Validity::Shared = row.validity {
            self.watch(&claim.name)?;
            held.remaining = Some(row.ttl);
        }
        if row.validity == Validity::Shared {
            return Ok(Claimed::Shared(row.boot));
        }
        let place = self.stay(claim, ask)?;
        self.refuse(claim, ask, held, place)
    }

    /// Takes a name that no holder has, unless another client is first in the queue: then that one is granted it.
    fn take_free(&self, claim: &Claim, ask: Ask) -> Result<Claimed, Failure> {
        let place = self.stay(claim, ask)?;
        if !self.has_headroom()? {
            return Ok(Claimed::NoHeadroom);
        }
        let asker = ask.queued.map(|_| claim.holder.client());
        if !self.grant_next(&claim.name, asker)? {
            return self.grant(claim, ask);
        }
        let row = self.row(&claim.name)?;
        let row = row.ok_or_else(|| Failure::damaged("a grant is over at once"))?;
        self.refuse(claim, ask, row.held()?, place)
    }

    /// Keeps the place of the claim's client, if it has one and waits.
    fn stay(&self, claim: &Claim, ask: Ask) -> Result<Option<i64>, Failure> {
        match ask.queued {
            Some(queued) => self.stay_queued(claim, ask, self.term_of_place(claim, queued)),
            None => Ok(None),
        }
    }

    /// Refuses the claim, and gives its client a place in the queue if it wants one. A client that has this one already
    /// needs no headroom.
    fn refuse(
        &self,
        claim: &Claim,
        ask: Ask,
        mut held: Held,
        place: Option<i64>,
    ) -> Result<Claimed, Failure> {
        if let Some(queued) = ask.queued {
            let term = self.term_of_place(claim, queued);
            let place = match place {
                Some(place) => place,
                None if !self.has_headroom()? => return Ok(Claimed::NoHeadroom),
                None => self.join_queue(claim, ask, term)?,
            };
            let height = self.last_token()?.map_or(0, Token::get);
            let ahead = self.queued_before(&claim.name, place)?;
            held.place = Some(Place::new(height, ahead).with_kept_for(term));
        }
        Ok(Claimed::Answered(Answer::Held(Box::new(held))))
    }

    fn grant(&self, claim: &Claim, ask: Ask) -> Result<Claimed, Failure> {
        let token = self.next_token(ask.floor)?;
        let holder = claim.holder.to_string();
        self.put(&claim.name, &holder, claim.ttl, token, &info_of(claim))?;
        // The client's place is used up.
        if ask.queued.is_some() {
            self.leave_queue(&claim.name, claim.holder.client())?;
        }
        self.sweep()?;
        Ok(Claimed::Answered(Answer::Granted(Grant::new(token))))
    }

    /// Grants a name that no holder has to the first claim in the queue, for the rest of the term of its place, but not
    /// for long: its client may stand still. Passes over those whose clients are dead. Returns `false` if no client
    /// waits, or the one that asks is the first.
    fn grant_next(&self, name: &Name, asker: Option<ClientId>) -> Result<bool, Failure> {
        while let Some(first) = self.first_waiting(name)? {
            let client = first.holder.client();
            if Some(client) == asker {
                return Ok(false);
            }
            if !self.wake(client) {
                self.leave_queue(name, client)?;
                continue;
            }
            match self.next_token(first.floor) {
                Ok(token) => {
                    let (holder, term) = (first.holder.to_string(), first.left.min(HANDED));
                    self.put(name, &holder, term, token, &first.info)?;
                    self.leave_queue(name, client)?;
                    self.wake_watchers(name);
                    return Ok(true);
                }
                // Its floor is refused, and it hears so when it claims again.
                Err(Failure::Refused(_)) => self.leave_queue(name, client)?,
                Err(failure) => return Err(failure),
            }
        }
        Ok(false)
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
        let state = row.map(|row| row.state);
        // Who can renew a lease has no claim that waits: its place went with the grant.
        if state != Some(HeldState::Leased) {
            self.vacate(name, holder)?;
        }
        match (state, keep_for) {
            (Some(HeldState::Leased), Some(rest)) => {
                self.write_term(name, rest, KEPT)?;
                self.wake_watchers(name);
                self.wake_first(name)?;
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

    /// Frees the name, and grants it to the first claim in the queue. Where there is no headroom, that claim finds it
    /// free.
    fn pass_on(&self, name: &Name) -> Result<(), Failure> {
        self.delete(name)?;
        self.wake_watchers(name);
        match self.has_headroom()? {
            true => self.grant_next(name, None).map(drop),
            false => self.wake_first(name),
        }
    }

    /// Wakes the first living client, which polls.
    fn wake_first(&self, name: &Name) -> Result<(), Failure> {
        while let Some(first) = self.first_waiting(name)?
            && !self.wake(first.holder.client())
        {
            self.leave_queue(name, first.holder.client())?;
        }
        Ok(())
    }

    /// Returns what `status` shows of a row. A mere read begins no watch; without one no end is known.
    fn shown(&self, row: &Row) -> Result<Held, Failure> {
        let held = row.held()?;
        Ok(Held {
            waiting: Some(self.queued(&held.name)?),
            ..held
        })
    }
}
