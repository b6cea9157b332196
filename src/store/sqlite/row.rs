//! One lease as the file keeps it, and whether it still counts.
//!
//! A row of another boot need not be from an *earlier* boot: a container or a virtual machine that shares the file has
//! a boot id of its own and may renew right now. So it counts until this boot has watched it unchanged for its whole
//! ttl. The watch is in the file, since the tool's processes are short-lived; each boot has its own.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rusqlite::{OptionalExtension, params};

use super::boot::Boot;
use super::failure::Failure;
use super::mint::as_stored;
use super::transaction::Tx;
use crate::clock::{self, Instant};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Held, HeldState};
use crate::token::Token;

/// How a row takes its name, as the file keeps it.
pub(super) const LEASED: i64 = 0;
/// Renewal is refused as evicted.
pub(super) const EVICTED: i64 = 1;
/// Held by no client, and not free until it has run out.
pub(super) const KEPT: i64 = 2;
/// No lease: kept for a client, by a process of schema 4.
pub(super) const OFFERED: i64 = 3;

/// A lease in the file.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) holder: String,
    pub(super) state: HeldState,
    pub(super) boot: String,
    pub(super) ends_at: Instant,
    pub(super) ttl: Duration,
    /// Whether it counts, for the transaction that has read it.
    pub(super) validity: Validity,
    token: i64,
    info: String,
    since_us: i64,
    renewals: i64,
    /// When this boot stops waiting for a sign of life of another one, and the renewals that it saw.
    watch: Option<(Instant, i64)>,
}

/// Whether a row still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Reads a row of [`SELECT`].
    fn read(record: &rusqlite::Row<'_>, tx: &Tx<'_>) -> rusqlite::Result<Self> {
        let mut row = Self {
            name: record.get(0)?,
            holder: record.get(1)?,
            token: record.get(2)?,
            info: record.get(3)?,
            since_us: record.get(4)?,
            // A number that this schema does not know: taken, and no holder can renew it.
            state: match record.get(5)? {
                LEASED => HeldState::Leased,
                KEPT => HeldState::Kept,
                OFFERED => HeldState::Kept,
                _ => HeldState::Evicted,
            },
            boot: record.get(6)?,
            ends_at: moment(record.get(7)?),
            ttl: Duration::from_nanos(moment(record.get(8)?).as_nanos()),
            renewals: record.get(9)?,
            watch: match (record.get(10)?, record.get(11)?) {
                (Some(until), Some(renewals)) => Some((moment(until), renewals)),
                _ => None,
            },
            validity: Validity::Void,
        };
        row.validity = row.judge(tx.boot, tx.now);
        Ok(row)
    }

    /// Returns whether it counts at this moment, as this boot sees it.
    fn judge(&self, boot: &Boot, now: Instant) -> Validity {
        if self.boot == boot.id() {
            return taken_until(self.ends_at, now);
        }
        match self.watch {
            None => Validity::Unwatched,
            Some((_, renewals)) if renewals != self.renewals => Validity::Shared,
            Some((until, _)) => taken_until(until, now),
        }
    }

    /// Returns how much longer it counts unless it is renewed, if that is known.
    pub(super) fn remaining(&self) -> Option<Duration> {
        match self.validity {
            Validity::Taken(remaining) => Some(remaining),
            _ => None,
        }
    }

    /// Returns whether it is the grant with this holder and token.
    pub(super) fn is_granted_to(&self, holder: Holder, token: Token) -> bool {
        self.token == as_stored(token) && self.holder == holder.to_string()
    }

    /// Its token.
    pub(super) fn token(&self) -> Result<Token, Failure> {
        let token = Token::new(self.token.cast_unsigned());
        token.map_err(|_| Failure::damaged("a token is out of range"))
    }

    /// Returns the facts that other clients see, without unreadable ones.
    pub(super) fn held(&self) -> Result<Held, Failure> {
        let name = Name::new(&self.name);
        let name = name.map_err(|_| Failure::damaged("a name breaks the rules of names"))?;
        let since = u64::try_from(self.since_us).ok().filter(|since| *since > 0);
        let since = since.map(Duration::from_micros);
        Ok(Held {
            by: self.holder.parse().ok(),
            token: self.token().ok(),
            info: serde_json::from_str(&self.info).unwrap_or_default(),
            since: since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)),
            remaining: self.remaining(),
            state: self.state,
            ..Held::new(name)
        })
    }
}

