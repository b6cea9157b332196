//! The parts shared by the two Postgres drivers: the statements, and the meanings of the server's failures.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::time::Duration;

use serde::Deserialize;

use super::{Blocked, Shown, checked_resource, row};
use crate::codes;
use crate::error::{Error, ErrorKind};

/// The name of the table, in a statement that is made for a schema.
const TABLE: &str = "leasehold_fence";

const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS leasehold_fence (
        resource TEXT PRIMARY KEY,
        token BIGINT NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
        holder TEXT NOT NULL,
        name TEXT NOT NULL
    )";

/// Updates the row even if it already is the pass: a new version of the row makes a successor's transaction, at
/// `REPEATABLE READ` and above, fail and start again rather than read a snapshot from before this write. The lock on
/// the row, held until the commit, orders a paused holder and its successor.
///
/// A refused raise fails, so that its transaction can only roll back. In plain SQL an error with a text of ours is that
/// of a setting that does not exist: its name is the refusing row.
const RAISE: &str = "
    INSERT INTO leasehold_fence AS fence (resource, token, holder, name)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (resource) DO UPDATE
    SET holder = excluded.holder, token = CASE
        WHEN fence.name = excluded.name
        AND (fence.token < excluded.token OR (fence.token = excluded.token AND fence.holder = excluded.holder))
        THEN excluded.token
        ELSE pg_catalog.length(pg_catalog.current_setting(pg_catalog.concat('leasehold.refused_by ',
            pg_catalog.json_build_object('token', fence.token, 'holder', fence.holder, 'name', fence.name))))
    END";
const REFUSED_BY: &str = "leasehold.refused_by ";

const ROW: &str = "
    SELECT token, holder, name
    FROM leasehold_fence
    WHERE resource = $1";

/// Changes nothing, and fails if any statement came before it in this transaction, or inside a savepoint. What was read
/// before a raise may be outdated, and at `REPEATABLE READ` so is everything that is read after it.
const FIRST: &str = "SET TRANSACTION NOT DEFERRABLE";

/// Fails if the search path leads to several tables `leasehold_fence`, or to a temporary one: the first one may be
/// another role's, with triggers of its own and rows of its choice, and one of this session outlives its user in a
/// pool. The setting does not exist, so reading it fails with `NO_SETTING`.
const ONE_TABLE: &str = "
    SELECT pg_catalog.current_setting('leasehold_fence.is_ambiguous')
    FROM pg_catalog.pg_class AS found
    JOIN pg_catalog.pg_namespace AS schema ON schema.oid OPERATOR(pg_catalog.=) found.relnamespace
    WHERE found.relname OPERATOR(pg_catalog.=) 'leasehold_fence'::pg_catalog.name
    AND (schema.nspname OPERATOR(pg_catalog.=) ANY (pg_catalog.current_schemas(true))
        OR schema.oid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
    HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1::pg_catalog.int8
    OR pg_catalog.bool_or(schema.oid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())";
const NO_SETTING: &str = "42704";

/// How long a raise waits for an older write to end by default: longer than a healthy transaction, and much shorter
/// than a ttl, so that the wait does not use up the lease.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The settings of one fence, and the errors it makes.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    pub(super) resource: String,
    lock_timeout: Duration,
    /// The schema of the table, quoted; without one the search path leads to it.
    schema: Option<String>,
}

impl Fence {
    pub(super) fn new(resource: String) -> Result<Self, Error> {
        checked_resource(&resource)?;
        Ok(Self {
            resource,
            lock_timeout: LOCK_TIMEOUT,
            schema: None,
        })
    }

    pub(super) fn in_schema(mut self, schema: &str) -> Result<Self, Error> {
        let is_fit = (1..=63).contains(&schema.len()) && !schema.chars().any(char::is_control);
        if !is_fit {
            return Err(Error::invalid(format!(
                "schema {schema:?} refused: expected 1 to 63 bytes without control characters"
            )));
        }
        self.schema = Some(format!("\"{}\"", schema.replace('"', "\"\"")));
        Ok(self)
    }

