//! The fence in SQLite: a row among the user's own rows, raised as the first statement of the user's own transaction.
//!
//! ```
//! use leasehold::fence::rusqlite::Fence;
//! # use leasehold::{Holder, Name, Token, fence::Pass};
//! # let token = Token::new(41)?;
//! # let lease = Pass::new(Name::new("nightly")?, Holder::draw(leasehold::ClientId::draw())?, token);
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("ledger.db");
//! let mut connection = rusqlite::Connection::open(path)?;
//! # connection.execute("CREATE TABLE ledger (total INTEGER)", [])?;
//! let fence = Fence::new("ledger")?;
//! fence.create_table(&connection)?; // once
//!
//! let transaction = fence.begin(&mut connection, &lease)?; // a lease, or a pass
//! transaction.execute("UPDATE ledger SET total = total + 1", [])?;
//! transaction.commit()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! 1. A transaction can begin only under a pass that storage has not seen superseded. While it is open no other holder
//!    can raise the fence, because SQLite has one writer at a time.
//! 2. What a new holder reads after its raise is what its predecessors left: none of their writes lands later.
//!
//! # Assumptions
//! The data lives in the same file as the fence, or in one attached to the same connection. With `synchronous = OFF` a
//! power cut may damage the file and the fence in it. The file is on a local disk. Keep it apart from the file that
//! stores the leases: a writer that is paused inside its transaction would delay every renewal of the machine.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `TimedOut` with [`Blocked`] if another connection kept the file busy
//! for longer than this connection's `busy_timeout`; `Invalid` if the transaction read before its raise, and what it
//! read is outdated; `Misconfigured` if the table is missing or the file cannot be written.
//!
//! # Cancel safety
//! No function is async: call them from a thread that may block. A [`Transaction`] that is dropped rolls back.

use ::rusqlite::ffi::SQLITE_BUSY_SNAPSHOT;
use ::rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::row::{self, Columns};
use super::{Bearer, Blocked, Pass, Shown, checked_resource};
use crate::clock::{Clock, Monotonic};
use crate::codes;
use crate::error::Error;
use crate::telemetry::FenceKind;

/// The driver whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use ::rusqlite;

const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS leasehold_fence (
        resource TEXT NOT NULL PRIMARY KEY,
        token INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
        holder TEXT NOT NULL,
        name TEXT NOT NULL
    ) STRICT, WITHOUT ROWID";

/// Writes the row even if it already is the pass. So the transaction has SQLite's write lock from here on, and what it
/// reads next is the newest data, even if the user began it `DEFERRED`.
const RAISE: &str = "
    INSERT INTO leasehold_fence (resource, token, holder, name)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (resource) DO UPDATE
    SET token = excluded.token, holder = excluded.holder
    WHERE name = excluded.name
    AND (token < excluded.token OR (token = excluded.token AND holder = excluded.holder))";

const ROW: &str = "
    SELECT token, holder, name
    FROM leasehold_fence
    WHERE resource = ?1";

/// The fence for one resource in SQLite files. The [module](self) has its guarantees.
#[derive(Debug, Clone)]
pub struct Fence {
    resource: String,
}

impl Fence {
    /// Makes the fence for this resource: any text that names what the lease protects.
    ///
    /// # Errors
    /// `Invalid` for a resource that breaks the rule of names.
    pub fn new(resource: impl Into<String>) -> Result<Self, Error> {
        let resource = resource.into();
        checked_resource(&resource)?;
        Ok(Self { resource })
    }

    /// Makes the table `leasehold_fence` if it is missing. The fences of all resources share it.
    ///
    /// # Errors
    /// See the [module](self).
    pub fn create_table(&self, connection: &Connection) -> Result<(), Error> {
        connection
            .execute(CREATE, [])
            .map(drop)
            .map_err(|error| self.failed("create table", error))
    }

    /// Begins an immediate transaction with the fence raised: all statements in it are written under the bearer's pass.
    /// Blocks its thread for at most the connection's `busy_timeout` while another connection writes: in an async
    /// function call it, and what follows, from `spawn_blocking`.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    pub fn begin<'c>(
        &self,
        connection: &'c mut Connection,
        bearer: &dyn Bearer,
    ) -> Result<Transaction<'c>, Error> {
        let shown = &Shown::of(bearer)?;
        checked(shown, move || {
            let transaction = connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(|error| self.failed("raise", error))?;
            self.raise_pass(&transaction, shown)?;
            Ok(transaction)
        })
    }

    /// Raises the fence inside a transaction of the caller's. Call it first: what was read before it may be outdated.
    /// Raise several fences one after the other, in the same order in every writer.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed. Roll the transaction back after an error.
    pub fn raise(&self, transaction: &Transaction<'_>, bearer: &dyn Bearer) -> Result<(), Error> {
        let shown = Shown::of(bearer)?;
        checked(&shown, || self.raise_pass(transaction, &shown))
    }

    /// Returns the pass that storage has, if any. Read it when the result of a commit is unknown.
    ///
    /// # Errors
    /// See the [module](self).
    pub fn row(&self, connection: &Connection) -> Result<Option<Pass>, Error> {
        let row = self.columns(connection)?;
        row::pass(&self.resource, row)
    }

    fn columns(&self, connection: &Connection) -> Result<Option<Columns>, Error> {
        connection
            .prepare_cached(ROW)
            .and_then(|mut statement| {
                statement
                    .query_row([&self.resource], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .optional()
            })
            .map_err(|error| self.failed("read", error))
    }

    fn raise_pass(&self, transaction: &Transaction<'_>, shown: &Shown<'_>) -> Result<(), Error> {
        let pass = &shown.pass;
        let raised = transaction
            .prepare_cached(RAISE)
            .and_then(|mut statement| {
                statement.execute((
                    &self.resource,
                    pass.token.get().cast_signed(),
                    pass.holder.to_string(),
                    pass.name.as_str(),
                ))
            })
            .map_err(|error| self.failed("raise", error))?;
        if raised == 1 {
            return Ok(());
        }
        let row = self.columns(transaction)?;
        Err(row::refusal(&self.resource, shown, row))
    }

    fn failed(&self, action: &str, error: ::rusqlite::Error) -> Error {
        if codes::sqlite::extended_code(&error) == Some(SQLITE_BUSY_SNAPSHOT) {
            let text = format!(
                "{action} failed: the transaction read outdated data; raise the fence first resource={:?}",
                self.resource
            );
            return Error::invalid(text).with_source(error);
        }
        if codes::sqlite::is_busy(&error) {
            return Blocked::error(&self.resource);
        }
        let (kind, why) = codes::sqlite::meaning(&error);
        let text = format!("{action} failed: {why} resource={:?}", self.resource);
        Error::new(kind, text).with_source(error)
    }
}

/// Runs a check, and counts it by its outcome.
fn checked<T>(shown: &Shown<'_>, check: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let began_at = Monotonic.now();
    let checked = check();
    shown.count(FenceKind::Rusqlite, began_at, &checked);
    checked
}
