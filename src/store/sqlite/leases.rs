//! The operations of the store, each one transaction on the file.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::Connection;

use super::boot::Boot;
use super::caller::Caller;
use super::changes::{self, Snapshot};
use super::claim::{self, Claimed};
use super::database::Database;
use super::failure::Failure;
use super::queue::{Queue, stored_client};
use super::row::{self, Row, RowState, Validity};
use super::{headroom, sweep};
use crate::clock::Instant;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Answer, Ask, Claim, Eviction, Held, Notice, Outcome, Release, Renewal, Topic};

/// The leases in one open file, for one thread.
#[derive(Debug)]
pub(super) struct Leases {
    file: Database,
    boot: Boot,
}

impl Leases {
    /// Takes over a freshly opened file: what other boots left in it is watched from now.
    pub(super) fn new(mut file: Database, boot: Boot, caller: Caller<'_>) -> Result<Self, Failure> {
        sweep::watch_all(&mut file, &boot, caller)?;
        sweep::sweep_foreign_queues(&mut file, &boot, caller)?;
        Ok(Self { file, boot })
    }

    pub(super) fn acquire(
        &mut self,
        claim: &Claim,
        ask: Ask,
        caller: Caller<'_>,
    ) -> Result<Answer, Failure> {
        // Those who wait only read, so they are not in the way of the holder's renewals. Who stands in line writes every
        // few seconds that it is alive.
        if ask.queued.is_none()
            && let Some(held) = self.file.read(caller, |db| {
                claim::held_by_other(db, &self.boot, claim, ask)
            })?
        {
            return Ok(Answer::Held(Box::new(held)));
        }
        let failure = match self.take(claim, ask, caller) {
            Err(failure) if failure.is_full() => failure,
            answer => return answer,
        };
        let held = self.file.read(caller, |db| {
            claim::held_without_room(db, &self.boot, claim, ask)
        })?;
        held.map_or(Err(failure), |held| Ok(Answer::Held(Box::new(held))))
    }

    fn take(&mut self, claim: &Claim, ask: Ask, caller: Caller<'_>) -> Result<Answer, Failure> {
        let info = serde_json::to_string(&*claim.info).expect("text and a number are JSON");
        let take = |db: &Connection| claim::take(db, &self.boot, claim, ask, &info);
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
                Claimed::NoRoom => headroom::make(&mut self.file, caller)?,
                Claimed::Shared(writer) => {
                    let ours = self.boot.id().into();
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
        let renewed = self.file.write_though_full(caller, |db| {
            let now = self.boot.now();
            let each = batch.iter();
            each.map(|renewal| extend(db, &self.boot, now, renewal))
                .collect()
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
        self.file.write_though_full(caller, |db| {
            let now = self.boot.now();
            let row = Row::counting(db, &self.boot, name, now)?;
            let row = row.filter(|row| row.holder == holder.to_string());
            match (row.map(|row| row.standing), keep_for) {
                (None | Some(RowState::Kept | RowState::Offered), _) => {
                    return Ok(Release::NotHeld);
                }
                (Some(RowState::Live), Some(rest)) => {
                    row::write_term(db, &self.boot, name, now, rest, RowState::Kept)?;
                }
                _ => pass_on(db, &self.boot, name, now)?,
            }
            Ok(Release::Released)
        })
    }

    /// Takes a client out of the line, and passes on what was kept for it.
    pub(super) fn leave(
        &mut self,
        name: &Name,
        client: ClientId,
        caller: Caller<'_>,
    ) -> Result<(), Failure> {
        let client = stored_client(client);
        self.file.write_though_full(caller, |db| {
            let now = self.boot.now();
            Queue::new(db, &self.boot, name, now).leave(&client)?;
            match Row::counting(db, &self.boot, name, now)? {
                Some(row) if row.is_offered_to(&client) => pass_on(db, &self.boot, name, now),
                _ => Ok(()),
            }
        })
    }

    pub(super) fn inspect(
        &mut self,
        name: &Name,
        caller: Caller<'_>,
    ) -> Result<Option<Held>, Failure> {
        self.file.read(caller, |db| {
            let row = Row::find(db, name)?;
            let now = self.boot.now();
            row.map_or(Ok(None), |row| shown(db, &row, &self.boot, now))
        })
    }

    pub(super) fn list(&mut self, prefix: &str, caller: Caller<'_>) -> Result<Vec<Held>, Failure> {
        self.file.read(caller, |db| {
            let rows = Row::beginning(db, prefix)?;
            let now = self.boot.now();
            let shown = rows.iter().map(|row| shown(db, row, &self.boot, now));
            shown.filter_map(Result::transpose).collect()
        })
    }

    pub(super) fn evict(
        &mut self,
        name: &Name,
        how: Eviction,
        caller: Caller<'_>,
    ) -> Result<bool, Failure> {
        self.file.write_though_full(caller, |db| {
            let now = self.boot.now();
            let Some(row) = Row::counting(db, &self.boot, name, now)? else {
                return Ok(false);
            };
            match (how, row.standing) {
                (Eviction::Now, _) => pass_on(db, &self.boot, name, now)?,
                (Eviction::Marked, RowState::Kept | RowState::Offered) => return Ok(false),
                (Eviction::Marked, _) => row::mark_evicted(db, name)?,
            }
            Ok(true)
        })
    }

    /// What the file looks like now and, if it changed since the look before, what these topics are to be told.
    pub(super) fn hints_since(
        &mut self,
        before: Option<&Snapshot>,
        topics: &BTreeSet<Topic>,
        caller: Caller<'_>,
    ) -> Result<(Snapshot, Vec<Notice>), Failure> {
        self.file
            .read(caller, |db| changes::since(before, db, &self.boot, topics))
    }

    /// How many leases other boots have written.
    pub(super) fn count_foreign(&mut self, caller: Caller<'_>) -> Result<i64, Failure> {
        self.file
            .read(caller, |db| sweep::count_foreign(db, &self.boot))
    }
}

fn extend(
    db: &Connection,
    boot: &Boot,
    now: Instant,
    renewal: &Renewal,
) -> Result<Outcome, Failure> {
    let row = Row::counting(db, boot, &renewal.name, now)?;
    let row = row.filter(|row| row.holder == renewal.holder.to_string());
    match row.map(|row| row.standing) {
        None | Some(RowState::Kept | RowState::Offered) => Ok(Outcome::Refused),
        Some(RowState::Evicted) => Ok(Outcome::Evicted),
        Some(RowState::Live) => {
            row::write_term(db, boot, &renewal.name, now, renewal.ttl, RowState::Live)?;
            Ok(Outcome::Renewed)
        }
    }
}

/// The name was freed: it is kept for the first in line, if there is one.
fn pass_on(db: &Connection, boot: &Boot, name: &Name, now: Instant) -> Result<(), Failure> {
    let queue = Queue::new(db, boot, name, now);
    match queue.first_live()? {
        Some(first) => queue.offer(&first),
        None => row::delete(db, name),
    }
}

/// What `status` shows of a row. Who only looks does not begin a watch; without one there is no end to tell.
fn shown(db: &Connection, row: &Row, boot: &Boot, now: Instant) -> Result<Option<Held>, Failure> {
    let remaining = match row.judge(boot, now) {
        Validity::Void => return Ok(None),
        Validity::Taken(remaining) => Some(remaining),
        Validity::Unwatched | Validity::Shared => None,
    };
    let name = row.name()?;
    let waiting = Queue::new(db, boot, &name, now).waiting()?;
    let mut held = row.held(name, remaining);
    held.waiting = Some(waiting);
    Ok(Some(held))
}
