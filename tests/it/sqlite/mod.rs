//! The embedded store: what several processes, kernels that look like two, and broken files do to it.

pub(crate) mod bells;
mod boots;
mod busy;
mod child;
mod files;
mod power_cut;
mod processes;
mod queue;
mod schemas;
pub(crate) mod surroundings;

use std::path::Path;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Store;
use leasehold::store::sqlite::Sqlite;
use leasehold::{Error, Name};

use crate::harness::asking::{Asking, asked, claim, granted, held, queued};
use crate::harness::times::{LIMIT, LONG};

async fn open(path: &Path) -> Sqlite {
    Sqlite::open(path).await.expect("the file opens")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

async fn refused_file(path: &Path) -> Error {
    match Sqlite::open(path).await {
        Err(error) => error,
        Ok(store) => panic!("expected {} to be refused", store.location()),
    }
}

async fn pass_time(time: Duration) {
    Monotonic.sleep_until(Monotonic.now().after(time)).await;
}

/// SQLite's own view of the file, beside the store.
fn raw(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).expect("SQLite opens the file")
}

fn integrity(path: &Path) -> String {
    let check = raw(path).query_row("PRAGMA integrity_check", (), |row| row.get(0));
    check.expect("SQLite checks the file")
}
