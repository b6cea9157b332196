//! The operations of the store, each one transaction on the file.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::Connection;

use super::boot::Boot;
use super::claim::{self, Claimed};
use super::failure::Failure;
use super::file::File;
use super::row::{self, Row, Standing, Verdict};
use super::{room, tidy};
use crate::clock::{Clock, Instant, Monotonic};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Answer, Claim, Eviction, Held, Outcome, Release, Renewal};

/// The leases in one open file, for one thread.
#[derive(Debug)]
pub(super) struct Leases {
    file: File,
    boot: Boot,
}

impl Leases {
    /// Takes over a freshly opened file: what other boots left in it is watched from now.
    pub(super) fn new(mut file: File, boot: Boot, until: Instant) -> Result<Self, Failure> {
        tidy::watch_all(&mut file, &boot, until)?;
        Ok(Self { file, boot })
    }

    pub(super) fn acquire(&mut self, claim: &Claim, until: Instant) -> Result<Answer, Failure> {
        // Those who wait only read, so they are not in the way of the holder's renewals.
        if let Some(held) = self
            .file
            .read(until, |db| claim::held_by_other(db, &self.boot, claim))?
        {
            return Ok(Answer::Held(Box::new(held)));
        }
        let info = serde_json::to_string(&*claim.info).expect("text and a number are JSON");
        while Monotonic.now() < until {
            let claimed = self
                .file
                .write(until, |db| claim::take(db, &self.boot, claim, &info))?;
            match claimed {
                Claimed::Answered(answer) => return Ok(answer),
                Claimed::NoRoom => room::make(&mut self.file, until)?,
                Claimed::Shared(writer) => {
                    let ours = self.boot.id().into();
                    return Err(Failure::Shared { writer, ours });
                }
            }
        }
        Err(Failure::Late)
    }

    /// Extends all of them or, if it fails, none.
    pub(super) fn renew(
        &mut self,
        batch: &[Renewal],
        until: Instant,
    ) -> Result<Vec<Outcome>, Failure> {
        self.file.write_though_full(until, |db| {
            let now = self.boot.now();
            let each = batch.iter();
            each.map(|renewal| extend(db, &self.boot, now, renewal))
                .collect()
        })
    }

    pub(super) fn release(
        &mut self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        until: Instant,
    ) -> Result<Release, Failure> {
        self.file.write_though_full(until, |db| {
            let now = self.boot.now();
            let row = Row::counting(db, &self.boot, name, now)?;
            let is_ours =
                |row: &Row| row.holder == holder.to_string() && row.standing != Standing::Kept;
            if !row.is_some_and(|row| is_ours(&row)) {
                return Ok(Release::NotHeld);
            }
            match keep_for {
                Some(rest) => row::write_term(db, &self.boot, name, now, rest, Standing::Kept)?,
                None => row::delete(db, name)?,
            }
            Ok(Release::Released)
        })
    }

    pub(super) fn inspect(&mut self, name: &Name, until: Instant) -> Result<Option<Held>, Failure> {
        self.file.read(until, |db| {
            let row = Row::find(db, name)?;
            let now = self.boot.now();
            row.map_or(Ok(None), |row| shown(&row, &self.boot, now))
        })
    }

    pub(super) fn list(&mut self, prefix: &str, until: Instant) -> Result<Vec<Held>, Failure> {
        self.file.read(until, |db| {
            let rows = Row::beginning(db, prefix)?;
            let now = self.boot.now();
            let shown = rows.iter().map(|row| shown(row, &self.boot, now));
            shown.filter_map(Result::transpose).collect()
        })
    }

    pub(super) fn evict(
        &mut self,
        name: &Name,
        how: Eviction,
        until: Instant,
    ) -> Result<bool, Failure> {
        self.file.write_though_full(until, |db| {
            let Some(row) = Row::counting(db, &self.boot, name, self.boot.now())? else {
                return Ok(false);
            };
            match how {
                Eviction::Now => row::delete(db, name)?,
                Eviction::Marked if row.standing == Standing::Kept => return Ok(false),
                Eviction::Marked => row::mark_evicted(db, name)?,
            }
            Ok(true)
        })
    }

    /// The file's change counter and, if it is not the one given, which of these names are free.
    pub(super) fn freed_since(
        &mut self,
        version: Option<i64>,
        names: &BTreeSet<Name>,
        until: Instant,
    ) -> Result<(i64, Vec<Name>), Failure> {
        self.file.read(until, |db| {
            let now = db.query_row("PRAGMA data_version", (), |row| row.get(0))?;
            if version.is_none_or(|version| version == now) {
                return Ok((now, Vec::new()));
            }
            let mut free = Vec::new();
            for name in names {
                let row = Row::find(db, name)?;
                if row.is_none_or(|row| {
                    matches!(row.judge(&self.boot, self.boot.now()), Verdict::Void)
                }) {
                    free.push(name.clone());
                }
            }
            Ok((now, free))
        })
    }

    /// How many rows other boots have written.
    pub(super) fn count_foreign(&mut self, until: Instant) -> Result<i64, Failure> {
        self.file
            .read(until, |db| tidy::count_foreign(db, &self.boot))
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
        None | Some(Standing::Kept) => Ok(Outcome::Refused),
        Some(Standing::Evicted) => Ok(Outcome::Evicted),
        Some(Standing::Live) => {
            row::write_term(db, boot, &renewal.name, now, renewal.ttl, Standing::Live)?;
            Ok(Outcome::Renewed)
        }
    }
}

/// What `status` shows of a row. Who only looks does not begin a watch; without one there is no end to tell.
fn shown(row: &Row, boot: &Boot, now: Instant) -> Result<Option<Held>, Failure> {
    let remaining = match row.judge(boot, now) {
        Verdict::Void => return Ok(None),
        Verdict::Taken(remaining) => Some(remaining),
        Verdict::Unwatched | Verdict::Shared => None,
    };
    Ok(Some(row.held(row.name()?, remaining)))
}
