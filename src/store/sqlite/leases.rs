//! The operations of the store, each one transaction on the file.

use std::collections::BTreeSet;
use std::time::Duration;

use super::caller::Caller;
use super::changes::Snapshot;
use super::claim::Claimed;
use super::database::Database;
use super::failure::Failure;
use super::queue::stored_client;
use super::row::{Row, RowState, Validity};
use super::tx::Tx;
use super::{headroom, sweep};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Answer, Ask, Claim, Eviction, Held, Notice, Outcome, Release, Renewal, Topic};

/// The leases in one open file, for one thread.
#[derive(Debug)]
pub(super) struct Leases {
    file: Database,
}

impl Leases {
    /// Takes over a freshly opened file: what other boots left in it is watched from now.
    pub(super) fn new(mut file: Database, caller: Caller<'_>) -> Result<Self, Failure> {
        sweep::watch_all(&mut file, caller)?;
        sweep::sweep_foreign_queues(&mut file, caller)?;
        Ok(Self { file })
    }

    pub(super) fn acquire(
        &mut self,
        claim: &Claim,
        ask: Ask,
        caller: Caller<'_>,
    ) -> Result<Answer, Failure> {
        // Clients that wait in any order only read, so they do not delay the holder's renewals. A client in the queue
        // writes every few seconds that it is alive.
        if ask.queued.is_none()
            && let Some(held) = self.file.read(caller, |tx| tx.held_by_other(claim, ask))?
        {
            return Ok(Answer::Held(Box::new(held)));
        }
        let failure = match self.take(claim, ask, caller) {
            Err(failure) if failure.is_full() => failure,
            answer => return answer,
        };
        let held = self
            .file
            .read(caller, |tx| tx.held_without_headroom(claim, ask))?;
        held.map_or(Err(failure), |held| Ok(Answer::Held(Box::new(held))))
    }

    fn take(&mut self, claim: &Claim, ask: Ask, caller: Caller<'_>) -> Result<Answer, Failure> {
        let info = serde_json::to_string(&*claim.info).expect("text and a number are JSON");
        let take = |tx: &Tx<'_>| tx.take(claim, ask, &info);
        let mut has_to_last = false;
        while caller.waits() {
            let claimed = if has_to_last {
                self.file.write_synced(caller, take)?
            } else {
                self.file.write_though_full(caller, take)?
            };
            match claimed {
                Claimed::Answered(answer) => return Ok(answer),
                Claimed::Unsynced => has_to_last = true,
                Claimed::NoHeadroom => headroom::make(&mut self.file, caller)?,
                Claimed::Shared(writer) => {
                    let ours = self.file.boot().id().into();
                    return Err(Failure::Shared { writer, ours });
                }
            }
        }
        Err(Failure::Late)
    }

    /// Extends all of them or, if it fails, none. A file that was deleted or replaced refuses them.
    pub(super) fn renew(
        &mut self,
        batch: &[Renewal],
        caller: Caller<'_>,
    ) -> Result<Vec<Outcome>, Failure> {
        let renewed = self.file.write_though_full(caller, |tx| {
            batch.iter().map(|renewal| tx.extend(renewal)).collect()
        });
        match renewed {
            // A process that opens the path now sees nothing of these leases: they are over, as after a flush.
            Err(Failure::Replaced) => Ok(batch.iter().map(|_| Outcome::Refused).collect()),
            renewed => renewed,
        }
    }

    pub(super) fn release(
        &mut self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        caller: Caller<'_>,
    ) -> Result<Release, Failure> {
        self.file.write_though_full(caller, |tx| {
            let row = tx.counting_row(name)?;
            let row = row.filter(|row| row.holder == holder.to_string());
            match (row.map(|row| row.standing), keep_for) {
                (None | Some(RowState::Kept | RowState::Offered), _) => {
                    return Ok(Release::NotHeld);
                }
                (Some(RowState::Live), Some(rest)) => {
                    tx.write_term(name, rest, RowState::Kept)?;
                }
                _ => tx.pass_on(name)?,
            }
            Ok(Release::Released)
        })
    }

    /// Removes a client from the queue, and passes on what was kept for it.
    pub(super) fn leave(
        &mut self,
        name: &Name,
        client: ClientId,
        caller: Caller<'_>,
    ) -> Result<(), Failure> {
        let client = stored_client(client);
        self.file.write_though_full(caller, |tx| {
            tx.queue(name).leave(&client)?;
            match tx.counting_row(name)? {
                Some(row) if row.is_offered_to(&client) => tx.pass_on(name),
                _ => Ok(()),
            }
        })
    }

    pub(super) fn inspect(
        &mut self,
        name: &Name,
        caller: Caller<'_>,
    ) -> Result<Option<Held>, Failure> {
        self.file.read(caller, |tx| {
            let row = tx.row(name)?;
            row.map_or(Ok(None), |row| tx.shown(&row))
        })
    }

    pub(super) fn list(&mut self, prefix: &str, caller: Caller<'_>) -> Result<Vec<Held>, Failure> {
        self.file.read(caller, |tx| {
            let rows = tx.rows_with_prefix(prefix)?;
            let shown = rows.iter().map(|row| tx.shown(row));
            shown.filter_map(Result::transpose).collect()
        })
    }

    pub(super) fn evict(
        &mut self,
        name: &Name,
        how: Eviction,
        caller: Caller<'_>,
    ) -> Result<bool, Failure> {
        self.file.write_though_full(caller, |tx| {
            let Some(row) = tx.counting_row(name)? else {
                return Ok(false);
            };
            match (how, row.standing) {
                (Eviction::Now, _) => tx.pass_on(name)?,
                (Eviction::Marked, RowState::Kept | RowState::Offered) => return Ok(false),
                (Eviction::Marked, _) => tx.mark_evicted(name)?,
            }
            Ok(true)
        })
    }

    /// Returns what the file looks like now and, if it changed since the look before, the hints for these topics.
    pub(super) fn hints_since(
        &mut self,
        before: Option<&Snapshot>,
        topics: &BTreeSet<Topic>,
        caller: Caller<'_>,
    ) -> Result<(Snapshot, Vec<Notice>), Failure> {
        self.file
            .read(caller, |tx| tx.changes_since(before, topics))
    }

    /// Returns how many leases other boots have written.
    pub(super) fn count_foreign(&mut self, caller: Caller<'_>) -> Result<i64, Failure> {
        self.file.read(caller, |tx| tx.count_foreign())
    }
}

impl Tx<'_> {
    fn extend(&self, renewal: &Renewal) -> Result<Outcome, Failure> {
        let row = self.counting_row(&renewal.name)?;
        let row = row.filter(|row| row.is_granted_to(renewal.holder, renewal.token));
        match row.map(|row| row.standing) {
            None | Some(RowState::Kept | RowState::Offered) => Ok(Outcome::Refused),
            Some(RowState::Evicted) => Ok(Outcome::Evicted),
            Some(RowState::Live) => {
                self.write_term(&renewal.name, renewal.ttl, RowState::Live)?;
                Ok(Outcome::Renewed)
            }
        }
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
    fn shown(&self, row: &Row) -> Result<Option<Held>, Failure> {
        let remaining = match self.judge(row) {
            Validity::Void => return Ok(None),
            Validity::Taken(remaining) => Some(remaining),
            Validity::Unwatched | Validity::Shared => None,
        };
        let name = row.name()?;
        let waiting = self.queue(&name).waiting()?;
        let mut held = row.held(name, remaining);
        held.waiting = Some(waiting);
        Ok(Some(held))
    }
}
