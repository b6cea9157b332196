//! The fence in MySQL and MariaDB, for `mysql_async`: a row among the user's own rows, raised at the begin of a transaction.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let lease = leasehold::Client::open("redis://localhost").await?.acquire("nightly").await?;
//! use leasehold::fence::mysql_async::Fence;
//! use mysql_async::{Conn, prelude::Queryable};
//!
//! let mut connection = Conn::from_url("mysql://jobs:PASSWORD@localhost/ledger").await?;
//! let fence = Fence::new("ledger")?;
//! fence.create_table(&mut connection).await?; // once
//!
//! let mut transaction = fence.begin(&mut connection, &lease).await?; // a lease, or a pass
//! transaction.query_drop("UPDATE ledger SET total = total + 1").await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! 1. No transaction begins under a pass that storage has seen superseded. While one is open no other holder can raise
//!    the fence: its raise waits for the end of the transaction, and then reads what was committed.
//! 2. A raise that waits for longer than the lock timeout fails with [`Blocked`]. A holder that is
//!    paused inside a transaction makes its successor wait for that long, until an operator or `wait_timeout` ends its
//!    connection.
//! 3. There is no transaction without its raise: after a refusal it is rolled back. What was read before it began may be
//!    outdated.
//!
//! # Assumptions
//! The server keeps what it acknowledged: `innodb_flush_log_at_trx_commit` is 1, and there is no failover to a replica
//! that missed the raise. Data and fence are in one database, in tables of InnoDB; reads go to the primary. The lock
//! timeout is that of the session, so it holds for later statements too. Acquire all leases first, then begin: a task that
//! waits for a lease must not hold a row that the lease's holder waits for.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `TimedOut` with [`Blocked`]. After `Unavailable`, such
//! as a deadlock, retry the transaction as a whole. If the reply to a commit was lost, read [`row`](Fence::row) and what
//! was to be written.
//!
//! # Cancel safety
//! Dropped transactions roll back before the next use of their connection. After the future of a call was dropped, drop the
//! connection: the driver does not know what the server answers. The outcome of a commit is unknown then.

use std::time::Duration;

use ::mysql_async::prelude::Queryable;
use ::mysql_async::{Conn, Row, Transaction, TxOpts, from_row_opt};

use super::{Bearer, Blocked, Pass, Shown, checked_resource, row};
use crate::codes::mysql::{LOCKED, meaning};
use crate::error::{Error, ErrorKind};
use crate::telemetry::FenceKind;

/// The driver whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use ::mysql_async;

/// Texts are compared by their bytes, whatever the collation of the database is.
const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS leasehold_fence (
        resource VARBINARY(512) NOT NULL PRIMARY KEY,
        token BIGINT NOT NULL,
        holder VARBINARY(64) NOT NULL,
        name VARBINARY(512) NOT NULL
    ) ENGINE = InnoDB";

/// Locks the row until the end of the transaction, also where there was none: two that lock a gap would both go on.
const LOCK: &str = "
    INSERT INTO leasehold_fence (resource, token, holder, name)
    VALUES (?, 0, '', '')
    ON DUPLICATE KEY UPDATE resource = resource";

const ROW: &str = "
    SELECT token, holder, name
    FROM leasehold_fence
    WHERE resource = ?
    AND token > 0";

const RAISE: &str = "
    UPDATE leasehold_fence
    SET token = ?, holder = ?, name = ?
    WHERE resource = ?";

/// The time for which a raise waits for an older write to end by default. The server counts in seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The fence for one resource in a MySQL or MariaDB database. The [module](self) has its guarantees.
#[derive(Debug, Clone)]
pub struct Fence {
    resource: String,
    lock_timeout: Duration,
}

impl Fence {
    /// Makes the fence for this resource: any text that names what the lease protects.
    ///
    /// # Errors
    /// `Invalid` for a resource that breaks the rule of names.
    pub fn new(resource: impl Into<String>) -> Result<Self, Error> {
        let resource = resource.into();
        checked_resource(&resource)?;
        Ok(Self {
            resource,
            lock_timeout: LOCK_TIMEOUT,
        })
    }