    /// Returns the statement that makes the table.
    pub(super) fn create(&self) -> Cow<'static, str> {
        self.for_table(CREATE)
    }

    /// Returns the statement that raises the fence.
    pub(super) fn raise(&self) -> Cow<'static, str> {
        self.for_table(RAISE)
    }

    /// Returns the statement that reads the row.
    pub(super) fn row(&self) -> Cow<'static, str> {
        self.for_table(ROW)
    }

    fn for_table(&self, statement: &'static str) -> Cow<'static, str> {
        match &self.schema {
            None => statement.into(),
            Some(schema) => statement
                .replacen(TABLE, &format!("{schema}.{TABLE}"), 1)
                .into(),
        }
    }

    pub(super) fn with_lock_timeout(mut self, limit: Duration) -> Result<Self, Error> {
        // The server counts in milliseconds, and treats 0 as no limit.
        if !(Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60)).contains(&limit) {
            return Err(Error::invalid(format!(
                "lock timeout {limit:?} refused: expected 1ms to 24h"
            )));
        }
        self.lock_timeout = limit;
        Ok(self)
    }

    /// Returns the statements before the first raise of a transaction.
    pub(super) fn prologue(&self) -> String {
        format!("{FIRST}; {}", self.prologue_of_further())
    }

    /// Returns the statements before each further raise of the same transaction.
    pub(super) fn prologue_of_further(&self) -> String {
        let ms = self.lock_timeout.as_millis();
        match self.schema {
            None => format!("SET LOCAL lock_timeout = {ms}; {ONE_TABLE}"),
            Some(_) => format!("SET LOCAL lock_timeout = {ms}"),
        }
    }

    /// Makes the error of a failed raise; `answer` is the server's code and text, if it answered at all.
    pub(super) fn raise_failed(
        &self,
        shown: &Shown<'_>,
        answer: Option<(&str, &str)>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        match answer.and_then(|(_, text)| refused_by(text)) {
            Some(row) => row::refusal(&self.resource, shown, Some(row)),
            None => self.failed("raise", answer.map(|(code, _)| code), source),
        }
    }

    /// Checks the number of rows that a raise wrote.
    pub(super) fn written(&self, rows: u64) -> Result<(), Error> {
        match rows {
            1 => Ok(()),
            _ => Err(row::damaged(&self.resource, "the raise wrote no row")),
        }
    }

    /// Makes the error of a failure; `code` is the server's code, if the server answered at all.
    pub(super) fn failed(
        &self,
        action: &str,
        code: Option<&str>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        if code == Some("55P03") {
            return Blocked::error(&self.resource);
        }
        let (kind, why) = meaning(code);
        let resource = &self.resource;
        Error::new(
            kind,
            format!("{action} failed: {why} resource={resource:?}"),
        )
        .with_source(source)
    }
}

/// Returns the row in the text of a refusal, which the server quotes in its own language.
fn refused_by(text: &str) -> Option<row::Columns> {
    let (_, row) = text.split_once(REFUSED_BY)?;
    let row = serde_json::Deserializer::from_str(row).into_iter().next();
    let Stored {
        token,
        holder,
        name,
    } = row?.ok()?;
    Some((token, holder, name))
}

#[derive(Deserialize)]
struct Stored {
    token: i64,
    holder: String,
    name: String,
}

/// Returns what the caller should do about an error code of the server.
fn meaning(code: Option<&str>) -> (ErrorKind, &'static str) {
    let Some(code) = code else {
        return (ErrorKind::Unavailable, "the server did not answer");
    };
    let kind = match code {
        "25001" | "25P01" => ErrorKind::Invalid,
        _ => codes::postgres::kind(code, ""),
    };
    let why = match (code, kind) {
        ("25001" | "25P01", _) => "a raise must be the first statement of its transaction",
        ("42P01", _) => "the table leasehold_fence is missing; create_table makes it",
        (NO_SETTING, _) => {
            "several tables leasehold_fence, or a temporary one, are in the search_path; name the fence's schema"
        }
        ("25006", _) => "the transaction or the server is read-only",
        (_, ErrorKind::Denied) => "authentication failed or a permission is missing",
        (_, ErrorKind::TimedOut) => "the statement was cancelled",
        (_, ErrorKind::Unavailable) => {
            "the server cannot carry it out now; retry the whole transaction, from its raise"
        }
        _ => "the server refused the statement",
    };
    (kind, why)
}

