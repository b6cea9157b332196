//! The queue of a name: places that end with the session of their client.

use super::connection::session::{Change, Mode, Stat};
use super::connection::sessions::SessionCall;
use super::failure::Failure;
use super::protocol::reading::NameReading;
use crate::holder::ClientId;
use crate::name::Name;

impl SessionCall<'_> {
    /// Keeps the name for the next client in the queue. Returns the number of the write.
    pub(super) async fn pass_on(
        &self,
        reading: &NameReading,
        lapsed: &[String],
    ) -> Result<i64, Failure> {
        let mut steps: Vec<_> = reading.delete_taken().into_iter().collect();
        steps.extend(reading.delete_places(lapsed));
        steps.extend(reading.begin_offer());
        Ok(self.write(&steps).await?.zxid)
    }

    /// Puts a client at the end of the queue. Returns the stat of the name after it.
    pub(super) async fn join(&self, name: &Name, client: ClientId) -> Result<Stat, Failure> {
        let tree = &self.shared.tree;
        let steps = [
            Change::Create(tree.place(name, client), Vec::new(), Mode::Numbered),
            // Raises the version, so that a client that remembers the name as free looks again.
            Change::Set(tree.name(name), Vec::new(), None),
        ];
        let stat = self.waiting().await?.write(&steps).await?;
        self.shared.remembered().joined(name, stat.zxid);
        Ok(stat)
    }

    pub(super) async fn leave_queue(&self, name: &Name, client: ClientId) -> Result<(), Failure> {
        self.until_unchanged(|| self.try_to_leave(name, client))
            .await
    }

    async fn try_to_leave(&self, name: &Name, client: ClientId) -> Result<(), Failure> {
        let Some(reading) = self.look_freshly(name).await? else {
            return Ok(());
        };
        let Some(place) = reading.children.place(client) else {
            return Ok(());
        };
        let nodes = &reading.children.queue[place].nodes;
        let mut steps: Vec<_> = reading.delete_places(nodes).collect();
        if reading.is_offered() && reading.children.place(client) == Some(0) {
            steps.extend(reading.begin_offer());
        }
        self.transact(&steps).await?;
        Ok(())
    }
}
