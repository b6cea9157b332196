//! Free pages kept in the file, so that a full disk refuses new leases and leaves the existing ones alone.
//!
//! A renewal needs no page of its own: once the log has been moved into the file, its blocks are written again. But the
//! log can be moved only if the file has a block for each of its pages. So the file gets pages before a lease needs
//! them, and the claim that finds none left is the one that is refused. It must leave the log as it is: pages in the
//! log that the file cannot take would keep all others there too, and in the end refuse the renewals.

use super::database::Database;
use super::failure::Failure;
use super::transaction::{Caller, Tx};

/// Number of free pages below which the file grows first: a claim adds a lease and a place in the queue at most, and
/// each splits at most a few pages in each of three trees.
const LEAST_PAGES: i64 = 24;

/// Bytes by which it grows: 48 pages, some hundred leases.
const STEP_BYTES: i64 = 48 * 4_096;

/// Bytes of the disk that have to be free for that on top of the log: the pages, their few parents, and what is
/// logged when they are emptied.
const RESERVE_BYTES: usize = 64 * 4_096;

impl Tx<'_> {
    /// Returns whether a new lease fits without more of the disk.
    pub(super) fn has_headroom(&self) -> Result<bool, Failure> {
        let free = self.find::<i64>("PRAGMA freelist_count", ())?;
        Ok(free >= Some(LEAST_PAGES))
    }
}

/// Makes the file longer. Its new pages must be written in full before they are free: a hole would have no blocks.
pub(super) fn make(file: &mut Database, caller: Caller<'_>) -> Result<(), Failure> {
    let blocks = file.reserve(RESERVE_BYTES)?;
    file.write(caller, fill)?;
    // Pages that stayed filled would be lost to leases.
    let caller = caller.staying();
    // Only a race with another program for these very blocks can fail now.
    drop(blocks);
    let grown = file.empty_log(caller);
    let freed = file.write_though_full(caller, |tx| tx.run("DELETE FROM room", ()));
    grown.and(freed)?;
    // An administrator may have turned it on since the file was opened.
    file.refuse_auto_vacuum()
}

fn fill(tx: &Tx<'_>) -> Result<(), Failure> {
    tx.run(
        "INSERT OR REPLACE INTO room
        VALUES (1, zeroblob(?1))",
        [STEP_BYTES],
    )
}
