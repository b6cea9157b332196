//! The fence in Postgres, for `tokio-postgres` and the pools built on it: a row among the user's own rows, raised as
//! the first statement of the user's own transaction.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let lease = leasehold::Client::open("redis://localhost").await?.acquire("nightly").await?;
//! use leasehold::fence::tokio_postgres::Fence;
//! use tokio_postgres::NoTls;
//!
//! let (mut client, connection) = tokio_postgres::connect("host=localhost dbname=ledger", NoTls).await?;
//! tokio::spawn(connection);
//! let fence = Fence::new("ledger")?;
//! fence.create_table(&client).await?; // once
//!
//! let transaction = fence.begin(&mut client, &lease).await?; // a lease, or a pass
//! transaction.execute("UPDATE ledger SET total = total + 1", &[]).await?;
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
//! Dropped futures and transactions roll back, except a commit, whose outcome is then unknown.

use ::tokio_postgres::types::{ToSql, Type};
use ::tokio_postgres::{Client, GenericClient, Transaction};

use super::postgres;
use super::{Bearer, Pass, Shown, row};
use crate::error::Error;
use crate::telemetry::FenceKind;

/// The driver whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use ::tokio_postgres;

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
    pub async fn create_table(&self, client: &impl GenericClient) -> Result<(), Error> {
        let created = client.batch_execute(&self.0.create()).await;
        created.map_err(|error| self.failed("create table", error))
    }

    /// Begins a transaction with the fence raised: all statements in it are written under the bearer's pass.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// Dropping the future rolls the transaction back.
    pub async fn begin<'c>(
        &self,
        client: &'c mut Client,
        bearer: &dyn Bearer,
    ) -> Result<Transaction<'c>, Error> {
        let shown = Shown::of(bearer)?;
        let begun = client.transaction().await;
        let transaction = begun.map_err(|error| self.failed("begin", error))?;
        self.raise_after(self.0.prologue(), &transaction, &shown)
            .await?;
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
        transaction: &Transaction<'_>,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        self.raise_after(self.0.prologue(), transaction, &Shown::of(bearer)?)
            .await
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
        transaction: &Transaction<'_>,
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        let setting = self.0.prologue_of_further();
        self.raise_after(setting, transaction, &Shown::of(bearer)?)
            .await
    }

    /// Returns the pass that storage has, if any. Read it when the reply to a commit was lost.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn row(&self, client: &impl GenericClient) -> Result<Option<Pass>, Error> {
        let row = self.read(client).await?;
        row::pass(&self.0.resource, row)
    }

    async fn raise_after(
        &self,
        prologue: String,
        transaction: &Transaction<'_>,
        shown: &Shown<'_>,
    ) -> Result<(), Error> {
        let pass = &shown.pass;
        let (token, holder) = (pass.token.get().cast_signed(), pass.holder.to_string());
        let name = pass.name.as_str();
        let arguments: [(&(dyn ToSql + Sync), Type); 4] = [
            (&self.0.resource, Type::TEXT),
            (&token, Type::INT8),
            (&holder, Type::TEXT),
            (&name, Type::TEXT),
        ];
        let statement = self.0.raise();
        let raise = async {
            // Both statements are sent before either is answered: one round trip.
            let (ready, raised) = tokio::join!(
                biased;
                transaction.batch_execute(&prologue),
                transaction.execute_typed(&statement, &arguments),
            );
            let raised = ready.and(raised).map_err(|error| {
                let answer = error.as_db_error().cloned();
                let answer = answer
                    .as_ref()
                    .map(|answer| (answer.code().code(), answer.message()));
                self.0.raise_failed(shown, answer, error)
            });
            self.0.written(raised?)
        };
        shown.checked(FenceKind::TokioPostgres, raise).await
    }

    async fn read(&self, client: &impl GenericClient) -> Result<Option<row::Columns>, Error> {
        let row = client
            .query_typed_opt(&self.0.row(), &[(&self.0.resource, Type::TEXT)])
            .await
            .and_then(|row| {
                row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
                    .transpose()
            });
        row.map_err(|error| self.failed("read", error))
    }

    fn failed(&self, action: &str, error: ::tokio_postgres::Error) -> Error {
        let code = error.code().map(|code| code.code().to_owned());
        self.0.failed(action, code.as_deref(), error)
    }
}
