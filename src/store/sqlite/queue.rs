//! Clients that wait in line for one name, a row each; and the offer that keeps a freed name for the first of them.
//!
//! An offer is a row among the leases, so that all who ask find the name taken. It is no lease: there is no token, and the
//! client stands where the holder would, so that no renewal or release can mean it. Only a claim of that client turns it
//! into a lease. A client that gets an offer has left the queue; so one that lets it lapse counts as dead.
//!
//! A client of another boot counts as dead, and its offer as void. That can cost the order, and nothing else.

use rusqlite::{Connection, OptionalExtension, params};

use super::boot::Boot;
use super::failure::Failure;
use super::row::{self, Fresh, RowState, stored};
use crate::clock::Instant;
use crate::holder::ClientId;
use crate::name::Name;
use crate::store::Queued;

/// The line of one name, within one transaction.
pub(super) struct Queue<'a> {
    db: &'a Connection,
    boot: &'a Boot,
    name: &'a Name,
    now: Instant,
}

/// A client as the file keeps it.
pub(super) fn stored_client(client: ClientId) -> String {
    client.to_string()
}

impl<'a> Queue<'a> {
    pub(super) fn new(db: &'a Connection, boot: &'a Boot, name: &'a Name, now: Instant) -> Self {
        Self {
            db,
            boot,
            name,
            now,
        }
    }

    /// The first client that is alive. The dead before it are passed over; a later grant sweeps them.
    pub(super) fn first_live(&self) -> Result<Option<String>, Failure> {
        // The plus signs keep the planner on the order of the places, of which it reads one row if no client is dead.
        let mut first = self.db.prepare_cached(
            "SELECT client
            FROM line
            WHERE name = ?1 AND +boot = ?2 AND +alive_until_ns > ?3
            ORDER BY place
            LIMIT 1",
        )?;
        let facts = params![self.name.as_str(), self.boot.id(), stored(self.now)];
        Ok(first.query_row(facts, |row| row.get(0)).optional()?)
    }

    /// Lets a client that stands in line count as alive. Answers how many live ones are before it; `None` if it does not
    /// stand there.
    pub(super) fn stay(&self, client: &str) -> Result<Option<usize>, Failure> {
        let mut stay = self.db.prepare_cached(
            "UPDATE line
            SET boot = ?3, alive_until_ns = ?4
            WHERE name = ?1 AND client = ?2
            RETURNING place",
        )?;
        let facts = params![
            self.name.as_str(),
            client,
            self.boot.id(),
            stored(self.now.after(Queued::PATIENCE)),
        ];
        let place = stay.query_row(facts, |row| row.get(0)).optional()?;
        place.map(|place| self.before(place)).transpose()
    }

    /// Puts a client that does not stand in line at the end of it. Answers as [`stay`](Self::stay).
    pub(super) fn join(&self, client: &str) -> Result<usize, Failure> {
        let mut join = self.db.prepare_cached(
            "INSERT INTO line (name, place, client, boot, alive_until_ns)
            VALUES (?1, (SELECT coalesce(max(place), 0) + 1 FROM line WHERE name = ?1), ?2, ?3, ?4)
            RETURNING place",
        )?;
        let facts = params![
            self.name.as_str(),
            client,
            self.boot.id(),
            stored(self.now.after(Queued::PATIENCE)),
        ];
        self.before(join.query_row(facts, |row| row.get(0))?)
    }

    /// How many that are alive have a place before this one.
    fn before(&self, place: i64) -> Result<usize, Failure> {
        let mut count = self.db.prepare_cached(
            "SELECT count(*)
            FROM line
            WHERE name = ?1 AND place < ?2 AND +boot = ?3 AND +alive_until_ns > ?4",
        )?;
        let facts = params![self.name.as_str(), place, self.boot.id(), stored(self.now),];
        let before: i64 = count.query_row(facts, |row| row.get(0))?;
        Ok(usize::try_from(before).unwrap_or_default())
    }

    /// How many that are alive wait.
    pub(super) fn waiting(&self) -> Result<usize, Failure> {
        self.before(i64::MAX)
    }

    /// Takes a client out of the line.
    pub(super) fn leave(&self, client: &str) -> Result<(), Failure> {
        let mut leave = self.db.prepare_cached(
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
        row::put(self.db, self.boot, self.now, &fresh)
    }
}
