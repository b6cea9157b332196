//! One transaction on the file: the connection, the boot in whose name it reads and writes, and the moment at which it
//! began.
//!
//! Its methods are in the files of what they read and write: leases in [`row`](super::row), the clients that wait in
//! [`queue`](super::queue), a claim in [`claim`](super::claim), tokens in [`mint`](super::mint).

use rusqlite::Connection;

use super::boot::Boot;
use crate::clock::Instant;

/// One transaction. Made by [`Database::read`](super::database::Database::read) and its writing siblings.
#[derive(Clone, Copy)]
pub(super) struct Tx<'a> {
    pub(super) db: &'a Connection,
    pub(super) boot: &'a Boot,
    /// Read after the writer's place was taken, so that no transaction of this boot that is written earlier is later by
    /// this clock.
    pub(super) now: Instant,
}

impl<'a> Tx<'a> {
    /// Returns the transaction that begins now.
    pub(super) fn begin(db: &'a Connection, boot: &'a Boot) -> Self {
        let now = boot.now();
        Self { db, boot, now }
    }
}
