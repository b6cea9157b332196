//! The queue of a name: places that end with the session of their client.

use super::Zookeeper;
use super::connection::session::{Change, Mode};
use super::connection::sessions::within;
use super::failure::Failure;
use super::protocol::judge::{Drops, places_of};
use super::protocol::reading::{LastGrant, NameReading};
use crate::holder::ClientId;
use crate::name::Name;
use crate::store::budget::Budget;

impl Zookeeper {
    /// Keeps the name for the next client in the queue. Returns the number of the write.
    pub(super) async fn pass_on(
        &self,
        name: &Name,
        reading: &NameReading,
        last: &LastGrant,
        drops: &Drops,
        budget: Budget,
    ) -> Result<i64, Failure> {
        let session = self.session(budget).await?;
        let mut steps: Vec<_> = self.drop_taken(name, reading, drops).into_iter().collect();
        steps.extend(delete_places(&self.shared.tree.name(name), &drops.places));
        let path = self.shared.tree.token(name, last.token);
        steps.push(Change::Set(path, Vec::new(), Some(last.version)));
        let stats = within(budget, async {
            let done = session.transact(&steps).await;
            done.map_err(|aborted| aborted.failure)
        });
        let stat = stats.await?.into_iter().flatten().next();
        Ok(stat.map_or(0, |stat| self.heard(stat).zxid))
    }

    /// Puts a client at the end of the queue. Returns the number of the write.
    pub(super) async fn join(
        &self,
        name: &Name,
        client: ClientId,
        budget: Budget,
    ) -> Result<i64, Failure> {
        let session = self.shared.waiting.session(budget).await?;
        let tree = &self.shared.tree;
        let steps = [
            Change::Create(tree.place(name, client), Vec::new(), Mode::Numbered),
            // Raises the version, so that a client that remembers the name as free looks again.
            Change::Set(tree.name(name), Vec::new(), None),
        ];
        let stats = within(budget, async {
            let done = session.transact(&steps).await;
            done.map_err(|aborted| aborted.failure)
        });
        let stat = stats.await?.into_iter().flatten().next();
        let zxid = stat.map_or(0, |stat| self.heard(stat).zxid);
        self.remembered().joined(name, zxid);
        Ok(zxid)
    }

    pub(super) async fn leave_queue(
        &self,
        name: &Name,
        client: ClientId,
        budget: Budget,
    ) -> Result<(), Failure> {
        loop {
            let Some(reading) = self.look_freshly(name, budget).await? else {
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
            let session = self.session(budget).await?;
            let done = within(budget, async {
                let done = session.transact(&steps).await;
                done.map_err(|aborted| aborted.failure)
            });
            match done.await {
                Err(failure) if failure.is_stale() && !budget.left().is_zero() => {}
                done => return done.map(drop),
            }
        }
    }
}

pub(super) fn delete_places(name: &str, places: &[String]) -> impl Iterator<Item = Change> {
    places
        .iter()
        .map(move |place| Change::Delete(format!("{name}/{place}"), None))
}
