//! The embedded store: what several processes, kernels that look like two, and broken files do to it.

mod boots;
mod busy;
mod child;
mod files;
mod lines;
pub(crate) mod places;
mod power_cut;
mod processes;
mod schemas;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Answer, Ask, Claim, Held, Info, Store};
use leasehold::{Error, Holder, Name, Token};

use crate::harness::asking::{Asking, asked};

/// The limit of each request: long enough that only a test that means to reaches it.
const LIMIT: Duration = Duration::from_secs(5);
/// Long enough that no busy machine lets it run out within a test.
const LONG: Duration = Duration::from_secs(60);

async fn open(path: &Path) -> Sqlite {
    Sqlite::open(path).await.expect("the file opens")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// A claim by a holder of its own.
fn claim(text: &str, ttl: Duration) -> Asking {
    let holder = Holder::draw(leasehold::ClientId::draw()).expect("random bits");
    let info = Info::here(Some("test")).expect("a valid label");
    Asking {
        claim: Claim::new(name(text), holder, ttl, Arc::new(info)),
        ask: Ask::default(),
    }
}

async fn granted(store: &dyn Store, claim: &Asking) -> Token {
    match asked(store, claim, LIMIT).await {
        Ok(Answer::Granted(grant)) => grant.token,
        other => panic!("expected a grant of {}, got {other:?}", claim.name),
    }
}

async fn held(store: &dyn Store, claim: &Asking) -> Held {
    match asked(store, claim, LIMIT).await {
        Ok(Answer::Held(held)) => *held,
        other => panic!("expected {} to be held, got {other:?}", claim.name),
    }
}

async fn refused(path: &Path) -> Error {
    match Sqlite::open(path).await {
        Err(error) => error,
        Ok(store) => panic!("expected {} to be refused", store.location()),
    }
}

async fn pass(time: Duration) {
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
