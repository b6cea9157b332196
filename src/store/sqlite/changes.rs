//! The hints for a client that follows names and turns, read from the file as it is now. Writes nothing.

use std::collections::BTreeSet;

use super::failure::Failure;
use super::queue::stored_client;
use super::row::{Row, RowState};
use super::tx::Tx;
use crate::clock::Instant;
use crate::name::Name;
use crate::store::{Notice, Topic};

/// The part of what a look found that the next one compares with.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    /// The file's change counter.
    version: i64,
    kept: BTreeSet<Kept>,
}

/// A name that was kept after its release, and until when. Nothing is written at that moment, so a waiting client has
/// to hear of it before, and once is enough.
type Kept = (Name, Instant);

/// One look.
struct Changes<'a> {
    tx: &'a Tx<'a>,
    before: &'a BTreeSet<Kept>,
    kept: BTreeSet<Kept>,
}

impl Tx<'_> {
    /// Looks at the file. Returns what it looks like and, if it changed since the look before, the hints for these
    /// topics.
    pub(super) fn changes_since(
        &self,
        before: Option<&Snapshot>,
        topics: &BTreeSet<Topic>,
    ) -> Result<(Snapshot, Vec<Notice>), Failure> {
        let version = self
            .db
            .query_row("PRAGMA data_version", (), |row| row.get(0))?;
        let Some(before) = before.filter(|before| before.version != version) else {
            let kept = before.map_or_else(BTreeSet::new, |before| before.kept.clone());
            return Ok((Snapshot { version, kept }, Vec::new()));
        };
        let mut look = Changes {
            tx: self,
            before: &before.kept,
            kept: BTreeSet::new(),
        };
        let mut hints = Vec::new();
        for topic in topics {
            hints.extend(look.hint(topic)?);
        }
        // A client whose turn it is hears of it before those that still have to wait.
        hints.sort_by_key(|hint| matches!(hint, Notice::Next(..)));
        let kept = look.kept;
        Ok((Snapshot { version, kept }, hints))
    }
}

impl Changes<'_> {
    fn hint(&mut self, topic: &Topic) -> Result<Option<Notice>, Failure> {
        let name = topic.name();
        let row = self.tx.counting_row(name)?;
        if let Topic::Turn(_, client) = topic {
            return self.turn(name, row, &stored_client(*client));
        }
        let is_news = row.is_none_or(|row| self.is_newly_kept(name, &row));
        Ok(is_news.then(|| Notice::Freed(name.clone())))
    }

    fn is_newly_kept(&mut self, name: &Name, row: &Row) -> bool {
        if row.standing != RowState::Kept {
            return false;
        }
        let kept = (name.clone(), row.ends_at);
        let is_known = self.before.contains(&kept);
        self.kept.insert(kept);
        !is_known
    }

    /// The hint for a client in the queue.
    fn turn(&self, name: &Name, row: Option<Row>, client: &str) -> Result<Option<Notice>, Failure> {
        let notice = match row {
            None => Notice::Turn(name.clone()),
            Some(row) if row.is_offered_to(client) => return Ok(Some(Notice::Turn(name.clone()))),
            Some(row) => match row.unheld(self.tx) {
                Some(remaining) => Notice::Next(name.clone(), remaining),
                None => return Ok(None),
            },
        };
        let is_first = self.tx.queue(name).first_live()?.as_deref() == Some(client);
        Ok(is_first.then_some(notice))
    }
}
