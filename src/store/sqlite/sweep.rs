//! What keeps the file small: each grant removes a few rows that count no more, and who opens the file begins to watch
//! what other boots left in it, so that names that no client asks for again end too. Clients that other
//! boots left in the queue are removed at once.

use rusqlite::{Connection, params};

use super::boot::Boot;
use super::caller::Caller;
use super::database::Database;
use super::failure::Failure;
use super::row::{RowState, stored};
use crate::clock::Instant;
use crate::name::Name;

/// Rows removed by one grant. A grant adds one at most, so the file shrinks to what is held.
const SWEPT: i64 = 4;

/// Dead clients removed from all lines by one grant: a fraction of a millisecond.
const DEAD: i64 = 64;

/// Rows put under watch in one transaction: some milliseconds.
const WATCHED: i64 = 1_000;

/// Removes a few rows that count no more: leases that have run out or were watched for long enough, and the dead in line.
pub(super) fn sweep(db: &Connection, boot: &Boot, now: Instant) -> Result<(), Failure> {
    // Mostly there are none, and a removal that finds nothing costs several times this look.
    let mut look = db.prepare_cached(
        "SELECT
            EXISTS (SELECT 1 FROM lease WHERE boot = ?1 AND ends_at_ns <= ?2),
            EXISTS (
                SELECT 1
                FROM lease
                WHERE watcher = ?1 AND watched_until_ns <= ?2
                    AND boot <> ?1 AND watched_renewals = renewals
            ),
            EXISTS (SELECT 1 FROM line WHERE boot = ?1 AND alive_until_ns <= ?2)",
    )?;
    let found: [bool; 3] = look.query_row(params![boot.id(), stored(now)], |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?])
    })?;
    let removals = [(RUN_OUT, SWEPT), (WATCHED_OUT, SWEPT), (DEAD_IN_LINE, DEAD)];
    for ((removal, limit), is_due) in removals.into_iter().zip(found) {
        if is_due {
            let mut remove = db.prepare_cached(removal)?;
            remove.execute(params![boot.id(), stored(now), limit])?;
        }
    }
    Ok(())
}

const RUN_OUT: &str = "
    DELETE FROM lease
    WHERE name IN (
        SELECT name
        FROM lease
        WHERE boot = ?1 AND ends_at_ns <= ?2
        LIMIT ?3
    )";

const WATCHED_OUT: &str = "
    DELETE FROM lease
    WHERE name IN (
        SELECT name
        FROM lease
        WHERE watcher = ?1 AND watched_until_ns <= ?2
            AND boot <> ?1 AND watched_renewals = renewals
        LIMIT ?3
    )";

const DEAD_IN_LINE: &str = "
    DELETE FROM line
    WHERE (name, place) IN (
        SELECT name, place
        FROM line
        WHERE boot = ?1 AND alive_until_ns <= ?2
        LIMIT ?3
    )";

/// Removes the clients that stood in line under other boots, who count as dead.
pub(super) fn sweep_foreign_queues(
    file: &mut Database,
    boot: &Boot,
    caller: Caller<'_>,
) -> Result<(), Failure> {
    let has_foreign = |db: &Connection| {
        let mut foreign = db.prepare(
            "SELECT 1
            FROM line
            WHERE boot < ?1 OR boot > ?1
            LIMIT 1",
        )?;
        Ok(foreign.exists([boot.id()])?)
    };
    if file.read(caller, has_foreign)? {
        let sql = "DELETE FROM line
            WHERE boot < ?1 OR boot > ?1";
        file.write_though_full(caller, |db| Ok(db.execute(sql, [boot.id()])?))?;
    }
    Ok(())
}

/// Begins to watch this row of another boot, or begins anew.
pub(super) fn watch(
    db: &Connection,
    boot: &Boot,
    name: &Name,
    now: Instant,
) -> Result<(), Failure> {
    let mut update = db.prepare_cached(
        "UPDATE lease
        SET watcher = ?2,
            watched_until_ns = ?3 + min(ttl_ns, 9223372036854775807 - ?3),
            watched_renewals = renewals
        WHERE name = ?1",
    )?;
    update.execute(params![name.as_str(), boot.id(), stored(now)])?;
    Ok(())
}

/// Begins to watch every row of another boot that this boot does not watch yet.
pub(super) fn watch_all(
    file: &mut Database,
    boot: &Boot,
    caller: Caller<'_>,
) -> Result<(), Failure> {
    // What does not get done in time is done by the next process that opens the file or asks for the name.
    while caller.waits() && file.read(caller, |db| is_unwatched(db, boot))? {
        file.write(caller, |db| watch_some(db, boot, boot.now()))?;
    }
    Ok(())
}

fn is_unwatched(db: &Connection, boot: &Boot) -> Result<bool, Failure> {
    let mut unwatched = db.prepare(
        "SELECT 1
        FROM lease
        WHERE (boot < ?1 OR boot > ?1) AND watcher IS NOT ?1
        LIMIT 1",
    )?;
    Ok(unwatched.exists([boot.id()])?)
}

fn watch_some(db: &Connection, boot: &Boot, now: Instant) -> Result<(), Failure> {
    let sql = "UPDATE lease
        SET watcher = ?1,
            watched_until_ns = ?2 + min(ttl_ns, 9223372036854775807 - ?2),
            watched_renewals = renewals
        WHERE name IN (
            SELECT name
            FROM lease
            WHERE (boot < ?1 OR boot > ?1) AND watcher IS NOT ?1
            LIMIT ?3
        )";
    db.execute(sql, params![boot.id(), stored(now), WATCHED])?;
    Ok(())
}

/// How many leases other boots have written.
pub(super) fn count_foreign(db: &Connection, boot: &Boot) -> Result<i64, Failure> {
    let sql = "SELECT count(*)
        FROM lease
        WHERE (boot < ?1 OR boot > ?1) AND standing <> ?2";
    let facts = params![boot.id(), RowState::Offered as i64];
    Ok(db.query_row(sql, facts, |row| row.get(0))?)
}
