//! The fence in SQLite, on files.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::fence::rusqlite::Fence;
use leasehold::fence::{Blocked, Pass, Refusal};
use leasehold::{Error, ErrorKind};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use tempfile::TempDir;

use super::{Guard, keeps_the_contract, pass};

/// A file with a register for each resource; every call has a connection of its own, as processes have.
#[derive(Debug)]
struct File {
    path: PathBuf,
    _folder: TempDir,
}

impl File {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = Self {
            path: folder.path().join("data.db"),
            _folder: folder,
        };
        let connection = file.connect();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .expect("a local file");
        connection
            .execute(
                "CREATE TABLE register (resource TEXT PRIMARY KEY, value TEXT)",
                [],
            )
            .expect("a fresh file");
        fence("any")
            .create_table(&connection)
            .expect("a fresh file");
        file
    }

    fn connect(&self) -> Connection {
        connection_to(&self.path)
    }
}

fn connection_to(path: &PathBuf) -> Connection {
    let mut connection = Connection::open(path).expect("a local file");
    // SQLite's own waits grow to 100 ms, and so let one of many writers starve.
    connection
        .busy_handler(Some(|tries| {
            std::thread::park_timeout(Duration::from_millis(1));
            tries < 10_000
        }))
        .expect("a valid handler");
    connection
        .pragma_update(None, "synchronous", "normal")
        .expect("known to SQLite");
    connection
}

fn fence(resource: &str) -> Fence {
    Fence::new(resource).expect("a valid resource")
}

fn set(transaction: &Transaction<'_>, resource: &str, value: &str) {
    transaction
        .execute(
            "INSERT OR REPLACE INTO register VALUES (?1, ?2)",
            [resource, value],
        )
        .expect("written");
}

fn get(connection: &Connection, resource: &str) -> Option<String> {
    connection
        .query_row(
            "SELECT value FROM register WHERE resource = ?1",
            [resource],
            |row| row.get(0),
        )
        .optional()
        .expect("read")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

impl Guard for File {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        let (path, resource) = (self.path.clone(), resource.to_owned());
        let pass = Pass::required(shown)?.clone();
        blocking(move || {
            let mut connection = connection_to(&path);
            let transaction = fence(&resource).begin(&mut connection, &pass)?;
            transaction.commit().expect("committed");
            Ok(())
        })
        .await
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        let (path, resource, value) = (self.path.clone(), resource.to_owned(), value.to_owned());
        let pass = Pass::required(shown)?.clone();
        blocking(move || {
            let mut connection = connection_to(&path);
            // A deferred transaction of the user's: the raise is what takes the write lock.
            let transaction = connection.transaction().expect("begun");
            fence(&resource).raise(&transaction, &pass)?;
            set(&transaction, &resource, &value);
            transaction.commit().expect("committed");
            Ok(())
        })
        .await
    }

    async fn read(&self, resource: &str) -> Option<String> {
        get(&self.connect(), resource)
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        fence(resource).row(&self.connect()).expect("read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_the_contract() {
    keeps_the_contract(File::new()).await;
}

#[test]
fn a_transaction_that_is_dropped_leaves_the_row_as_it_was() {
    let file = File::new();
    let mut connection = file.connect();
    let transaction = fence("a")
        .begin(&mut connection, &pass(1, 1))
        .expect("raised");
    set(&transaction, "a", "dropped");
    drop(transaction);
    assert_eq!(fence("a").row(&connection).expect("read"), None);
    assert_eq!(get(&connection, "a"), None);
}

#[test]
fn a_raise_behind_an_open_transaction_is_blocked_and_typed() {
    let file = File::new();
    let mut paused = file.connect();
    let open = fence("a").begin(&mut paused, &pass(1, 1)).expect("raised");
    let mut successor = file.connect();
    successor
        .busy_timeout(Duration::from_millis(50))
        .expect("valid");
    let error = fence("a")
        .begin(&mut successor, &pass(2, 2))
        .expect_err("blocked");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(Blocked::of(&error).is_some(), "{error:?}");
    open.commit().expect("committed");
    let raised = fence("a")
        .begin(&mut successor, &pass(2, 2))
        .expect("raised");
    raised.commit().expect("committed");
    let error = fence("a")
        .begin(&mut paused, &pass(1, 1))
        .expect_err("refused");
    let stored = pass(2, 2).token;
    assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored }));
}

#[test]
fn a_read_before_the_raise_is_found_out_when_it_is_outdated() {
    let file = File::new();
    let mut early = file.connect();
    let transaction = early
        .transaction_with_behavior(TransactionBehavior::Deferred)
        .expect("begun");
    assert_eq!(get(&transaction, "a"), None);
    let mut other = file.connect();
    let rival = fence("a").begin(&mut other, &pass(1, 1)).expect("raised");
    set(&rival, "a", "since");
    rival.commit().expect("committed");
    let error = fence("a")
        .raise(&transaction, &pass(2, 2))
        .expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert!(
        error.to_string().contains("raise the fence first"),
        "{error}"
    );
}

#[test]
fn a_missing_table_is_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut connection = connection_to(&folder.path().join("empty.db"));
    let error = fence("a")
        .begin(&mut connection, &pass(1, 1))
        .expect_err("no table");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    let source = std::error::Error::source(&error).expect("SQLite's own error");
    assert!(source.to_string().contains("leasehold_fence"), "{source}");
}

#[test]
fn a_damaged_row_is_not_taken_for_a_missing_one() {
    let file = File::new();
    let mut connection = file.connect();
    let raised = fence("a")
        .begin(&mut connection, &pass(1, 1))
        .expect("raised");
    raised.commit().expect("committed");
    connection
        .execute("UPDATE leasehold_fence SET holder = 'somebody'", [])
        .expect("written");
    let error = fence("a").row(&connection).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    let error = fence("a")
        .begin(&mut connection, &pass(2, 1))
        .expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
}
