//! One lease as the file keeps it, and whether it still counts.
//!
//! A row of another boot is not an *earlier* boot's for certain: a container or a virtual machine that shares the file
//! has a boot id of its own and may renew right now. So it counts until this boot has watched it unchanged for its
//! whole ttl. The watch is in the row, since the tool's processes are short-lived.

use std::time::{Duration, SystemTime};

use rusqlite::{OptionalExtension, params};

use super::boot::Boot;
use super::database::Tx;
use super::failure::Failure;
use crate::clock::Instant;
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Held, HeldState};
use crate::token::Token;

/// The columns in the order in which [`Row::from_record`] reads them.
macro_rules! select {
    ($clauses:literal) => {
        concat!(
            "SELECT name, holder, token, info, since_us, standing, boot, ends_at_ns, ttl_ns, ",
            "renewals, watcher, watched_until_ns, watched_renewals ",
            "FROM lease ",
            $clauses
        )
    };
}

/// A lease in the file.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) holder: String,
    pub(super) standing: RowState,
    pub(super) boot: String,
    name: String,
    token: i64,
    info: String,
    since_us: i64,
    pub(super) ends_at: Instant,
    ttl: Duration,
    renewals: i64,
    watch: Option<Watch>,
}

/// Another boot's wait for a sign of life.
#[derive(Debug)]
struct Watch {
    by: String,
    until: Instant,
    renewals: i64,
}

/// The way in which a row that counts takes its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowState {
    /// Exits: Evicted (by an operator), Kept (released with `keep_for`), gone (released, run out).
    Live = 0,
    /// Renewal is refused as evicted. Exits: gone (released, run out).
    Evicted = 1,
    /// Held by no client, and not free until it has run out. Exits: gone (run out).
    Kept = 2,
    /// No lease: kept for the client in the holder's column. Exits: Live (its claim), Offered (to the next: it left the
    /// queue, or an operator evicted it), gone (run out, or no client is next).
    Offered = 3,
}

/// Says whether a row still counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Validity {
    /// It has run out, or was watched for long enough.
    Void,
    /// It counts for this much longer, unless it is renewed.
    Taken(Duration),
    /// Another boot wrote it, and this boot has not begun to watch it.
    Unwatched,
    /// Another boot renewed it while this boot watched it: two kernels share the file.
    Shared,
}

impl Row {
    /// Returns whether it counts at this moment, as this boot sees it.
    fn judge(&self, boot: &Boot, now: Instant) -> Validity {
        if self.boot == boot.id() {
            return taken_until(self.ends_at, now);
        }
        if self.standing == RowState::Offered {
            // No lease is at stake, so there is nothing to watch.
            return Validity::Void;
        }
        match &self.watch {
            Some(watch) if watch.by != boot.id() => Validity::Unwatched,
            Some(watch) if watch.renewals != self.renewals => Validity::Shared,
            Some(watch) => taken_until(watch.until, now),
            None => Validity::Unwatched,
        }
    }

    /// Returns whether it keeps the name for this client.
    pub(super) fn is_offered_to(&self, client: &str) -> bool {
        self.standing == RowState::Offered && self.holder == client
    }

    /// Returns how long the name still cannot be granted although no client holds it: kept after its release, or for a
    /// client.
    pub(super) fn unheld(&self, tx: &Tx<'_>) -> Option<Duration> {
        match (self.standing, tx.judge(self)) {
            (RowState::Kept | RowState::Offered, Validity::Taken(remaining)) => Some(remaining),
            _ => None,
        }
    }

    /// Returns whether it is the grant to this holder that has this token.
    pub(super) fn is_granted_to(&self, holder: Holder, token: Token) -> bool {
        u64::try_from(self.token) == Ok(token.get()) && self.holder == holder.to_string()
    }

    /// Its token.
    pub(super) fn token(&self) -> Result<Token, Failure> {
        let token = u64::try_from(self.token).ok();
        token
            .and_then(|token| Token::new(token).ok())
            .ok_or(Failure::Damaged("a token is out of range"))
    }

