//! What the two Postgres drivers share: the statements, and what a failure of the server means.

use std::error::Error as StdError;
use std::time::Duration;

use super::{Bearer, Blocked, Pass, checked_resource, judge, refused};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::token::Token;

pub(super) const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS leasehold_fence (
        resource TEXT PRIMARY KEY,
        token BIGINT NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
        holder TEXT NOT NULL,
        name TEXT NOT NULL
    )";

/// Updates the row also where the pass is the row already: a new version of it is what makes a successor's transaction,
/// at `REPEATABLE READ` and above, fail and begin again rather than read a snapshot from before this write. The row's
/// lock, held until the commit, is what puts paused holder and successor in order.
pub(super) const RAISE: &str = "
    INSERT INTO leasehold_fence AS fence (resource, token, holder, name)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (resource) DO UPDATE
    SET token = excluded.token, holder = excluded.holder
    WHERE fence.name = excluded.name
    AND (fence.token < excluded.token OR (fence.token = excluded.token AND fence.holder = excluded.holder))";

pub(super) const ROW: &str = "
    SELECT token, holder, name
    FROM leasehold_fence
    WHERE resource = $1";

/// Changes nothing, and fails where any statement came before it in this transaction, or where this is a savepoint's.
/// What was read before a raise may be outdated, and at `REPEATABLE READ` so is all that is read after it.
const FIRST: &str = "SET TRANSACTION NOT DEFERRABLE";

/// How long a raise waits for an older write to end where the user says nothing: longer than a healthy transaction, and
/// much shorter than a ttl, so that the wait does not eat the lease.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The row as the server gives it.
pub(super) type Row = (i64, String, String);

/// The settings of one fence, and what it says of its failures.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    pub(super) resource: String,
    lock_timeout: Duration,
}

impl Fence {
    pub(super) fn new(resource: String) -> Result<Self, Error> {
        checked_resource(&resource)?;
        Ok(Self {
            resource,
            lock_timeout: LOCK_TIMEOUT,
        })
    }

    pub(super) fn with_lock_timeout(mut self, limit: Duration) -> Result<Self, Error> {
        // The server counts in milliseconds, and takes 0 for no limit at all.
        if !(Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60)).contains(&limit) {
            return Err(Error::invalid(format!(
                "lock timeout {limit:?} refused: expected 1ms to 24h"
            )));
        }
        self.lock_timeout = limit;
        Ok(self)
    }

    /// What goes before the first raise of a transaction.
    pub(super) fn prologue(&self) -> String {
        format!("{FIRST}; {}", self.set_lock_timeout())
    }

    /// What goes before any further raise of the same transaction.
    pub(super) fn set_lock_timeout(&self) -> String {
        format!("SET LOCAL lock_timeout = {}", self.lock_timeout.as_millis())
    }

    /// The error of a raise that changed no row.
    pub(super) fn refused(&self, bearer: &dyn Bearer, shown: &Pass, row: Option<Row>) -> Error {
        let stored = match row.map(|row| self.pass(row)).transpose() {
            Ok(stored) => stored,
            Err(damaged) => return damaged,
        };
        match judge(stored.as_ref(), shown) {
            Err(refusal) => refused(bearer, &self.resource, shown, refusal),
            Ok(_) => self.damaged("it admits the pass now and did not a moment ago"),
        }
    }

    pub(super) fn pass(&self, (token, holder, name): Row) -> Result<Pass, Error> {
        let token = Token::new(token.cast_unsigned()).map_err(|error| self.damaged(error))?;
        let holder = holder.parse().map_err(|error: Error| self.damaged(error))?;
        let name = Name::new(name).map_err(|error| self.damaged(error))?;
        Ok(Pass::new(name, holder, token))
    }

    fn damaged(&self, what: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error::new(
            ErrorKind::Misconfigured,
            format!(
                "raise failed: the fence's row is damaged resource={:?}",
                self.resource
            ),
        )
        .with_source(what)
    }

    /// What this failure means; `code` is the server's, if the server was heard at all.
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

/// What a code of the server's tells the caller to do.
fn meaning(code: Option<&str>) -> (ErrorKind, &'static str) {
    let Some(code) = code else {
        return (ErrorKind::Unavailable, "the server was not heard");
    };
    match (code, &code[..2.min(code.len())]) {
        ("25001" | "25P01", _) => (
            ErrorKind::Invalid,
            "a raise is the first statement of its transaction",
        ),
        (_, "40") => (
            ErrorKind::Unavailable,
            "repeat the whole transaction, from its raise",
        ),
        ("25006", _) => (
            ErrorKind::Misconfigured,
            "the transaction or the server is read-only",
        ),
        ("42P01", _) => (
            ErrorKind::Misconfigured,
            "there is no table leasehold_fence, create_table makes it",
        ),
        ("42501", _) | (_, "28") => (ErrorKind::Denied, "the server grants no right to this"),
        ("57014", _) => (ErrorKind::TimedOut, "the statement was cancelled"),
        (_, "08" | "53" | "57") => (ErrorKind::Unavailable, "the server cannot answer now"),
        _ => (ErrorKind::Misconfigured, "the server refused the statement"),
    }
}

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
        assert!(prologue.ends_with("lock_timeout = 50"), "{prologue}");
    }

    #[test]
    fn each_failure_tells_what_to_do() {
        let fence = Fence::new("ledger".into()).expect("valid");
        for (code, kind) in [
            (Some("55P03"), ErrorKind::TimedOut),
            (Some("40001"), ErrorKind::Unavailable),
            (Some("40P01"), ErrorKind::Unavailable),
            (Some("25001"), ErrorKind::Invalid),
            (Some("25006"), ErrorKind::Misconfigured),
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
