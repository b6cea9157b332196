//! The clients that wait in turn for one name, a row each; and the offer that keeps a freed name for the first of them.
//!
//! An offer is a row among the leases, so that every claim finds the name taken. It is no lease: it has no token, and
//! the client is in the holder's column, so that no renewal or release can match it. Only a claim of that client turns
//! it into a lease. A client that gets an offer has left the queue, so one that lets it lapse counts as dead.
//!
//! A client of another boot counts as dead, and its offer as void. That can cost the order, and nothing else.
//!
//! In the file the table is called `line`. A client is kept as its id.

use rusqlite::params;

use super::failure::Failure;
use super::row::stored;
use super::transaction::Tx;
use crate::name::Name;

pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(9);
pub(super) const OFFER: std::time::Duration = std::time::Duration::from_secs(2);

impl Tx<'_> {
    /// The first live client. The dead ones before it are passed over; a later grant removes them.
    pub(super) fn first_queued(&self, name: &Name) -> Result<Option<String>, Failure> {
        // The plus signs keep the planner on the order of the places, of which it reads one row if no client is dead.
        self.find(
            "SELECT client
            FROM line
            WHERE name = ?1 AND +boot = ?2 AND +alive_until_ns > ?3
            ORDER BY place
            LIMIT 1",
            params![name.as_str(), self.boot.id(), stored(self.now)],
        )
    }

    /// Lets a client of the queue count as live. Returns how many live ones are before it; `None` if it is not in the
    /// queue.
    pub(super) fn stay_queued(&self, name: &Name, client: &str) -> Result<Option<usize>, Failure> {
        let alive_until = stored(self.now.after(PATIENCE));
        let place = self.find(
            "UPDATE line
            SET boot = ?3, alive_until_ns = ?4
            WHERE name = ?1 AND client = ?2
            RETURNING place",
            params![name.as_str(), client, self.boot.id(), alive_until],
        )?;
        place
            .map(|place| self.queued_before(name, place))
            .transpose()
    }

    /// Puts a client that is not in the queue at its end. Returns how many live ones are before it.
    pub(super) fn join_queue(&self, name: &Name, client: &str) -> Result<usize, Failure> {
        let alive_until = stored(self.now.after(PATIENCE));
        self.run(
            "INSERT INTO line (name, place, client, boot, alive_until_ns)
            VALUES (?1, (SELECT coalesce(max(place), 0) + 1 FROM line WHERE name = ?1), ?2, ?3, ?4)",
            params![name.as_str(), client, self.boot.id(), alive_until],
        )?;
        Ok(self.queued(name)? - 1)
    }

    /// Returns how many live clients are before this place.
    fn queued_before(&self, name: &Name, place: i64) -> Result<usize, Failure> {
        let before: Option<i64> = self.find(
            "SELECT count(*)
            FROM line
            WHERE name = ?1 AND place < ?2 AND +boot = ?3 AND +alive_until_ns > ?4",
            params![name.as_str(), place, self.boot.id(), stored(self.now)],
        )?;
        Ok(usize::try_from(before.unwrap_or_default()).unwrap_or_default())
    }

    /// Returns how many live clients wait.
    pub(super) fn queued(&self, name: &Name) -> Result<usize, Failure> {
        self.queued_before(name, i64::MAX)
    }

    /// Removes a client from the queue.
    pub(super) fn leave_queue(&self, name: &Name, client: &str) -> Result<(), Failure> {
        self.run(
            "DELETE FROM line
            WHERE name = ?1 AND client = ?2",
            [name.as_str(), client],
        )
    }

    /// Keeps the name, which is free or just freed, for this client's claim.
    pub(super) fn offer(&self, name: &Name, client: &str) -> Result<(), Failure> {
        self.leave_queue(name, client)?;
        self.put(name, client, OFFER, None)
    }
}
