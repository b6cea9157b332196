//! The queue of a name: places that end with the session of their client.

use super::connection::session::{Change, Mode};
use super::connection::sessions::SessionCall;
use super::failure::Failure;
use super::protocol::judge::{Drops, places_of};
use super::protocol::reading::{LastGrant, NameReading};
use crate::holder::ClientId;
use crate::name::Name;

impl SessionCall<'_> {
    /// Keeps the name for the next client in the queue. Returns the number of the write.
    pub(super) async fn pass_on(
        &self,
        name: &Name,
        reading: &NameReading,
        last: &LastGrant,
        drops: &Drops,
    ) -> Result<i64, Failure> {
        let mut steps: Vec<_> = self.drop_taken(name, reading, drops).into_iter().collect();
        steps.extend(delete_places(&self.shared.tree.name(name), &drops.places));
        let path = self.shared.tree.token(name, last.token);
        steps.push(Change::Set(path, Vec::new(), Some(last.version)));
        Ok(self.heard(self.write(&steps).await?).zxid)
    }

    /// Puts a client at the end of the queue. Returns the number of the write.
    pub(super) async fn join(&self, name: &Name, client: ClientId) -> Result<i64, Failure> {
        let session = self.shared.waiting.session(self.budget).await?;
        let tree = &self.shared.tree;
        let steps = [
            Change::Create(tree.place(name, client), Vec::new(), Mode::Numbered),
            // Raises the version, so that a client that remembers the name as free looks again.
            Change::Set(tree.name(name), Vec::new(), None),
        ];
        let zxid = self.heard(session.write(&steps).await?).zxid;
        self.shared.remembered().joined(name, zxid);
        Ok(zxid)
    }

    pub(super) async fn leave_queue(&self, name: &Name, client: ClientId) -> Result<(), Failure> {
        loop {
            let Some(reading) = self.look_freshly(name).await? else {
                return Ok(());
            };
            let places = places_of(&reading, client);
            if places.is_empty() {
                return Ok(());
            }
            let mut steps: Vec<_> = delete_places(&self.shared.tree.name(name), places).collect();
            if let Some(last) = &reading.last
                && reading.is_offered()
                && reading.children.place(client) == Some(0)
            {
                let path = self.shared.tree.token(name, last.token);
                steps.push(Change::Set(path, Vec::new(), Some(last.version)));
            }
            match self.transact(&steps).await {
                Err(aborted) if aborted.failure.is_stale() && !self.budget.left().is_zero() => {}
                done => return done.map(drop).map_err(|aborted| aborted.failure),
            }
        }
    }
}

pub(super) fn delete_places(name: &str, places: &[String]) -> impl Iterator<Item = Change> {
    places
        .iter()
        .map(move |place| Change::Delete(format!("{name}/{place}"), None))
}