impl Tx<'_> {
    /// The row of this name if it still counts.
    pub(super) fn row(&self, name: &Name) -> Result<Option<Row>, Failure> {
        let mut find = self.db.prepare_cached(&SELECT_ONE)?;
        let facts = [self.boot.id(), name.as_str()];
        let found = find.query_row(facts, |record| Row::read(record, self));
        let found = found.optional()?;
        Ok(found.filter(|row| row.validity != Validity::Void))
    }

    /// The rows that count of all names with this prefix, in the order of their bytes.
    pub(super) fn rows_with_prefix(&self, prefix: &str) -> Result<Vec<Row>, Failure> {
        let mut find = self.db.prepare_cached(&SELECT_FROM)?;
        let facts = [self.boot.id(), prefix];
        let rows = find.query_map(facts, |record| Row::read(record, self))?;
        // No LIKE or GLOB: names may contain their wildcards, and LIKE takes `a` for `A`.
        let has_prefix = |row: &rusqlite::Result<Row>| {
            let row = row.as_ref().ok();
            row.is_none_or(|row| row.name.starts_with(prefix))
        };
        let mut rows: Vec<_> = rows.take_while(has_prefix).collect::<Result<_, _>>()?;
        rows.retain(|row| row.validity != Validity::Void);
        Ok(rows)
    }

    /// Begins a lease, instead of whatever row the name had, and without its watches. `info` is JSON.
    pub(super) fn put(
        &self,
        name: &Name,
        holder: &str,
        term: Duration,
        token: Token,
        info: &str,
    ) -> Result<(), Failure> {
        self.unwatch(name)?;
        self.run(
            "INSERT OR REPLACE INTO lease (
                name, holder, token, info, since_us, standing, boot, ends_at_ns, ttl_ns, renewals
            )
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)",
            params![
                name.as_str(),
                holder,
                as_stored(token),
                info,
                clock::wall_clock_us().cast_signed(),
                LEASED,
                self.boot.id(),
                stored(self.now.after(term)),
                stored(Instant::ZERO.after(term)),
            ],
        )
    }

    /// The holder's sign of life: a full term from now, by this boot's clock. A watch by another boot stays, and sees
    /// it.
    pub(super) fn write_term(
        &self,
        name: &Name,
        ttl: Duration,
        standing: i64,
    ) -> Result<(), Failure> {
        self.run(
            "UPDATE lease
            SET standing = ?2, boot = ?3, ends_at_ns = ?4, ttl_ns = ?5, renewals = renewals + 1
            WHERE name = ?1",
            params![
                name.as_str(),
                standing,
                self.boot.id(),
                stored(self.now.after(ttl)),
                stored(Instant::ZERO.after(ttl)),
            ],
        )
    }

    /// Marks a lease as evicted. It is no sign of life of the holder, so a watch runs on.
    pub(super) fn mark_evicted(&self, name: &Name) -> Result<(), Failure> {
        self.run(
            "UPDATE lease
            SET standing = ?2
            WHERE name = ?1",
            params![name.as_str(), EVICTED],
        )
    }

    /// Frees the name.
    pub(super) fn delete(&self, name: &Name) -> Result<(), Failure> {
        self.unwatch(name)?;
        self.run("DELETE FROM lease WHERE name = ?1", [name.as_str()])
    }
}

/// The columns of a row, with the watch of this boot, which is the first fact.
const SELECT: &str = "
    SELECT l.name, l.holder, l.token, l.info, l.since_us, l.standing, l.boot, l.ends_at_ns, l.ttl_ns, l.renewals,
        w.until_ns, w.renewals
    FROM lease l
    LEFT JOIN watch w ON w.name = l.name AND w.boot = ?1 AND w.token = l.token";

static SELECT_ONE: LazyLock<String> = LazyLock::new(|| format!("{SELECT} WHERE l.name = ?2"));

static SELECT_FROM: LazyLock<String> =
    LazyLock::new(|| format!("{SELECT} WHERE l.name >= ?2 ORDER BY l.name"));

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

pub(super) fn moment(stored: i64) -> Instant {
    Instant::from_nanos(u64::try_from(stored).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn row(boot: &str, watch: Option<(u64, i64)>) -> Row {
        Row {
            name: "a".into(),
            holder: String::new(),
            token: 1,
            info: String::new(),
            since_us: 0,
            state: HeldState::Leased,
            boot: boot.into(),
            ends_at: at(10),
            ttl: TTL,
            renewals: 7,
            watch: watch.map(|(until, renewals)| (at(until), renewals)),
            validity: Validity::Void,
        }
    }

    #[test]
    fn a_row_of_this_boot_counts_until_its_end() {
        let ours = Boot::new("ours".into(), 0);
        let row = row("ours", Some((0, 7)));
        assert_eq!(
            row.judge(&ours, at(9)),
            Validity::Taken(Duration::from_secs(1))
        );
        assert_eq!(row.judge(&ours, at(10)), Validity::Void);
    }

    #[test]
    fn a_row_of_another_boot_counts_though_its_end_looks_past() {
        let ours = Boot::new("ours".into(), 0);
        assert_eq!(
            row("theirs", None).judge(&ours, at(1_000)),
            Validity::Unwatched
        );
    }

    #[test]
    fn a_row_watched_unchanged_is_void_at_the_end_of_the_watch() {
        let ours = Boot::new("ours".into(), 0);
        let row = row("theirs", Some((500, 7)));
        assert_eq!(
            row.judge(&ours, at(499)),
            Validity::Taken(Duration::from_secs(1))
        );
        assert_eq!(row.judge(&ours, at(500)), Validity::Void);
    }

    #[test]
    fn a_row_renewed_under_watch_shows_that_two_kernels_share_the_file() {
        let ours = Boot::new("ours".into(), 0);
        let row = row("theirs", Some((500, 6)));
        assert_eq!(row.judge(&ours, at(1)), Validity::Shared);
        assert_eq!(row.judge(&ours, at(1_000)), Validity::Shared);
    }
}
