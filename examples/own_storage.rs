//! Leases in a storage of one's own: a table of a database, in about 70 lines. Any storage will do that puts a record on
//! the version that was read. The last lines run the contract of a store on it.
//!
//! ```text
//! cargo run -p leasehold --example own_storage --features conformance,rusqlite
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::record::{
    Expiry, Failure, Put, Record, Records, Register, Seen, Traits, Version, Versioned,
};
use leasehold::store::spi::{Notices, Purpose, Sent};
use leasehold::store::{Hazard, Member, MemberState, Store, conformance};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// One row a name. The database's clock tells when a row was written, in microseconds since 1970.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS record \
     (key TEXT PRIMARY KEY, version INTEGER NOT NULL, record TEXT NOT NULL, written_us INTEGER NOT NULL)";
const NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

#[derive(Debug, Clone)]
struct Table(PathBuf);

impl Table {
    /// A connection for each request, which ends with it: enough for an example.
    fn connect(&self) -> rusqlite::Result<Connection> {
        let database = Connection::open(&self.0)?;
        database.busy_timeout(Duration::from_secs(5))?;
        database.execute_batch(TABLE)?;
        Ok(database)
    }

    fn change(&self, sql: &str, values: impl rusqlite::Params) -> Result<Put, Failure> {
        let changed = self.connect().and_then(|database| {
            let version = database
                .prepare(sql)?
                .query_row(values, |row| row.get::<_, i64>(0));
            version.optional()
        });
        let version = changed.map_err(failed)?;
        Ok(version.map_or(Put::Conflict, |version| Put::Done(version.to_string())))
    }
}

fn micros(time: i64) -> Duration {
    Duration::from_micros(time.unsigned_abs())
}

/// In doubt it may have been carried out.
fn failed(error: rusqlite::Error) -> Failure {
    let what = "the database did not answer";
    Failure::new(ErrorKind::Unavailable, Sent::Perhaps, what).with_source(error)
}

fn versioned(row: &Row<'_>) -> rusqlite::Result<(String, i64, String, i64)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

fn read(row: (String, i64, String, i64)) -> Result<(String, Versioned), Failure> {
    let (key, version, text, written_us) = row;
    let record = Record::from_text(text.as_bytes())?;
    let written_at = Some(micros(written_us));
    Ok((key, Versioned::new(version.to_string(), record, written_at)))
}

impl Register for Table {
    fn traits(&self) -> Traits {
        // One database, one clock.
        let [skew, grain] = [Duration::ZERO, Duration::from_millis(1)];
        let mut traits = Traits::new("table", Expiry::Counted { skew, grain });
        traits.look_every = Duration::from_millis(100);
        traits
    }

    fn location(&self) -> &dyn fmt::Display {
        &"a table of SQLite"
    }

    async fn read(&self, key: &str) -> Result<Seen, Failure> {
        let found = self.connect().and_then(|database| {
            let sql = "SELECT key, version, record, written_us FROM record WHERE key = ?1";
            database.query_row(sql, [key], versioned).optional()
        });
        let found = found.map_err(failed)?.map(read).transpose()?;
        Ok(Seen::new(
            found.map(|(_, versioned)| versioned),
            self.time().await?,
        ))
    }

    async fn put(
        &self,
        key: &str,
        on: Option<&Version>,
        record: &Record,
        _: Option<Duration>,
    ) -> Result<Put, Failure> {
        let text = record.to_text();
        match on {
            Some(on) => self.change(
                &format!(
                    "UPDATE record SET version = version + 1, record = ?3, written_us = {NOW} \
                     WHERE key = ?1 AND version = CAST(?2 AS INTEGER) RETURNING version"
                ),
                params![key, on, text],
            ),
            // A version that no removed row of this key had.
            None => self.change(
                &format!(
                    "INSERT INTO record VALUES (?1, {NOW}, ?2, {NOW}) ON CONFLICT DO NOTHING RETURNING version"
                ),
                params![key, text],
            ),
        }
    }

    async fn extend(
        &self,
        key: &str,
        on: &Version,
        record: &Record,
        lasts: Duration,
    ) -> Result<Put, Failure> {
        self.put(key, Some(on), record, Some(lasts)).await
    }

    async fn remove(&self, key: &str, on: &Version) -> Result<Put, Failure> {
        let sql =
            "DELETE FROM record WHERE key = ?1 AND version = CAST(?2 AS INTEGER) RETURNING version";
        self.change(sql, params![key, on])
    }

    async fn list(
        &self,
        prefix: &str,
        before: Option<Duration>,
    ) -> Result<Vec<(String, Versioned)>, Failure> {
        let before = before.map_or(i64::MAX, |before| before.as_micros() as i64);
        let rows = self.connect().and_then(|database| {
            let sql = "SELECT key, version, record, written_us FROM record \
                       WHERE substr(key, 1, length(?1)) = ?1 AND written_us <= ?2";
            let mut query = database.prepare(sql)?;
            query
                .query_map(params![prefix, before], versioned)?
                .collect()
        });
        let rows: Vec<_> = rows.map_err(failed)?;
        rows.into_iter().map(read).collect()
    }

    async fn time(&self) -> Result<Option<Duration>, Failure> {
        let sql = format!("SELECT {NOW}");
        let now = self
            .connect()
            .and_then(|database| database.query_row(&sql, [], |row| row.get(0)));
        Ok(Some(micros(now.map_err(failed)?)))
    }

    async fn notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        Ok(None)
    }

    async fn hazards(&self) -> Result<Vec<Hazard>, Failure> {
        Ok(Vec::new())
    }

    async fn members(&self) -> Result<Vec<Member>, Failure> {
        Ok(vec![Member::new("a table of SQLite", MemberState::Up)])
    }

    async fn on_own_connection(&self, _: Purpose) -> Result<Self, Failure> {
        Ok(self.clone())
    }

    async fn close(&self) {}
}

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(Records::new(Table(path.into())))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("records");
    // Fails by panic where the contract is broken.
    conformance::check(move || std::future::ready(open(&path))).await;
    println!("a table with a version keeps the contract of a store");
    Ok(())
}