    /// Sets how long a raise waits for an older write to end (default: 2 s).
    ///
    /// # Errors
    /// `Invalid` for a time that is not in whole seconds, or more than a day.
    pub fn with_lock_timeout(mut self, limit: Duration) -> Result<Self, Error> {
        let seconds = Duration::from_secs(limit.as_secs());
        if seconds != limit || !(1..=24 * 60 * 60).contains(&limit.as_secs()) {
            return Err(Error::invalid(format!(
                "lock timeout {limit:?} refused: expected whole seconds, 1s to 24h"
            )));
        }
        self.lock_timeout = limit;
        Ok(self)
    }

    /// Makes the table `leasehold_fence` if it is missing. The fences of all resources share it.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown. The call is idempotent: repeat it.
    pub async fn create_table(&self, connection: &mut impl Queryable) -> Result<(), Error> {
        let created = connection.query_drop(CREATE).await;
        created.map_err(|error| self.failed("create table", error))
    }

    /// Begins a transaction with the fence raised: all statements in it are written under the bearer's pass.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// See the [module](self).
    pub async fn begin<'c>(
        &self,
        connection: &'c mut Conn,
        bearer: &dyn Bearer,
    ) -> Result<Transaction<'c>, Error> {
        let shown = Shown::of(bearer)?;
        let seconds = self.lock_timeout.as_secs();
        let limit = format!("SET SESSION innodb_lock_wait_timeout = {seconds}");
        let begin = async {
            let limited = connection.query_drop(limit).await;
            limited.map_err(|error| self.failed("begin", error))?;
            let begun = connection.start_transaction(TxOpts::default()).await;
            let mut transaction = begun.map_err(|error| self.failed("begin", error))?;
            match self.raise(&mut transaction, &shown).await {
                Ok(()) => Ok(transaction),
                Err(error) => {
                    // Otherwise it would keep its locks until the connection is used again.
                    let _ = transaction.rollback().await;
                    Err(error)
                }
            }
        };
        shown.checked(FenceKind::MysqlAsync, begin).await
    }

    /// Returns the pass that storage has, if any. Read it when the reply to a commit was lost.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// See the [module](self).
    pub async fn row(&self, connection: &mut impl Queryable) -> Result<Option<Pass>, Error> {
        row::pass(&self.resource, self.read(connection, "").await?)
    }

    async fn raise(
        &self,
        transaction: &mut Transaction<'_>,
        shown: &Shown<'_>,
    ) -> Result<(), Error> {
        let failed = |error| self.failed("raise", error);
        let locked = transaction.exec_drop(LOCK, (&self.resource,)).await;
        locked.map_err(failed)?;
        let row = self.read(transaction, " FOR UPDATE").await?;
        shown.judge(&self.resource, row::pass(&self.resource, row)?.as_ref())?;
        let pass = &shown.pass;
        let (token, holder) = (pass.token.get(), pass.holder.to_string());
        let columns = (token, holder, pass.name.as_str(), &self.resource);
        let raised = transaction.exec_drop(RAISE, columns).await;
        raised.map_err(failed)
    }

    async fn read(
        &self,
        connection: &mut impl Queryable,
        lock: &str,
    ) -> Result<Option<row::Columns>, Error> {
        let sql = format!("{ROW}{lock}");
        let read = connection.exec_first(sql, (&self.resource,)).await;
        let row: Option<Row> = read.map_err(|error| self.failed("read", error))?;
        let columns = row.map(from_row_opt).transpose();
        columns.map_err(|error| row::damaged(&self.resource, error))
    }

    fn failed(&self, action: &str, error: ::mysql_async::Error) -> Error {
        let code = match &error {
            ::mysql_async::Error::Server(refusal) => Some(refusal.code),
            _ => None,
        };
        if code == Some(LOCKED) {
            return Blocked::error(&self.resource);
        }
        let kind = match &error {
            ::mysql_async::Error::Server(refusal) => meaning(refusal.code, &refusal.state).0,
            _ => ErrorKind::Unavailable,
        };
        let why = match (code, kind) {
            (None, _) => "the server did not answer",
            (Some(1146), _) => "the table leasehold_fence is missing; create_table makes it",
            (_, ErrorKind::Denied) => "authentication failed or a permission is missing",
            (_, ErrorKind::Unavailable) => {
                "the server cannot carry it out now; retry the whole transaction, from its begin"
            }
            _ => "the server refused the statement",
        };
        let resource = &self.resource;
        let what = format!("{action} failed: {why} resource={resource:?}");
        Error::new(kind, what).with_source(error)
    }
}
