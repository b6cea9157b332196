//! The fence in SQLite: a row beside the user's own rows, raised as the first statement of the user's own transaction.
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
//! 1. A transaction that began under a pass which storage then knows to be superseded commits nothing: it cannot have
//!    begun. While it is open no successor can raise; SQLite has one writer at a time.
//! 2. What a successor reads after its raise is what its predecessors left: nothing of theirs lands later.
//!
//! # Assumptions
//! The data lives in the same file as the fence, or in one attached to the same connection. With `synchronous = OFF` a
//! power cut may tear file and fence alike. The file is on a local disk. Keep it apart from the file that stores the
//! leases: a writer that is paused inside its transaction would keep every renewal of the machine waiting.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `TimedOut` with [`Blocked`] where another connection kept the file busy
//! for longer than this connection's `busy_timeout`; `Invalid` where the transaction read before its raise, and what it
//! read is outdated; `Misconfigured` where the table is missing or the file cannot be written.
//!
//! # Cancel safety
//! Nothing here is async: call it from a thread that may block. A [`Transaction`] that is dropped rolls back.

use ::rusqlite::ffi::SQLITE_BUSY_SNAPSHOT;
use ::rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};

use super::{Bearer, Blocked, Pass, checked_resource, judge, refused};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::token::Token;

const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS leasehold_fence (
        resource TEXT NOT NULL PRIMARY KEY,
        token INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
        holder TEXT NOT NULL,
        name TEXT NOT NULL
    ) STRICT, WITHOUT ROWID";

/// Writes also where the pass is the row already. So the transaction holds SQLite's write lock from here on, and what it
/// reads next is the newest there is, also where the user began it `DEFERRED`.
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

/// The fence around one resource in SQLite files. The [module](self) says what it promises.
#[derive(Debug, Clone)]
pub struct Fence {
    resource: String,
}

impl Fence {
    /// The fence around this resource: whatever text names what the lease protects.
    ///
    /// # Errors
    /// `Invalid` for a text that breaks the rule of names.
    pub fn new(resource: impl Into<String>) -> Result<Self, Error> {
        let resource = resource.into();
        checked_resource(&resource)?;
        Ok(Self { resource })
    }

    /// Makes the table `leasehold_fence` unless it is there. Fences of other resources share it.
    ///
    /// # Errors
    /// As the [module](self) says.
    pub fn create_table(&self, connection: &Connection) -> Result<(), Error> {
        connection
            .execute(CREATE, [])
            .map(drop)
            .map_err(|error| self.failed("create table", error))
    }

    /// Begins an immediate transaction with the fence raised: everything in it is written under the bearer's pass.
    ///
    /// # Errors
    /// As the [module](self) says; `Lost` where a lease knows itself that its time is up.
    pub fn begin<'c>(
        &self,
        connection: &'c mut Connection,
        bearer: &dyn Bearer,
    ) -> Result<Transaction<'c>, Error> {
        let pass = bearer.pass()?;
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| self.failed("raise", error))?;
        self.raise_pass(&transaction, bearer, &pass)?;
        Ok(transaction)
    }

    /// Raises the fence inside a transaction of the user's. Call it first: what was read before it may be outdated.
    /// Several resources are raised one after the other, in sorted order in every writer.
    ///
    /// # Errors
    /// As the [module](self) says; `Lost` where a lease knows itself that its time is up. Roll the transaction back.
    pub fn raise(&self, transaction: &Transaction<'_>, bearer: &dyn Bearer) -> Result<(), Error> {
        self.raise_pass(transaction, bearer, &bearer.pass()?)
    }

    /// The pass that storage knows, if any: what to look at where the answer to a raise was lost.
    ///
    /// # Errors
    /// As the [module](self) says.
    pub fn row(&self, connection: &Connection) -> Result<Option<Pass>, Error> {
        let row = connection
            .prepare_cached(ROW)
            .and_then(|mut statement| {
                statement
                    .query_row([&self.resource], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .optional()
            })
            .map_err(|error| self.failed("read", error))?;
        row.map(|row| self.pass(row)).transpose()
    }

    fn raise_pass(
        &self,
        transaction: &Transaction<'_>,
        bearer: &dyn Bearer,
        pass: &Pass,
    ) -> Result<(), Error> {
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
        let stored = self.row(transaction)?;
        match judge(stored.as_ref(), pass) {
            Err(refusal) => Err(refused(bearer, &self.resource, pass, refusal)),
            Ok(_) => Err(self.damaged("it admits the pass now and did not a moment ago")),
        }
    }

    fn pass(&self, (token, holder, name): (i64, String, String)) -> Result<Pass, Error> {
        let token = Token::new(token.cast_unsigned()).map_err(|error| self.damaged(error))?;
        let holder = holder.parse().map_err(|error| self.damaged(error))?;
        let name = Name::new(name).map_err(|error| self.damaged(error))?;
        Ok(Pass::new(name, holder, token))
    }

    fn damaged(&self, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::new(
            ErrorKind::Misconfigured,
            format!(
                "raise failed: the fence's row is damaged resource={:?}",
                self.resource
            ),
        )
        .with_source(what)
    }

    fn failed(&self, action: &str, error: ::rusqlite::Error) -> Error {
        let code = error.sqlite_error().map(|error| error.extended_code);
        if code == Some(SQLITE_BUSY_SNAPSHOT) {
            let text = format!(
                "{action} failed: what this transaction has read is outdated, raise first resource={:?}",
                self.resource
            );
            return Error::invalid(text).with_source(error);
        }
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                return Blocked::error(&self.resource);
            }
            Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
                ErrorKind::Denied
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => ErrorKind::Unavailable,
            Some(ErrorCode::OperationInterrupted) => ErrorKind::TimedOut,
            _ => ErrorKind::Misconfigured,
        };
        Error::new(
            kind,
            format!("{action} failed resource={:?}", self.resource),
        )
        .with_source(error)
    }
}
