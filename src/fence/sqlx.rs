//! The fence in Postgres, for `sqlx`: a row among the user's own rows, raised as the first statement of the user's own
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
//! 1. No transaction begins under a pass that storage has seen superseded. While one is open no other holder can raise
//!    the fence: its raise waits for the end of the transaction, and then reads what was committed.
//! 2. A raise that waits for longer than the lock timeout fails with [`Blocked`](super::Blocked). A holder that is
//!    paused inside a transaction makes its successor wait for that long, until an operator or
//!    `idle_in_transaction_session_timeout` ends the transaction.
//! 3. A raise that is not the first statement of its transaction fails: what was read before it may be outdated.
//! 4. A raise that is refused is an error in SQL: the server commits nothing of a transaction whose raise failed.
//!
//! # Assumptions
//! All sessions find the same table: the search path leads to one `leasehold_fence` alone, or the fence names its
//! schema ([`in_schema`](Fence::in_schema)), which no session of the role can hide behind another table.
//! The server keeps what it acknowledged: `synchronous_commit` is on, and there is no failover to a replica that missed
//! the raise. Data and fence are in one database; reads after the raise go to the primary. The lock timeout holds for
//! the whole transaction: later statements that wait longer for a lock fail too. Acquire all leases first, then begin:
//! a task that waits for a lease must not hold a row that the lease's holder waits for.
//!
//! No `ROLLBACK TO` a savepoint from before a further raise ([`raise_also`](Fence::raise_also)): it takes back that
//! raise, or the failure of a refused one, and the transaction can go on without this fence. The first raise cannot be
//! taken back alone: it is refused inside a savepoint, and the savepoints after it leave it as it is.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `TimedOut` with [`Blocked`](super::Blocked). After `Unavailable`, such
//! as a serialization failure, retry the transaction as a whole, from its raise. If the reply to a commit was lost,
//! read [`row`](Fence::row) and what was to be written.
//!
//! # Cancel safety
//! Dropped futures and transactions roll back, except a commit, whose outcome is then unknown. sqlx 0.9.0 itself leaves
//! a transaction open on the pooled connection when the future of its own `begin` is dropped. The fence's
//! [`begin`](Fence::begin) does not, and a [`raise`](Fence::raise) in such a transaction fails because it is not the
//! first statement.

use ::sqlx::{
    AssertSqlSafe, Executor, PgConnection, PgPool, Postgres, Transaction, query, query_as, raw_sql,
};

use super::postgres;
use super::{Bearer, Pass, Shown, row};
use crate::error::Error;
use crate::telemetry::FenceKind;

/// The driver whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use ::sqlx;

/// The fence for one resource in a Postgres database. The [module](self) has its guarantees.
#[derive(Debug, Clone)]
pub struct Fence(postgres::Fence);

impl Fence {
    postgres::settings!();

    /// Makes the table `leasehold_fence` if it is missing. The fences of all resources share it.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown. The call is idempotent: repeat it.
    pub async fn create_table(
        &self,
        executor: impl Executor<'_, Database = Postgres>,
    ) -> Result<(), Error> {
        let created = raw_sql(AssertSqlSafe(self.0.create().into_owned()))
            .execute(executor)
            .await;
        created
            .map(drop)
            .map_err(|error| self.failed("create table", error))
    }

    /// Begins a transaction with the fence raised: all statements in it are written under the bearer's pass.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// Dropping the future rolls the transaction back.
    pub async fn begin(
        &self,
        pool: &PgPool,
        bearer: &dyn Bearer,
    ) -> Result<Transaction<'static, Postgres>, Error> {
        let shown = Shown::of(bearer)?;
        // One round trip for both: nothing comes between the begin and the statement that must be first.
        let opening = format!("BEGIN; {}", self.0.prologue_of_further());
        // In a task of its own, which is never dropped: sqlx 0.9.0 forgets a begin that is dropped before its reply,
        // and the pool gives the connection to the next user inside that transaction.
        let pool = pool.clone();
        let begun = tokio::spawn(async move { pool.begin_with(AssertSqlSafe(opening)).await });
        let begun = begun.await.unwrap_or(Err(::sqlx::Error::WorkerCrashed));
        let mut transaction = begun.map_err(|error| self.failed("begin", error))?;
        let raise = self.raise_pass(&mut transaction, &shown);
        shown.checked(FenceKind::Sqlx, raise).await?;
        Ok(transaction)
    }

    /// Raises the fence as the first statement of a transaction of the caller's.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed. Roll the transaction back after an error.
    ///
    /// # Cancel safety
    /// After the future was dropped, roll the transaction back: whether the fence was raised is unknown.
    pub async fn raise(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        let prologue = self.0.prologue();
        self.raise_after(prologue, transaction, bearer).await
    }

    /// Raises a further fence in a transaction that began with a raise and has read nothing since. Every writer must
    /// raise several fences in the same order, such as the order of their resources.
    ///
    /// # Errors
    /// The same as those of [`raise`](Self::raise).
    ///
    /// # Cancel safety
    /// The same as for [`raise`](Self::raise).
    pub async fn raise_also(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        let setting = self.0.prologue_of_further();
        self.raise_after(setting, transaction, bearer).await
    }

    /// Returns the pass that storage has, if any. Read it when the reply to a commit was lost.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn row(
        &self,
        executor: impl Executor<'_, Database = Postgres>,
    ) -> Result<Option<Pass>, Error> {
        let row = self.read(executor).await?;
        row::pass(&self.0.resource, row)
    }

    async fn raise_after(
        &self,
        prologue: String,
        connection: &mut PgConnection,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        let shown = Shown::of(bearer)?;
        let raise = async {
            let ready = raw_sql(AssertSqlSafe(prologue))
                .execute(&mut *connection)
                .await;
            ready.map_err(|error| self.failed("raise", error))?;
            self.raise_pass(connection, &shown).await
        };
        shown.checked(FenceKind::Sqlx, raise).await
    }

    async fn raise_pass(
        &self,
        connection: &mut PgConnection,
        shown: &Shown<'_>,
    ) -> Result<(), Error> {
        let pass = &shown.pass;
        let raised = query(AssertSqlSafe(self.0.raise().into_owned()))
            .bind(&self.0.resource)
            .bind(pass.token.get().cast_signed())
            .bind(pass.holder.to_string())
            .bind(pass.name.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| {
                let answer = error.as_database_error().map(|answer| {
                    let code = answer.code().unwrap_or_default();
                    (code.into_owned(), answer.message().to_owned())
                });
                let answer = answer.as_ref().map(|(code, text)| (&**code, &**text));
                self.0.raise_failed(shown, answer, error)
            })?;
        self.0.written(raised.rows_affected())
    }

    async fn read(
        &self,
        executor: impl Executor<'_, Database = Postgres>,
    ) -> Result<Option<row::Columns>, Error> {
        let row = query_as(AssertSqlSafe(self.0.row().into_owned()))
            .bind(&self.0.resource)
            .fetch_optional(executor)
            .await;
        row.map_err(|error| self.failed("read", error))
    }

    fn failed(&self, action: &str, error: ::sqlx::Error) -> Error {
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        self.0.failed(action, code.as_deref(), error)
    }
}
