//! Keeps the file small: each grant removes a few rows that no longer count. A process that opens the file begins to
//! watch the leases that other boots left in it, so that names that no client asks for again end too, and removes the
//! clients that other boots left in queues.

use std::sync::LazyLock;

use rusqlite::params;

use super::database::Database;
use super::failure::Failure;
use super::row::{OFFERED, stored};
use super::transaction::{Caller, Tx};
use crate::name::Name;

/// Maximum number of leases that one grant removes. A grant adds at most one, so the file shrinks to the held leases.
const SWEPT: i64 = 4;

/// Dead clients removed from all queues by one grant: a fraction of a millisecond.
const DEAD: i64 = 64;

/// Leases put under watch in one transaction: some milliseconds.
const WATCHED: i64 = 1_000;

impl Tx<'_> {
    /// Removes a few rows that no longer count: leases that have run out or were watched for long enough, and dead
    /// clients in queues.
    pub(super) fn sweep(&self) -> Result<(), Failure> {
        // Usually there are none, and a removal that finds nothing costs several times this query.
        let facts = params![self.boot.id(), stored(self.now)];
        let found = (self.db.prepare_cached(&HAS_ENDED)?)
            .query_row(facts, |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
        let found: [bool; 3] = found?;
        for ((table, key, rows, limit), is_due) in KINDS.into_iter().zip(found) {
            if is_due {
                let some = format!("SELECT {key} {rows} LIMIT ?3");
                let facts = params![self.boot.id(), stored(self.now), limit];
                let removal = format!("DELETE FROM {table} WHERE ({key}) IN ({some})");
                self.run(&removal, facts)?;
                if table == "lease" {
                    self.run(UNUSED_WATCHES, ())?;
                }
            }
        }
        Ok(())
    }

    /// Begins to watch this row of another boot, or begins anew.
    pub(super) fn watch(&self, name: &Name) -> Result<(), Failure> {
        let facts = params![self.boot.id(), stored(self.now), name.as_str()];
        self.run(&format!("{WATCH} WHERE name = ?3"), facts)
    }

    /// Ends all watches of this name: its row is about to go.
    pub(super) fn unwatch(&self, name: &Name) -> Result<(), Failure> {
        self.run("DELETE FROM watch WHERE name = ?1", [name.as_str()])
    }

    /// Begins to watch some rows of other boots that this boot does not watch.
    fn watch_some(&self) -> Result<(), Failure> {
        let some = format!("{WATCH} WHERE name IN ({UNWATCHED} LIMIT ?3)");
        let facts = params![self.boot.id(), stored(self.now), WATCHED];
        self.run(&some, facts)
    }

    /// Returns whether this selects a row for this boot.
    fn has(&self, sql: &str) -> Result<bool, Failure> {
        Ok(self.db.prepare(sql)?.exists([self.boot.id()])?)
    }

    /// Returns how many leases other boots have written.
    pub(super) fn count_foreign(&self) -> Result<i64, Failure> {
        let count = self.find(
            "SELECT count(*)
            FROM lease
            WHERE (boot < ?1 OR boot > ?1) AND standing <> ?2",
            params![self.boot.id(), OFFERED],
        )?;
        Ok(count.unwrap_or_default())
    }
}

const WATCH: &str = "
    INSERT OR REPLACE INTO watch (name, boot, token, renewals, until_ns)
    SELECT name, ?1, token, renewals, ?2 + min(ttl_ns, 9223372036854775807 - ?2)
    FROM lease";

/// There are as many watches as leases of other boots, which are few but after a restart of the machine.
const UNUSED_WATCHES: &str = "
    DELETE FROM watch
    WHERE NOT EXISTS (SELECT 1 FROM lease WHERE lease.name = watch.name)";

const UNWATCHED: &str = "
    SELECT name
    FROM lease
    WHERE (boot < ?1 OR boot > ?1)
        AND NOT EXISTS (
            SELECT 1
            FROM watch
            WHERE watch.name = lease.name AND watch.boot = ?1 AND watch.token = lease.token
        )";

const FOREIGN_CLIENTS: &str = "
    SELECT client
    FROM line
    WHERE boot < ?1 OR boot > ?1";

/// The kinds of rows that no longer count: the table, its key, which rows, and how many are removed by one grant.
const KINDS: [(&str, &str, &str, i64); 3] = [
    ("lease", "name", RUN_OUT, SWEPT),
    ("lease", "name", WATCHED_OUT, SWEPT),
    ("line", "name, place", DEAD_IN_QUEUE, DEAD),
];

/// Selects for each kind whether there are any.
static HAS_ENDED: LazyLock<String> = LazyLock::new(|| {
    let tests = KINDS.map(|(_, _, rows, _)| format!("EXISTS (SELECT 1 {rows})"));
    format!("SELECT {}", tests.join(", "))
});

const RUN_OUT: &str = "
    FROM lease
    WHERE boot = ?1 AND ends_at_ns <= ?2";

const WATCHED_OUT: &str = "
    FROM watch
    JOIN lease USING (name, token)
    WHERE watch.boot = ?1 AND watch.until_ns <= ?2
        AND lease.boot <> ?1 AND watch.renewals = lease.renewals";

const DEAD_IN_QUEUE: &str = "
    FROM line
    WHERE boot = ?1 AND alive_until_ns <= ?2";

/// Begins to watch every row of another boot that this boot does not watch yet, and removes the clients that queued
/// under other boots: they count as dead. A process that opens the file waits for no writer if there are none.
pub(super) fn take_over(file: &mut Database, caller: Caller<'_>) -> Result<(), Failure> {
    // The next process that opens the file or asks for the name does the rest.
    while caller.waits() && file.read(caller, |tx| tx.has(UNWATCHED))? {
        file.write(caller, |tx| tx.watch_some())?;
    }
    if file.read(caller, |tx| tx.has(FOREIGN_CLIENTS))? {
        file.write_though_full(caller, |tx| {
            let remove = "DELETE FROM line
                WHERE boot < ?1 OR boot > ?1";
            tx.run(remove, [tx.boot.id()])
        })?;
    }
    Ok(())
}
