//! The clients that wait in turn for one name, a row each: a client's place, and the claim to which a freed name is
//! granted there.
//!
//! A place lasts for the term that its client's last claim set. That is a long one if the client has a
//! [bell](super::bells): whoever grants the name sees there whether the client lives, so it has to claim less often;
//! and what is granted to it ends soon unless the client, which may stand still, renews it. A place whose claim was
//! released is passed over until another caller of the client claims. One of another boot counts as dead: that can cost
//! the order, and nothing else.
//!
//! In the file the table is called `line`, and its column for the end of a place `alive_until_ns`. A client is kept as
//! its id.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::bells::Bell;
use super::failure::Failure;
use super::mint::as_stored;
use super::row::{moment, stored};
use super::transaction::Tx;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Ask, Claim, Queued};
use crate::token::Token;

/// The term of the place of a client that has a bell, unless its ttl is shorter than the longest term of others. It
/// claims three times within it, which is a write each time; and one that is stopped is in the queue for this long.
const TERM_WITH_BELL: Duration = Duration::from_secs(15);

/// A claim at its place.
pub(super) struct Waiting {
    pub(super) holder: Holder,
    pub(super) floor: Option<Token>,
    /// JSON.
    pub(super) info: String,
    /// The rest of the term of the place.
    pub(super) left: Duration,
}

impl Tx<'_> {
    /// The first live place with a claim.
    pub(super) fn first_waiting(&self, name: &Name) -> Result<Option<Waiting>, Failure> {
        // The plus signs keep the planner on the order of the places: it reads one row if no client is dead.
        let mut find = self.db.prepare_cached(
            "SELECT holder, floor, info, alive_until_ns
            FROM line
            WHERE name = ?1 AND +boot = ?2 AND +alive_until_ns > ?3 AND holder IS NOT NULL
            ORDER BY place
            LIMIT 1",
        )?;
        let facts = params![name.as_str(), self.boot.id(), stored(self.now)];
        let found = find.query_row(facts, |row| {
            let floor: i64 = row.get(1)?;
            let left = moment(row.get(3)?).since(self.now);
            Ok((row.get(0)?, floor, row.get(2)?, left))
        });
        let found: Option<(String, _, _, _)> = found.optional()?;
        let waiting = found.map(|(holder, floor, info, left)| {
            let holder = holder.parse();
            Ok(Waiting {
                holder: holder.map_err(|_| Failure::damaged("a place has no holder"))?,
                floor: Token::new(floor.cast_unsigned()).ok(),
                info,
                left,
            })
        });
        waiting.transpose()
    }

    /// The term of this claim's place.
    pub(super) fn term_of_place(&self, claim: &Claim, queued: Queued) -> Duration {
        let bell = Bell::Client(claim.holder.client());
        match queued.term >= Queued::LONGEST_TERM && self.bells.has(bell) {
            true => queued.term.max(TERM_WITH_BELL),
            false => queued.term,
        }
    }

    /// Keeps the live place of this claim's client for this term, with this claim. Returns its number, if it has one.
    pub(super) fn stay_queued(
        &self,
        claim: &Claim,
        ask: Ask,
        term: Duration,
    ) -> Result<Option<i64>, Failure> {
        self.find(
            "UPDATE line
            SET holder = ?5, floor = ?6, info = ?7, alive_until_ns = max(alive_until_ns, ?8)
            WHERE name = ?1 AND client = ?2 AND boot = ?3 AND alive_until_ns > ?4
            RETURNING place",
            params![
                claim.name.as_str(),
                claim.holder.client().to_string(),
                self.boot.id(),
                stored(self.now),
                claim.holder.to_string(),
                ask.floor.map_or(0, as_stored),
                info_of(claim),
                stored(self.now.after(term)),
            ],
        )
    }

    /// Puts the client of this claim, which has no live place, at the end. Returns the number of its place.
    pub(super) fn join_queue(
        &self,
        claim: &Claim,
        ask: Ask,
        term: Duration,
    ) -> Result<i64, Failure> {
        let client = claim.holder.client();
        self.leave_queue(&claim.name, client)?;
        let place = self.find(
            "INSERT INTO line (name, place, client, boot, alive_until_ns, holder, floor, info)
            VALUES (?1, (SELECT coalesce(max(place), 0) + 1 FROM line WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, ?7)
            RETURNING place",
            params![
                claim.name.as_str(),
                client.to_string(),
                self.boot.id(),
                stored(self.now.after(term)),
                claim.holder.to_string(),
                ask.floor.map_or(0, as_stored),
                info_of(claim),
            ],
        )?;
        place.ok_or_else(|| Failure::damaged("a place has no number"))
    }

    /// Returns how many live clients claim before this place.
    pub(super) fn queued_before(&self, name: &Name, place: i64) -> Result<usize, Failure> {
        let before: Option<i64> = self.find(
            "SELECT count(*)
            FROM line
            WHERE name = ?1 AND place < ?2 AND +boot = ?3 AND +alive_until_ns > ?4 AND holder IS NOT NULL",
            params![name.as_str(), place, self.boot.id(), stored(self.now)],
        )?;
        Ok(usize::try_from(before.unwrap_or_default()).unwrap_or_default())
    }

    /// Returns how many live clients wait.
    pub(super) fn queued(&self, name: &Name) -> Result<usize, Failure> {
        self.queued_before(name, i64::MAX)
    }

    /// Takes this holder's claim out of its place, which stays for its term.
    pub(super) fn vacate(&self, name: &Name, holder: Holder) -> Result<(), Failure> {
        self.run(
            "UPDATE line
            SET holder = NULL
            WHERE name = ?1 AND holder = ?2",
            [name.as_str(), &holder.to_string()],
        )
    }

    /// Removes a client from the queue, and the dead places.
    pub(super) fn leave_queue(&self, name: &Name, client: ClientId) -> Result<(), Failure> {
        self.run(
            "DELETE FROM line
            WHERE name = ?1 AND (client = ?2 OR boot <> ?3 OR alive_until_ns <= ?4)",
            params![
                name.as_str(),
                client.to_string(),
                self.boot.id(),
                stored(self.now)
            ],
        )
    }
}

/// The facts about the holder, as the file keeps them.
pub(super) fn info_of(claim: &Claim) -> String {
    serde_json::to_string(&*claim.info).expect("text and a number are JSON")
}
