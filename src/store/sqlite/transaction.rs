//! One transaction, and its caller.

use std::cell::RefCell;
use std::fs::File;
use std::time::Duration;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params};

use super::bells::{Bell, Bells, Listener};
use super::boot::Boot;
use super::failure::Failure;
use crate::clock::{Clock, Instant, Monotonic};
use crate::holder::ClientId;
use crate::name::Name;

/// One transaction: the connection, the boot in whose name it reads and writes, and when it began. Made by
/// [`Database::read`](super::database::Database::read) and its writing siblings.
///
/// Its methods are in the files of the rows that they read and write: leases in [`row`](super::row), the clients that
/// wait in [`queue`](super::queue), tokens in [`mint`](super::mint); the requests are in [`leases`](super::leases).
#[derive(Clone, Copy)]
pub(super) struct Tx<'a> {
    pub(super) db: &'a Connection,
    pub(super) boot: &'a Boot,
    /// Read once this transaction is the writer, so that by this clock it is later than every earlier transaction of
    /// this boot.
    pub(super) now: Instant,
    pub(super) bells: &'a Bells,
    /// The bells to ring once it is committed.
    ringing: &'a Ringing,
}

/// Bells that are open to be rung: when this is dropped, they are.
pub(super) type Ringing = RefCell<Vec<File>>;

impl<'a> Tx<'a> {
    /// Returns the transaction that begins now.
    pub(super) fn begin(
        db: &'a Connection,
        boot: &'a Boot,
        bells: &'a Bells,
        ringing: &'a Ringing,
    ) -> Self {
        let now = boot.now();
        Self {
            db,
            boot,
            now,
            bells,
            ringing,
        }
    }

    /// Wakes the clients that watch this name once the transaction is committed.
    pub(super) fn wake_watchers(&self, name: &Name) {
        self.ring(Bell::of_watchers(name));
    }

    /// Wakes this client once the transaction is committed. Returns whether it can be alive.
    pub(super) fn wake(&self, client: ClientId) -> bool {
        self.ring(Bell::Client(client))
    }

    /// Returns whether somebody can be listening.
    fn ring(&self, bell: Bell) -> bool {
        match self.bells.open(bell) {
            Listener::Alive(bell) => self.ringing.borrow_mut().push(bell),
            Listener::Dead => return false,
            Listener::Unknown => {}
        }
        true
    }

    /// Runs a statement.
    pub(super) fn run(&self, sql: &str, facts: impl Params) -> Result<(), Failure> {
        self.db.prepare_cached(sql)?.execute(facts)?;
        Ok(())
    }

    /// Runs a statement. Returns the first column of its first row.
    pub(super) fn find<T: FromSql>(
        &self,
        sql: &str,
        facts: impl Params,
    ) -> Result<Option<T>, Failure> {
        let mut statement = self.db.prepare_cached(sql)?;
        Ok(statement.query_row(facts, |row| row.get(0)).optional()?)
    }
}

/// The caller that the store's thread works for.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    until: Instant,
    is_gone: &'a dyn Fn() -> bool,
}

impl<'a> Caller<'a> {
    pub(super) fn new(until: Instant, is_gone: &'a dyn Fn() -> bool) -> Self {
        Self { until, is_gone }
    }

    /// The same caller, but waiting up to its limit in any case: for work that must not be left half done.
    pub(super) fn staying(self) -> Caller<'static> {
        Caller::new(self.until, &|| false)
    }

    /// Returns whether the caller no longer wants the answer.
    pub(super) fn is_gone(self) -> bool {
        (self.is_gone)()
    }

    /// Returns whether the caller still waits.
    pub(super) fn waits(self) -> bool {
        self.waits_for(Duration::ZERO)
    }

    /// Returns whether the caller still waits, and as far as known still will after this time.
    pub(super) fn waits_for(self, time: Duration) -> bool {
        Monotonic.now().after(time) < self.until && !self.is_gone()
    }
}
