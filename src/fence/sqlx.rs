//! The fence in Postgres, for `sqlx`: a row beside the user's own rows, raised as the first statement of the user's own
//! transaction.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let lease = leasehold::Client::open("redis://localhost").await?.acquire("nightly").await?;
//! use leasehold::fence::sqlx::Fence;
//!
//! let pool = sqlx::PgPool::connect("postgres://localhost/ledger").await?;
//! let fence = Fence::new("ledger")?;
//! fence.create_table(&pool).await?; // once
//!
//! let mut transaction = fence.begin(&pool, &lease).await?; // a lease, or a pass
//! sqlx::query("UPDATE ledger SET total = total + 1").execute(&mut *transaction).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! 1. No transaction begins under a pass that storage knows to be superseded, and while one is open no successor can
//!    raise: its raise waits for the end, and reads what was committed.
//! 2. A raise that waits longer than the lock timeout ends as [`Blocked`](super::Blocked). A holder that is paused inside a transaction
//!    keeps its successor waiting for as long; then an operator, or `idle_in_transaction_session_timeout`, ends it.
//! 3. A raise that is not the first statement of its transaction is refused: what was read before it may be outdated.
//!
//! # Assumptions
//! The server keeps what it acknowledged: `synchronous_commit` on, and no failover to a replica that missed the raise.
//! Data and fence are in one database; reads after the raise go to the primary. The lock timeout holds for the whole
//! transaction: later statements of the user's that wait longer for a lock fail too.
//! Take all leases first, then begin: a task that waits for a lease should hold no row that the lease's holder waits for.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `TimedOut` with [`Blocked`](super::Blocked). After `Unavailable` the
//! transaction may be repeated as a whole, from its raise: that is also the answer to a serialization failure. Where
//! the answer to a commit was lost, look at [`row`](Fence::row) and at what was to be written.
//!
//! # Cancel safety
//! Dropped futures and transactions roll back, except a commit, which may or may not have been carried out. sqlx 0.9.0
//! itself leaves a transaction open on the pooled connection where the future of its own `begin` is dropped; the fence's
//! [`begin`](Fence::begin) does not, and a [`raise`](Fence::raise) in such a transaction is refused as not the first.

use std::time::Duration;

use ::sqlx::{
    AssertSqlSafe, Error as DriverError, Executor, PgConnection, PgPool, Postgres, Transaction,
    query, query_as, raw_sql,
};

use super::postgres::{self, CREATE, RAISE, ROW};
use super::{Bearer, Pass};
use crate::error::Error;

/// The fence around one resource in a Postgres database. The [module](self) says what it promises.
#[derive(Debug, Clone)]
pub struct Fence(postgres::Fence);

impl Fence {
    /// The fence around this resource: whatever text names what the lease protects.
    ///
    /// # Errors
    /// `Invalid` for a text that breaks the rule of names.
    pub fn new(resource: impl Into<String>) -> Result<Self, Error> {
        postgres::Fence::new(resource.into()).map(Self)
    }

    /// The same fence with another limit for a raise that waits for an older write to end; 2 s where none is given.
    ///
    /// # Errors
    /// `Invalid` for less than a millisecond or more than a day.
    pub fn with_lock_timeout(self, limit: Duration) -> Result<Self, Error> {
        self.0.with_lock_timeout(limit).map(Self)
    }

    /// Makes the table `leasehold_fence` unless it is there. Fences of other resources share it.
    ///
    /// # Errors
    /// As the [module](self) says.
    ///
    /// # Cancel safety
    /// Repeat it.
    pub async fn create_table(
        &self,
        executor: impl Executor<'_, Database = Postgres>,
    ) -> Result<(), Error> {
        let created = raw_sql(CREATE).execute(executor).await;
        created
            .map(drop)
            .map_err(|error| self.failed("create table", error))
    }

    /// Begins a transaction with the fence raised: everything in it is written under the bearer's pass.
    ///
    /// # Errors
    /// As the [module](self) says; `Lost` where a lease knows itself that its time is up.
    ///
    /// # Cancel safety
    /// Dropped, it rolls back.
    pub async fn begin(
        &self,
        pool: &PgPool,
        bearer: &dyn Bearer,
    ) -> Result<Transaction<'static, Postgres>, Error> {
        let pass = bearer.pass()?;
        // One round trip for both: nothing comes between the begin and what has to come first.
        let opening = format!("BEGIN; {}", self.0.set_lock_timeout());
        // In a task of its own, which is never dropped: sqlx 0.9.0 forgets a begin that is dropped before its answer, and the
        // pool hands the connection to the next user inside that transaction.
        let pool = pool.clone();
        let begun = tokio::spawn(async move { pool.begin_with(AssertSqlSafe(opening)).await });
        let begun = begun.await.unwrap_or(Err(DriverError::WorkerCrashed));
        let mut transaction = begun.map_err(|error| self.failed("begin", error))?;
        self.raise_pass(&mut transaction, bearer, &pass).await?;
        Ok(transaction)
    }

    /// Raises the fence as the first statement of a transaction of the user's.
    ///
    /// # Errors
    /// As the [module](self) says; `Lost` where a lease knows itself that its time is up. Roll the transaction back.
    ///
    /// # Cancel safety
    /// Dropped, the transaction has to be rolled back: it may or may not have raised the fence.
    pub async fn raise(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        let prologue = self.0.prologue();
        self.raise_after(prologue, transaction, bearer).await
    }

    /// Raises a further fence in a transaction that began with a raise and has read nothing yet. Every writer has to
    /// raise several fences in one order, such as that of their resources' text.
    ///
    /// # Errors
    /// As [`raise`](Self::raise).
    ///
    /// # Cancel safety
    /// As [`raise`](Self::raise).
    pub async fn raise_also(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        let setting = self.0.set_lock_timeout();
        self.raise_after(setting, transaction, bearer).await
    }

    /// The pass that storage knows, if any: what to look at where the answer to a commit was lost.
    ///
    /// # Errors
    /// As the [module](self) says.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn row(
        &self,
        executor: impl Executor<'_, Database = Postgres>,
    ) -> Result<Option<Pass>, Error> {
        let row = self.read(executor).await?;
        row.map(|row| self.0.pass(row)).transpose()
    }

    async fn raise_after(
        &self,
        prologue: String,
        connection: &mut PgConnection,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        let pass = bearer.pass()?;
        let ready = raw_sql(AssertSqlSafe(prologue))
            .execute(&mut *connection)
            .await;
        ready.map_err(|error| self.failed("raise", error))?;
        self.raise_pass(connection, bearer, &pass).await
    }

    async fn raise_pass(
        &self,
        connection: &mut PgConnection,
        bearer: &dyn Bearer,
        pass: &Pass,
    ) -> Result<(), Error> {
        let raised = query(RAISE)
            .bind(&self.0.resource)
            .bind(pass.token.get().cast_signed())
            .bind(pass.holder.to_string())
            .bind(pass.name.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| self.failed("raise", error))?;
        if raised.rows_affected() == 1 {
            return Ok(());
        }
        let row = self.read(connection).await?;
        Err(self.0.refused(bearer, pass, row))
    }

    async fn read(
        &self,
        executor: impl Executor<'_, Database = Postgres>,
    ) -> Result<Option<postgres::Row>, Error> {
        let row = query_as(ROW)
            .bind(&self.0.resource)
            .fetch_optional(executor)
            .await;
        row.map_err(|error| self.failed("read", error))
    }

    fn failed(&self, action: &str, error: DriverError) -> Error {
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        self.0.failed(action, code.as_deref(), error)
    }
}
