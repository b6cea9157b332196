//! The clients that wait in turn for one name, a row each; and the offer that keeps a freed name for the first of them.
//!
//! An offer is a row among the leases, so that every claim finds the name taken. It is no lease: it has no token, and
//! the client is in the holder's column, so that no renewal or release can match it. Only a claim of that client turns
//! it into a lease. A client that gets an offer has left the queue, so one that lets it lapse counts as dead.
//!
//! A client of another boot counts as dead, and its offer as void. That can cost the order, and nothing else.
//!
//! In the file the table is called `line`.

use rusqlite::{OptionalExtension, params};

use super::database::Tx;
use super::failure::Failure;
use super::row::{Fresh, RowState, stored};
use crate::holder::ClientId;
use crate::name::Name;
use crate::store::Queued;

/// The queue of one name, within one transaction.
pub(super) struct Queue<'a> {
    tx: &'a Tx<'a>,
    name: &'a Name,
}

/// A client as the file keeps it.
pub(super) fn stored_client(client: ClientId) -> String {
    client.to_string()
}

impl<'a> Tx<'a> {
    /// The queue of this name.
    pub(super) fn queue(&'a self, name: &'a Name) -> Queue<'a> {
        Queue { tx: self, name }
    }
}

impl Queue<'_> {
    /// The first live client. The dead ones before it are passed over; a later grant removes them.
    pub(super) fn first_live(&self) -> Result<Option<String>, Failure> {
        // The plus signs keep the planner on the order of the places, of which it reads one row if no client is dead.
        let mut first = self.tx.db.prepare_cached(
            "SELECT client
            FROM line
            WHERE name = ?1 AND +boot = ?2 AND +alive_until_ns > ?3
            ORDER BY place
            LIMIT 1",
        )?;
        let facts = params![self.name.as_str(), self.tx.boot.id(), stored(self.tx.now)];
        Ok(first.query_row(facts, |row| row.get(0)).optional()?)
    }

    /// Lets a client of the queue count as live. Returns how many live ones are before it; `None` if it is not in the
    /// queue.
    pub(super) fn stay(&self, client: &str) -> Result<Option<usize>, Failure> {
        let mut stay = self.tx.db.prepare_cached(
            "UPDATE line
            SET boot = ?3, alive_until_ns = ?4
            WHERE name = ?1 AND client = ?2
            RETURNING place",
        )?;
        let facts = params![
            self.name.as_str(),
            client,
            self.tx.boot.id(),
            stored(self.tx.now.after(Queued::PATIENCE)),
        ];
        let place = stay.query_row(facts, |row| row.get(0)).optional()?;
        place.map(|place| self.before(place)).transpose()
    }

    /// Puts a client that is not in the queue at its end. Returns as [`stay`](Self::stay).
    pub(super) fn join(&self, client: &str) -> Result<usize, Failure> {
        let mut join = self.tx.db.prepare_cached(
            "INSERT INTO line (name, place, client, boot, alive_until_ns)
            VALUES (?1, (SELECT coalesce(max(place), 0) + 1 FROM line WHERE name = ?1), ?2, ?3, ?4)
            RETURNING place",
        )?;
        let facts = params![
            self.name.as_str(),
            client,
            self.tx.boot.id(),
            stored(self.tx.now.after(Queued::PATIENCE)),
        ];
        self.before(join.query_row(facts, |row| row.get(0))?)
    }

    /// Returns how many live clients are before this place.
    fn before(&self, place: i64) -> Result<usize, Failure> {
        let mut count = self.tx.db.prepare_cached(
            "SELECT count(*)
            FROM line
            WHERE name = ?1 AND place < ?2 AND +boot = ?3 AND +alive_until_ns > ?4",
        )?;
        let facts = params![
            self.name.as_str(),
            place,
            self.tx.boot.id(),
            stored(self.tx.now),
        ];
        let before: i64 = count.query_row(facts, |row| row.get(0))?;
        Ok(usize::try_from(before).unwrap_or_default())
    }

    /// Returns how many live clients wait.
    pub(super) fn waiting(&self) -> Result<usize, Failure> {
        self.before(i64::MAX)
    }

    /// Removes a client from the queue.
    pub(super) fn leave(&self, client: &str) -> Result<(), Failure> {
        let mut leave = self.tx.db.prepare_cached(
            "DELETE FROM line
            WHERE name = ?1 AND client = ?2",
        )?;
        leave.execute([self.name.as_str(), client])?;
        Ok(())
    }

    /// Keeps the name, which is free or just freed, for this client's claim.
    pub(super) fn offer(&self, client: &str) -> Result<(), Failure> {
        self.leave(client)?;
        let fresh = Fresh {
            name: self.name,
            holder: client,
            token: 0,
            info: "{}",
            since_us: 0,
            standing: RowState::Offered,
            ttl: Queued::OFFER,
        };
        self.tx.put(&fresh)
    }
}