/// Defines the methods that are the same for each driver, because they need no connection.
macro_rules! settings {
    () => {
        /// Makes the fence for this resource: any text that names what the lease protects.
        ///
        /// # Errors
        /// `Invalid` for a resource that breaks the rule of names.
        pub fn new(resource: impl Into<String>) -> Result<Self, crate::error::Error> {
            super::postgres::Fence::new(resource.into()).map(Self)
        }

        /// Sets how long a raise waits for an older write to end (default: 2 s).
        ///
        /// # Errors
        /// `Invalid` for less than a millisecond or more than a day.
        pub fn with_lock_timeout(
            self,
            limit: std::time::Duration,
        ) -> Result<Self, crate::error::Error> {
            self.0.with_lock_timeout(limit).map(Self)
        }

        /// Names the schema of the table (default: the one to which the search path leads). With it, no table of
        /// another schema, and no temporary one, is ever taken for this one.
        ///
        /// # Errors
        /// `Invalid` for a name that is empty, longer than 63 bytes, or has control characters.
        pub fn in_schema(self, schema: &str) -> Result<Self, crate::error::Error> {
            self.0.in_schema(schema).map(Self)
        }
    };
}
pub(super) use settings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_without_a_limit_is_refused() {
        let fence = || Fence::new("ledger".into()).expect("valid");
        for limit in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            assert!(fence().with_lock_timeout(limit).is_err(), "{limit:?}");
        }
        let fence = fence().with_lock_timeout(Duration::from_millis(50));
        let prologue = fence.expect("valid").prologue();
        assert!(prologue.contains("lock_timeout = 50;"), "{prologue}");
    }

    #[test]
    fn a_refusing_row_is_read_in_whatever_quotes_it_comes() {
        let json = r#"{"token" : 41, "holder" : "h", "name" : "é \" «»"}"#;
        let row = Some((41, "h".to_owned(), "é \" «»".to_owned()));
        for (before, after) in [("\"", "\""), ("„", "“"), ("« ", " »")] {
            let text = format!("parameter {before}{REFUSED_BY}{json}{after} is unknown");
            assert_eq!(refused_by(&text), row, "{text}");
        }
        let other = "unrecognized configuration parameter \"leasehold_fence.is_ambiguous\"";
        assert_eq!(refused_by(other), None);
    }

    #[test]
    fn every_statement_names_the_schema_of_a_fence_that_has_one() {
        let fence = Fence::new("ledger".into()).expect("valid");
        for bad in ["", "a\n", &"a".repeat(64)] {
            assert!(fence.clone().in_schema(bad).is_err(), "{bad:?}");
        }
        let fence = fence.in_schema("o\"d").expect("valid");
        for statement in [fence.create(), fence.raise(), fence.row()] {
            assert!(
                statement.contains(r#" "o""d".leasehold_fence"#),
                "{statement}"
            );
            assert_eq!(statement.matches(TABLE).count(), 1, "{statement}");
        }
    }

    #[test]
    fn each_failure_tells_what_to_do() {
        let fence = Fence::new("ledger".into()).expect("valid");
        for (code, kind) in [
            (Some("55P03"), ErrorKind::TimedOut),
            (Some("40001"), ErrorKind::Unavailable),
            (Some("40P01"), ErrorKind::Unavailable),
            (Some("25001"), ErrorKind::Invalid),
            (Some("25006"), ErrorKind::Unavailable),
            (Some("58030"), ErrorKind::Unavailable),
            (Some("42P01"), ErrorKind::Misconfigured),
            (Some("42501"), ErrorKind::Denied),
            (Some("57P01"), ErrorKind::Unavailable),
            (Some("x"), ErrorKind::Misconfigured),
            (None, ErrorKind::Unavailable),
        ] {
            let error = fence.failed("raise", code, "source");
            assert_eq!(error.kind(), kind, "{code:?}");
            assert_eq!(Blocked::of(&error).is_some(), code == Some("55P03"));
        }
    }
}
