//! How a claim is answered, within one transaction.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::boot::Boot;
use super::failure::Failure;
use super::row::{self, Row, Standing, Verdict, stored};
use super::{room, tidy};
use crate::clock::{self, Instant};
use crate::store::{Answer, Claim, Grant, Held};
use crate::token::Token;

/// What a claim came to, apart from errors that must not undo the transaction.
pub(super) enum Claimed {
    Answered(Answer),
    /// The file has to grow first.
    NoRoom,
    /// Two kernels share the file; the watch of this row was begun anew.
    Shared(String),
}

/// Who has it, if it certainly is another holder of this boot; everything else needs the writer's place to be told.
pub(super) fn held_by_other(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
) -> Result<Option<Held>, Failure> {
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

/// Takes the name, or says who has it.
pub(super) fn take(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
    info: &str,
) -> Result<Claimed, Failure> {
    let now = boot.now();
    let Some(row) = Row::find(db, &claim.name)? else {
        return grant(db, boot, claim, info, now);
    };
    let verdict = row.judge(boot, now);
    if verdict == Verdict::Void {
        return grant(db, boot, claim, info, now);
    }
    if row.holder == claim.holder.to_string() && row.standing == Standing::Live {
        row::write_term(db, boot, &claim.name, now, claim.ttl, Standing::Live)?;
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
