//! The operations of the store, each one transaction on the file.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::boot::Boot;
use super::failure::Failure;
use super::file::File;
use super::row::{Row, Standing, Verdict, stored};
use super::{room, tidy};
use crate::clock::{self, Clock, Instant, Monotonic};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Answer, Claim, Eviction, Grant, Held, Outcome, Release, Renewal};
use crate::token::Token;

/// The leases in one open file, for one thread.
#[derive(Debug)]
pub(super) struct Leases {
    file: File,
    boot: Boot,
}

/// What a claim came to, apart from errors that must not undo the transaction.
enum Claimed {
    Answered(Answer),
    /// The file has to grow first.
    NoRoom,
    /// Two kernels share the file; the watch of this row was begun anew.
    Shared(String),
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
            .read(until, |db| held_by_other(db, &self.boot, claim))?
        {
            return Ok(Answer::Held(Box::new(held)));
        }
        let info = serde_json::to_string(&*claim.info).expect("text and a number are JSON");
        while Monotonic.now() < until {
            let claimed = self
                .file
                .write(until, |db| take(db, &self.boot, claim, &info))?;
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
            let row = counting(db, &self.boot, name, now)?;
            let is_ours =
                |row: &Row| row.holder == holder.to_string() && row.standing != Standing::Kept;
            if !row.is_some_and(|row| is_ours(&row)) {
                return Ok(Release::NotHeld);
            }
            match keep_for {
                Some(rest) => write_term(db, &self.boot, name, now, rest, Standing::Kept)?,
                None => delete(db, name)?,
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
            let Some(row) = counting(db, &self.boot, name, self.boot.now())? else {
                return Ok(false);
            };
            match how {
                Eviction::Now => delete(db, name)?,
                Eviction::Marked if row.standing == Standing::Kept => return Ok(false),
                Eviction::Marked => mark_evicted(db, name)?,
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

/// Who has it, if it certainly is another holder of this boot; everything else needs the writer's place to be told.
fn held_by_other(db: &Connection, boot: &Boot, claim: &Claim) -> Result<Option<Held>, Failure> {
    let Some(row) = Row::find(db, &claim.name)? else {
        return Ok(None);
    };
    match row.judge(boot, boot.now()) {
        Verdict::Taken(remaining) if row.holder != claim.holder.to_string() => {
            Ok(Some(row.held(claim.name.clone(), Some(remaining))))
        }
        _ => Ok(None),
    }
}

fn take(db: &Connection, boot: &Boot, claim: &Claim, info: &str) -> Result<Claimed, Failure> {
    let now = boot.now();
    let Some(row) = Row::find(db, &claim.name)? else {
        return grant(db, boot, claim, info, now);
    };
    let verdict = row.judge(boot, now);
    if verdict == Verdict::Void {
        return grant(db, boot, claim, info, now);
    }
    if row.holder == claim.holder.to_string() && row.standing == Standing::Live {
        write_term(db, boot, &claim.name, now, claim.ttl, Standing::Live)?;
        let again = Grant::new(row.token()?);
        return Ok(Claimed::Answered(Answer::Granted(again)));
    }
    let remaining = match verdict {
        Verdict::Void => Duration::ZERO,
        Verdict::Taken(remaining) => remaining,
        Verdict::Unwatched | Verdict::Shared => {
            tidy::watch(db, boot, &claim.name, now)?;
            row.ttl()
        }
    };
    if verdict == Verdict::Shared {
        return Ok(Claimed::Shared(row.boot));
    }
    let held = row.held(claim.name.clone(), Some(remaining));
    Ok(Claimed::Answered(Answer::Held(Box::new(held))))
}

fn grant(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
    info: &str,
    now: Instant,
) -> Result<Claimed, Failure> {
    if !room::is_enough(db)? {
        return Ok(Claimed::NoRoom);
    }
    let token = next_token(db, claim.floor)?;
    let since_us = i64::try_from(clock::wall_clock_us()).unwrap_or_default();
    let mut insert = db.prepare_cached(
        "INSERT OR REPLACE INTO lease (
            name, holder, token, info, since_us, standing, boot, ends_at_ns, ttl_ns, renewals
        )
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)",
    )?;
    insert.execute(params![
        claim.name.as_str(),
        claim.holder.to_string(),
        as_stored(token),
        info,
        since_us,
        Standing::Live as i64,
        boot.id(),
        stored(now.after(claim.ttl)),
        stored(Instant::ZERO.after(claim.ttl)),
    ])?;
    tidy::sweep(db, boot, now)?;
    Ok(Claimed::Answered(Answer::Granted(Grant::new(token))))
}

/// Mints from the one counter of the file, so that a machine whose clock starts at 1970 is safe too.
fn next_token(db: &Connection, floor: Option<Token>) -> Result<Token, Failure> {
    let last: i64 = db
        .prepare_cached("SELECT token FROM counter WHERE one = 1")?
        .query_row((), |row| row.get(0))?;
    let damaged = Failure::Damaged("its highest token is out of range");
    let last = match u64::try_from(last) {
        Ok(0) => None,
        Ok(last) => Some(Token::new(last).map_err(|_| damaged)?),
        Err(_) => return Err(damaged),
    };
    let token = Token::mint(last, floor, clock::wall_clock_us())?;
    db.prepare_cached("UPDATE counter SET token = ?1 WHERE one = 1")?
        .execute([as_stored(token)])?;
    Ok(token)
}

fn as_stored(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token is below 2^53")
}

fn extend(
    db: &Connection,
    boot: &Boot,
    now: Instant,
    renewal: &Renewal,
) -> Result<Outcome, Failure> {
    let row = counting(db, boot, &renewal.name, now)?;
    let row = row.filter(|row| row.holder == renewal.holder.to_string());
    match row.map(|row| row.standing) {
        None | Some(Standing::Kept) => Ok(Outcome::Refused),
        Some(Standing::Evicted) => Ok(Outcome::Evicted),
        Some(Standing::Live) => {
            write_term(db, boot, &renewal.name, now, renewal.ttl, Standing::Live)?;
            Ok(Outcome::Renewed)
        }
    }
}

/// The row of this name if it still counts.
fn counting(
    db: &Connection,
    boot: &Boot,
    name: &Name,
    now: Instant,
) -> Result<Option<Row>, Failure> {
    let row = Row::find(db, name)?;
    Ok(row.filter(|row| row.judge(boot, now) != Verdict::Void))
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

/// The holder's sign of life: a full term from now, by this boot's clock. A watch by another boot stays, and sees it.
fn write_term(
    db: &Connection,
    boot: &Boot,
    name: &Name,
    now: Instant,
    ttl: Duration,
    standing: Standing,
) -> Result<(), Failure> {
    let mut update = db.prepare_cached(
        "UPDATE lease
        SET standing = ?2, boot = ?3, ends_at_ns = ?4, ttl_ns = ?5, renewals = renewals + 1
        WHERE name = ?1",
    )?;
    update.execute(params![
        name.as_str(),
        standing as i64,
        boot.id(),
        stored(now.after(ttl)),
        stored(Instant::ZERO.after(ttl)),
    ])?;
    Ok(())
}

/// Not a sign of life of the holder's: a watch runs on.
fn mark_evicted(db: &Connection, name: &Name) -> Result<(), Failure> {
    let mut update = db.prepare_cached(
        "UPDATE lease
        SET standing = ?2
        WHERE name = ?1",
    )?;
    update.execute(params![name.as_str(), Standing::Evicted as i64])?;
    Ok(())
}

fn delete(db: &Connection, name: &Name) -> Result<(), Failure> {
    db.prepare_cached("DELETE FROM lease WHERE name = ?1")?
        .execute([name.as_str()])?;
    Ok(())
}
