//! The queue of a name: places that end with the session of their client.

use super::connection::session::SessionCall;
use super::failure::Failure;
use super::protocol::reading::NameReading;
use super::protocol::wire::{Change, Mode, Stat};
use crate::holder::ClientId;
use crate::name::Name;

/// The most bytes of paths in one transaction: far less than what a server takes (`jute.maxbuffer`, 1 MiB), which ends
/// the connection of a client that sends more.
const BYTES_AT_ONCE: usize = 32 * 1024;

impl SessionCall<'_> {
    /// Deletes some of the places that a grant deletes, if they are too many for its transaction. Then the name has to
    /// be read again.
    pub(super) async fn shorten(
        &self,
        reading: &NameReading,
        places: &[String],
    ) -> Result<(), Failure> {
        let gone = reading.places_to_delete(places);
        let bytes = |place: &String| reading.path.len() + 2 * place.len();
        let at_once = gone
            .first()
            .map_or(1, |place| BYTES_AT_ONCE / bytes(place))
            .max(8);
        if gone.len() <= at_once {
            return Ok(());
        }
        let steps: Vec<_> = reading.delete_places(&gone[..at_once]).collect();
        self.transact(&steps).await?;
        Err(Failure::Changed)
    }

    /// Frees the name of what has run out, and keeps it for the next client in the queue, if there is one.
    pub(super) async fn pass_on(
        &self,
        reading: &NameReading,
        lapsed: &[String],
    ) -> Result<(), Failure> {
        let mut steps: Vec<_> = reading.delete_taken().into_iter().collect();
        steps.extend(reading.delete_places(lapsed));
        steps.extend(reading.begin_offer());
        self.transact(&steps).await?;
        Ok(())
    }

    /// Puts a client at the end of the queue. Returns the stat of the name after it.
    pub(super) async fn join(&self, name: &Name, client: ClientId) -> Result<Stat, Failure> {
        let tree = &self.shared.tree;
        let steps = [
            Change::Create(tree.place(name, client), Vec::new(), Mode::Numbered),
            // Raises the version, so that a client that remembers the name as free reads again.
            Change::Set(tree.name(name), Vec::new(), None),
        ];
        let stat = self.waiting().await?.write(&steps).await?;
        self.shared.remembered.lock().joined(name, stat.zxid);
        Ok(stat)
    }

    /// Takes a client out of the queue whose waiting claim was released, unless another one of its callers claims
    /// there.
    pub(super) async fn leave_queue(&self, name: &Name, client: ClientId) -> Result<(), Failure> {
        let reading = self.read_freshly(name).await?;
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