    /// Returns how long it was to run when its holder wrote it last.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the facts that other clients see; `remaining` as judged. What cannot be read is left out.
    pub(super) fn held(&self, name: Name, remaining: Option<Duration>) -> Held {
        let state = match self.standing {
            RowState::Live => HeldState::Leased,
            RowState::Evicted => HeldState::Evicted,
            RowState::Kept => HeldState::Kept,
            RowState::Offered => HeldState::Offered,
        };
        if state == HeldState::Offered {
            return Held {
                remaining,
                state,
                ..Held::new(name)
            };
        }
        let since = u64::try_from(self.since_us).ok();
        Held {
            name,
            by: self.holder.parse().ok(),
            token: self.token().ok(),
            info: serde_json::from_str(&self.info).unwrap_or_default(),
            since: since
                .and_then(|us| SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(us))),
            remaining,
            ahead: None,
            state,
            waiting: None,
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> Result<Name, Failure> {
        Name::new(&self.name).map_err(|_| Failure::Damaged("a name breaks the rules of names"))
    }

    fn from_record(record: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let watch = match record.get(10)? {
            None => None,
            Some(by) => Some(Watch {
                by,
                until: moment(record.get(11)?),
                renewals: record.get(12)?,
            }),
        };
        Ok(Self {
            name: record.get(0)?,
            holder: record.get(1)?,
            token: record.get(2)?,
            info: record.get(3)?,
            since_us: record.get(4)?,
            standing: RowState::read(record.get(5)?),
            boot: record.get(6)?,
            ends_at: moment(record.get(7)?),
            ttl: Duration::from_nanos(moment(record.get(8)?).as_nanos()),
            renewals: record.get(9)?,
            watch,
        })
    }
}

impl RowState {
    /// A number that this schema does not know counts as evicted: taken, and no holder can renew it.
    fn read(number: i64) -> Self {
        match number {
            0 => Self::Live,
            2 => Self::Kept,
            3 => Self::Offered,
            _ => Self::Evicted,
        }
    }
}

/// A row as it is first written.
pub(super) struct Fresh<'a> {
    pub(super) name: &'a Name,
    /// The holder; in an offer, the client that it is for.
    pub(super) holder: &'a str,
    pub(super) token: i64,
    pub(super) info: &'a str,
    pub(super) since_us: i64,
    pub(super) standing: RowState,
    pub(super) ttl: Duration,
}

impl Tx<'_> {
    /// The row of this name, whether it counts or not.
    pub(super) fn row(&self, name: &Name) -> Result<Option<Row>, Failure> {
        let mut statement = self.db.prepare_cached(select!("WHERE name = ?1"))?;
        let found = statement.query_row([name.as_str()], Row::from_record);
        Ok(found.optional()?)
    }

    /// The row of this name if it still counts.
    pub(super) fn counting_row(&self, name: &Name) -> Result<Option<Row>, Failure> {
        let row = self.row(name)?;
        Ok(row.filter(|row| self.judge(row) != Validity::Void))
    }

    /// The rows of all names with this prefix, in the order of their bytes.
    pub(super) fn rows_with_prefix(&self, prefix: &str) -> Result<Vec<Row>, Failure> {
        let mut statement = self
            .db
            .prepare_cached(select!("WHERE name >= ?1 ORDER BY name"))?;
        let rows = statement.query_map([prefix], Row::from_record)?;
        // No LIKE or GLOB: names may contain their wildcards, and LIKE takes `a` for `A`.
        let has_prefix = |row: &rusqlite::Result<Row>| match row {
            Ok(row) => row.name.starts_with(prefix),
            Err(_) => true,
        };
        Ok(rows.take_while(has_prefix).collect::<Result<_, _>>()?)
    }

    /// Returns whether a row counts now, as this boot sees it.
    pub(super) fn judge(&self, row: &Row) -> Validity {
        row.judge(self.boot, self.now)
    }

    /// Begins a term in place of whatever row the name had, and without its watch.
    pub(super) fn put(&self, fresh: &Fresh<'_>) -> Result<(), Failure> {
        let mut insert = self.db.prepare_cached(
            "INSERT OR REPLACE INTO lease (
                name, holder, token, info, since_us, standing, boot, ends_at_ns, ttl_ns, renewals
            )
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)",
        )?;
        insert.execute(params![
            fresh.name.as_str(),
            fresh.holder,
            fresh.token,
            fresh.info,
            fresh.since_us,
            fresh.standing as i64,
            self.boot.id(),
            stored(self.now.after(fresh.ttl)),
            stored(Instant::ZERO.after(fresh.ttl)),
        ])?;
        Ok(())
    }

    /// The holder's sign of life: a full term from now, by this boot's clock. A watch by another boot stays, and sees
    /// it.
    pub(super) fn write_term(
        &self,
        name: &Name,
        ttl: Duration,
        standing: RowState,
    ) -> Result<(), Failure> {
        let mut update = self.db.prepare_cached(
            "UPDATE lease
            SET standing = ?2, boot = ?3, ends_at_ns = ?4, ttl_ns = ?5, renewals = renewals + 1
            WHERE name = ?1",
        )?;
        update.execute(params![
            name.as_str(),
            standing as i64,
            self.boot.id(),
            stored(self.now.after(ttl)),
            stored(Instant::ZERO.after(ttl)),
        ])?;
        Ok(())
    }

    /// Marks a lease as evicted. It is no sign of life of the holder, so a watch runs on.
    pub(super) fn mark_evicted(&self, name: &Name) -> Result<(), Failure> {
        let mut update = self.db.prepare_cached(
            "UPDATE lease
            SET standing = ?2
            WHERE name = ?1",
        )?;
        update.execute(params![name.as_str(), RowState::Evicted as i64])?;
        Ok(())
    }

    /// Frees the name.
    pub(super) fn delete(&self, name: &Name) -> Result<(), Failure> {
        self.db
            .prepare_cached("DELETE FROM lease WHERE name = ?1")?
            .execute([name.as_str()])?;
        Ok(())
    }
}

