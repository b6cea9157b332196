//! The fence in the user's own transaction.

use std::time::Duration;

use leasehold::fence::mysql_async::Fence;
use leasehold::fence::mysql_async::mysql_async::Conn;
use leasehold::fence::mysql_async::mysql_async::prelude::Queryable as _;
use leasehold::fence::{Blocked, Pass, Refusal};
use leasehold::{Error, ErrorKind};

use crate::fence::{Guard, keeps_the_contract, pass, repeated};
use crate::harness::mysql_server::MysqlServer;

/// A database with a register for each resource.
#[derive(Debug)]
struct Registers {
    url: String,
}

fn fence(resource: &str) -> Fence {
    Fence::new(resource).expect("a valid resource")
}

async fn connect(url: &str) -> Conn {
    Conn::from_url(url).await.expect("it is up")
}

impl Registers {
    async fn new() -> Self {
        let server = MysqlServer::shared().await;
        let url = server.url_as("root", &server.database().await);
        let mut connection = connect(&url).await;
        let made = fence("any").create_table(&mut connection).await;
        made.expect("made");
        let sql = "CREATE TABLE register (resource VARBINARY(512) PRIMARY KEY, value BLOB)";
        connection.query_drop(sql).await.expect("made");
        Self { url }
    }

    /// One attempt; the user's part of what a deadlock asks for is `repeated`.
    async fn attempt(&self, resource: &str, pass: &Pass, value: Option<&str>) -> Result<(), Error> {
        let mut connection = connect(&self.url).await;
        let mut transaction = fence(resource).begin(&mut connection, pass).await?;
        if let Some(value) = value {
            let sql = "REPLACE INTO register VALUES (?, ?)";
            let done = transaction.exec_drop(sql, (resource, value)).await;
            done.expect("written");
        }
        transaction.commit().await.expect("committed");
        Ok(())
    }
}

impl Guard for Registers {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        let pass = Pass::required(shown)?;
        repeated(|| self.attempt(resource, pass, None)).await
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        let pass = Pass::required(shown)?;
        repeated(|| self.attempt(resource, pass, Some(value))).await
    }

    async fn read(&self, resource: &str) -> Option<String> {
        let sql = "SELECT value FROM register WHERE resource = ?";
        let value = connect(&self.url).await.exec_first(sql, (resource,)).await;
        value.expect("read")
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        let mut connection = connect(&self.url).await;
        fence(resource).row(&mut connection).await.expect("read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_async_keeps_the_contract() {
    keeps_the_contract(Registers::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_behind_a_paused_transaction_is_blocked_and_typed_and_its_refusal_keeps_no_lock() {
    let registers = Registers::new().await;
    let [mut paused, mut successor] =
        [connect(&registers.url).await, connect(&registers.url).await];
    let open = fence("a").begin(&mut paused, &pass(1, 1)).await;
    let mut open = open.expect("raised");
    let second = Duration::from_secs(1);
    assert!(fence("a").with_lock_timeout(second / 2).is_err());
    let impatient = fence("a").with_lock_timeout(second).expect("valid");
    let blocked = impatient.begin(&mut successor, &pass(2, 2)).await;
    let error = blocked.expect_err("blocked");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
    assert!(Blocked::of(&error).is_some(), "{error:?}");
    let late = open
        .query_drop("INSERT INTO register VALUES ('a', 'late but first')")
        .await;
    late.expect("written");
    open.commit().await.expect("committed");
    let raised = impatient.begin(&mut successor, &pass(2, 2)).await;
    let seen: Option<String> = {
        let mut raised = raised.expect("raised");
        let seen = raised.query_first("SELECT value FROM register").await;
        raised.commit().await.expect("committed");
        seen.expect("read")
    };
    assert_eq!(seen.as_deref(), Some("late but first"));
    let stale = fence("a").begin(&mut paused, &pass(1, 1)).await;
    let error = stale.expect_err("stale");
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(Refusal::of(&error).is_some(), "{error:?}");
    // The connection that was refused is not in a transaction that has the row locked.
    let again = impatient.begin(&mut successor, &pass(2, 2)).await;
    again.expect("raised").commit().await.expect("committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_missing_is_named() {
    let server = MysqlServer::shared().await;
    let url = server.url_as("root", &server.database().await);
    let begun = fence("a")
        .begin(&mut connect(&url).await, &pass(1, 1))
        .await
        .err();
    let error = begun.expect("there is no table");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error.to_string().contains("create_table makes it"),
        "{error}"
    );
}
