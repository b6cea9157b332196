//! Through `sqlx`.

use std::time::Duration;

use leasehold::fence::sqlx::Fence;
use leasehold::fence::{Blocked, Pass, Refusal};
use leasehold::{Error, ErrorKind};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor, PgPool, Postgres};

use crate::fence::{Guard, keeps_the_contract, pass, pass_for};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::wait::until;

#[derive(Debug)]
struct Registers(PgPool);

fn fence(resource: &str) -> Fence {
    Fence::new(resource).expect("a valid resource")
}

async fn register_pool() -> PgPool {
    let database = PostgresServer::database().await;
    let pool = PgPoolOptions::new()
        .max_connections(6)
        .connect(&database.url())
        .await
        .expect("it answers");
    fence("any").create_table(&pool).await.expect("made");
    pool.execute("CREATE TABLE register (resource TEXT PRIMARY KEY, value TEXT)")
        .await
        .expect("made");
    pool
}

async fn set(executor: impl Executor<'_, Database = Postgres>, resource: &str, value: &str) {
    const SET: &str = "
        INSERT INTO register VALUES ($1, $2)
        ON CONFLICT (resource) DO UPDATE SET value = excluded.value";
    let set = sqlx::query(SET).bind(resource).bind(value);
    set.execute(executor).await.expect("written");
}

async fn get(executor: impl Executor<'_, Database = Postgres>, resource: &str) -> Option<String> {
    sqlx::query_scalar("SELECT value FROM register WHERE resource = $1")
        .bind(resource)
        .fetch_optional(executor)
        .await
        .expect("read")
}

impl Guard for Registers {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        let transaction = fence(resource)
            .begin(&self.0, Pass::required(shown)?)
            .await?;
        transaction.commit().await.expect("committed");
        Ok(())
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        let mut transaction = fence(resource)
            .begin(&self.0, Pass::required(shown)?)
            .await?;
        set(&mut *transaction, resource, value).await;
        transaction.commit().await.expect("committed");
        Ok(())
    }

    async fn read(&self, resource: &str) -> Option<String> {
        get(&self.0, resource).await
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        fence(resource).row(&self.0).await.expect("read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_keeps_the_contract() {
    keeps_the_contract(Registers(register_pool().await)).await;
}

#[tokio::test]
async fn a_raise_behind_a_paused_transaction_is_blocked_and_typed() {
    let pool = register_pool().await;
    let mut open = fence("a").begin(&pool, &pass(1, 1)).await.expect("raised");
    let impatient = fence("a")
        .with_lock_timeout(Duration::from_millis(50))
        .expect("valid");
    let error = impatient
        .begin(&pool, &pass(2, 2))
        .await
        .expect_err("blocked");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
    assert!(Blocked::of(&error).is_some(), "{error:?}");
    set(&mut *open, "a", "late but first").await;
    open.commit().await.expect("committed");
    let mut raised = impatient.begin(&pool, &pass(2, 2)).await.expect("raised");
    assert_eq!(
        get(&mut *raised, "a").await.as_deref(),
        Some("late but first")
    );
    raised.commit().await.expect("committed");
    let error = fence("a")
        .begin(&pool, &pass(1, 1))
        .await
        .expect_err("refused");
    let stored = pass(2, 2).token;
    assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored }));
}

#[tokio::test]
async fn a_read_before_the_raise_is_refused() {
    let pool = register_pool().await;
    let mut transaction = pool.begin().await.expect("begun");
    assert_eq!(get(&mut *transaction, "a").await, None);
    let error = fence("a")
        .raise(&mut transaction, &pass(1, 1))
        .await
        .expect_err("too late");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    drop(transaction);
    assert_eq!(fence("a").row(&pool).await.expect("read"), None);
}

#[tokio::test]
async fn several_fences_are_raised_in_one_transaction() {
    let pool = register_pool().await;
    let mut transaction = fence("a").begin(&pool, &pass(1, 1)).await.expect("raised");
    let other = pass_for("weekly", 2, 9);
    fence("b")
        .raise_also(&mut transaction, &other)
        .await
        .expect("raised");
    transaction.commit().await.expect("committed");
    assert_eq!(fence("a").row(&pool).await.expect("read"), Some(pass(1, 1)));
    assert_eq!(fence("b").row(&pool).await.expect("read"), Some(other));
}

#[tokio::test]
async fn a_dropped_transaction_leaves_no_raise() {
    let pool = register_pool().await;
    let mut transaction = fence("a").begin(&pool, &pass(1, 1)).await.expect("raised");
    set(&mut *transaction, "a", "dropped").await;
    drop(transaction);
    assert_eq!(fence("a").row(&pool).await.expect("read"), None);
    assert_eq!(get(&pool, "a").await, None);
}

#[tokio::test]
async fn a_begin_that_is_dropped_leaves_no_transaction_behind() {
    let pool = register_pool().await;
    for _ in 0..20 {
        let (fence, pass) = (fence("a"), pass(1, 1));
        let mut begin = Box::pin(fence.begin(&pool, &pass));
        // Polled until the request has left, then dropped.
        let _unheard = tokio::time::timeout(Duration::ZERO, &mut begin).await;
    }
    until("the transactions to end", async || {
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
        )
        .fetch_one(&pool)
        .await
        .expect("read");
        (open == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_raise_in_a_transaction_of_the_users_own_is_committed_with_it() {
    let pool = register_pool().await;
    let mut transaction = pool.begin().await.expect("begun");
    fence("a")
        .raise(&mut transaction, &pass(1, 1))
        .await
        .expect("raised");
    transaction.commit().await.expect("committed");
    assert_eq!(fence("a").row(&pool).await.expect("read"), Some(pass(1, 1)));
}

#[tokio::test]
async fn a_transaction_whose_raise_was_refused_commits_nothing() {
    let pool = register_pool().await;
    let raised = fence("a").begin(&pool, &pass(2, 2)).await.expect("raised");
    raised.commit().await.expect("committed");
    let mut transaction = pool.begin().await.expect("begun");
    let error = fence("a").raise(&mut transaction, &pass(1, 1)).await;
    let stored = pass(2, 2).token;
    let error = error.expect_err("refused");
    assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored }));
    let write = "INSERT INTO register VALUES ('a', 'stale')";
    transaction
        .execute(write)
        .await
        .expect_err("the transaction has failed");
    let _ = transaction.commit().await;
    assert_eq!(get(&pool, "a").await, None);
}