fn taken_until(end: Instant, now: Instant) -> Validity {
    if end <= now {
        Validity::Void
    } else {
        Validity::Taken(end.since(now))
    }
}

/// A moment as the file keeps it.
pub(super) fn stored(moment: Instant) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

fn moment(stored: i64) -> Instant {
    Instant::from_nanos(u64::try_from(stored).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn row(boot: &str, watch: Option<(&str, u64, i64)>) -> Row {
        Row {
            name: "a".into(),
            holder: String::new(),
            token: 1,
            info: String::new(),
            since_us: 0,
            standing: RowState::Live,
            boot: boot.into(),
            ends_at: at(10),
            ttl: TTL,
            renewals: 7,
            watch: watch.map(|(by, until, renewals)| Watch {
                by: by.into(),
                until: at(until),
                renewals,
            }),
        }
    }

    #[test]
    fn a_row_of_this_boot_counts_until_its_end() {
        let ours = Boot::new("ours".into(), 0);
        let row = row("ours", Some(("theirs", 0, 7)));
        assert_eq!(
            row.judge(&ours, at(9)),
            Validity::Taken(Duration::from_secs(1))
        );
        assert_eq!(row.judge(&ours, at(10)), Validity::Void);
    }

    #[test]
    fn a_row_of_another_boot_counts_though_its_end_looks_past() {
        let ours = Boot::new("ours".into(), 0);
        for watch in [None, Some(("third", 0, 7))] {
            assert_eq!(
                row("theirs", watch).judge(&ours, at(1_000)),
                Validity::Unwatched
            );
        }
    }

    #[test]
    fn a_row_watched_unchanged_is_void_at_the_end_of_the_watch() {
        let ours = Boot::new("ours".into(), 0);
        let row = row("theirs", Some(("ours", 500, 7)));
        assert_eq!(
            row.judge(&ours, at(499)),
            Validity::Taken(Duration::from_secs(1))
        );
        assert_eq!(row.judge(&ours, at(500)), Validity::Void);
    }

    #[test]
    fn a_row_renewed_under_watch_shows_that_two_kernels_share_the_file() {
        let ours = Boot::new("ours".into(), 0);
        let row = row("theirs", Some(("ours", 500, 6)));
        assert_eq!(row.judge(&ours, at(1)), Validity::Shared);
        assert_eq!(row.judge(&ours, at(1_000)), Validity::Shared);
    }
}
