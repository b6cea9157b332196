//! Extra requests made only by the set-up check: who the Sentinels and the replicas are.

use std::sync::Arc;

use super::super::connection::budget::Budget;
use super::super::connection::connections::Connections;
use super::super::failure::Failure;
use super::many::{Discovery, Many};
use super::map::{HostPort, Range};
use super::nodes;
use super::sentinels::Sentinels;

impl Many {
    /// Returns the Sentinels. A cluster has none.
    pub(in super::super) fn sentinels(&self) -> Option<&Sentinels> {
        match &*self.source {
            Discovery::Sentinels(sentinels) => Some(sentinels),
            Discovery::Nodes(_) => None,
        }
    }

    /// Asks which slots each node of the cluster serves, and who its replicas are.
    pub(in super::super) async fn topology(
        self: &Arc<Self>,
        budget: Budget,
    ) -> Result<Vec<Range>, Failure> {
        let known = self.map().clone();
        match &*self.source {
            Discovery::Sentinels(_) => Ok(Vec::new()),
            Discovery::Nodes(seeds) => nodes::look(self, seeds, &known, budget).await,
        }
    }

    /// Returns connections to a server that serves no slots, and its address, without secrets. The caller closes them.
    pub(in super::super) fn connections_beside(&self, place: &HostPort) -> (Arc<str>, Connections) {
        let address = self.template.address.at(&place.host, place.port);
        let shown = address.to_string().into();
        let connections = Connections::new(self.template.settings(address), None);
        (shown, connections)
    }

    /// Returns where a server is reached that the Sentinels name so.
    pub(in super::super) fn reached(&self, named: HostPort) -> HostPort {
        self.template.address_map.reached(named)
    }
}
